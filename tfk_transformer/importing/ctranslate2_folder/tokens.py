"""The tokenizers of a folder of CTranslate2, with this project's ids."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.ctranslate2_folder.language_tokens import PassedTokens
from tfk_transformer.importing.ctranslate2_folder.token_files import FolderConfig
from tfk_transformer.importing.hugging_face.marian import is_tag
from tfk_transformer.importing.vocabulary import (
    SideTokenizer,
    SpecialRows,
    Vocabulary,
    read_sentencepiece,
    remap_vocabulary,
    sentencepiece_model,
    text_pieces,
)

MIN_SHARED_PIECES = 0.25  # of a SentencePiece model in its vocabulary


class Sides(NamedTuple):
    """The tokenizers of both sides, and the tokens with every text."""

    source: SideTokenizer
    target: SideTokenizer
    passed: Mapping[str, tuple[int, ...]]  # the ids of the tokens of `PassedTokens`
    source_extra: int  # rows of zeros after the last row of the source's table
    target_extra: int


def read_sides(
    config: FolderConfig,
    vocabularies: tuple[list[str], list[str]],
    paths: tuple[Path, Path],
    rows: tuple[int, int],
    never_predicted: Collection[int],
    starts_with_zeros: bool,
    joint: bool,
    passed: PassedTokens,
) -> Sides:
    """Return the tokenizers of both sides, with this project's ids.

    Args:
        config: the values of config.json.
        vocabularies: the tokens of source and target by row.
        paths: the SentencePiece models of source and target.
        rows: the number of rows of the tables of source and target.
        never_predicted: rows of the target that no translation has.
        starts_with_zeros: whether the decoder's first token has an embedding of zeros.
        joint: whether source and target share their table of embeddings.
        passed: the tokens with every text.

    Raises:
        ValueError: if tokens are missing, or do not fit the tables or the SentencePiece models.
    """
    source_tokens, target_tokens = vocabularies
    protos = [read_sentencepiece(path) for path in paths]
    required = [config.eos_token] if config.add_source_eos else []
    _check_tokens(source_tokens, protos[0], paths[0], rows[0], required)
    _check_tokens(target_tokens, protos[1], paths[1], rows[1], [config.eos_token])
    pieces = _rows_of(target_tokens)
    first = pieces.get(str(passed.start), pieces[config.unk_token])
    start = None if starts_with_zeros else first
    special, extra = _special_rows(config, pieces, protos[1], rows[1], start, never_predicted)
    added = set(text_pieces(protos[0])) - set(source_tokens)
    target = remap_vocabulary(
        {**pieces, **extra},
        rows[1] + len(extra),
        special,
        added if joint else (),
        {*never_predicted, *extra.values()},
    )
    source, source_extra = target, extra
    if not joint:
        pieces = _rows_of(source_tokens)
        start = pieces.get(str(config.bos_token)) if special.dedicated_start else None
        # A source is never predicted.
        special, source_extra = _special_rows(
            config, pieces, protos[0], rows[0], start, range(rows[0])
        )
        source = remap_vocabulary(
            {**pieces, **source_extra}, rows[0] + len(source_extra), special, added
        )
    texts = set(text_pieces(protos[0]))
    tags = [token for token in source.pieces if is_tag(token) and token not in texts]
    return Sides(
        SideTokenizer(source, sentencepiece_model(protos[0], source, tags)),
        SideTokenizer(target, sentencepiece_model(protos[1], target)),
        {
            name: _ids_of(*side, getattr(passed, name), config.unk_token)
            for name, side in (
                ("source_prefix", (source, source_tokens)),
                ("source_suffix", (source, source_tokens)),
                ("target_prefix", (target, target_tokens)),
            )
        },
        len(source_extra),
        len(extra),
    )


def _check_tokens(
    tokens: Sequence[str], proto: ModelProto, path: Path, rows: int, required: Sequence[str]
) -> None:
    """Refuse a vocabulary that does not fit the table, or is not that of the SentencePiece model.

    Raises:
        ValueError: with the numbers of tokens.
    """
    if len(tokens) > rows or not set(required).issubset(tokens):
        raise ValueError(
            f"vocabulary: expected at most {rows:,} tokens, the rows of the table, with "
            f"{', '.join(map(shorten, required)) or 'any names'}, got {len(tokens):,} tokens"
            f"{'' if set(required).issubset(tokens) else ' without it'}."
        )
    pieces = set(text_pieces(proto))
    shared = len(pieces.intersection(tokens))
    if shared < MIN_SHARED_PIECES * min(len(pieces), len(tokens)):
        raise ValueError(
            f"tokenizer: expected the SentencePiece model of the vocabulary, got {path}, of whose "
            f"{len(pieces):,} pieces the vocabulary has {shared:,}."
        )


def _rows_of(tokens: Sequence[str]) -> dict[str, int]:
    """Return the row of each token, the first one if there are several."""
    return {token: row for row, token in reversed(list(enumerate(tokens)))}


def _special_rows(
    config: FolderConfig,
    pieces: Mapping[str, int],
    proto: ModelProto,
    rows: int,
    start: int | None,
    never_predicted: Collection[int],
) -> tuple[SpecialRows, dict[str, int]]:
    """Return the rows of the special tokens, and those of them that the table lacks, by name.

    A special token without a row of its own has a row of zeros after the last one: the start token
    of Marian, padding (CTranslate2 may predict the token for padding), and the end token of a
    source without one.

    Args:
        config: the values of config.json.
        pieces: the row of each token.
        proto: the SentencePiece model of the side.
        rows: the number of rows of the table.
        start: the row of the decoder's first token. None: it has the row of padding.
        never_predicted: rows that no translation has.
    """
    extra: dict[str, int] = {}
    unknown = pieces[config.unk_token]
    end = pieces.get(config.eos_token, -1)
    if end < 0:
        end = extra[config.eos_token] = rows
    pad = pieces.get(proto.trainer_spec.pad_piece, -1) if proto.trainer_spec.pad_id >= 0 else -1
    if pad not in never_predicted or pad in (end, unknown):
        names = (f"<pad{'_' * n}>" for n in range(len(pieces) + 1))
        pad = rows + len(extra)
        extra[next(name for name in names if name not in pieces)] = pad
    start = pad if start is None else start
    dedicated = start in never_predicted and start not in (pad, end, unknown)
    return SpecialRows(pad, start, end, unknown, dedicated), extra


def _ids_of(
    vocabulary: Vocabulary, tokens: Sequence[str], names: Sequence[str], unknown: str
) -> tuple[int, ...]:
    """Return the ids of tokens; a token that the vocabulary lacks is unknown."""
    rows = [tokens.index(name if name in tokens else unknown) for name in names]
    # The last id with a row: the start token, which precedes it, may have the same row.
    return tuple(int(np.flatnonzero(vocabulary.rows == row)[-1]) for row in rows)
