"""The tokenizers of a folder of CTranslate2, with this project's ids."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.ctranslate2_folder.token_files import FolderConfig
from tfk_transformer.importing.vocabulary import (
    Side,
    SpecialRows,
    Vocabulary,
    read_sentencepiece,
    remap_vocabulary,
    sentencepiece_model,
    tags_of,
    text_pieces,
    unused_name,
)

MIN_SHARED_PIECES = 0.25  # of a SentencePiece model in its vocabulary


def read_sides(
    config: FolderConfig,
    vocabularies: tuple[list[str], list[str]],
    paths: tuple[Path, Path],
    rows: tuple[int, int],
    never_predicted: Collection[int],
    start_token: str | None,
    joint: bool,
) -> tuple[Side, Side]:
    """Return the tokens of source and target, and SentencePiece models with their ids.

    Pairs have values of source and target: the tokens by row, the paths of the SentencePiece
    models, and the numbers of rows of the tables, of which there is one if they are joint. No
    translation has the rows `never_predicted`. A start token None has an embedding of zeros.
    """
    source_tokens, target_tokens = vocabularies
    protos = [read_sentencepiece(path) for path in paths]
    required = [config.eos_token] if config.add_source_eos else []
    _check_tokens(source_tokens, protos[0], paths[0], rows[0], required)
    _check_tokens(target_tokens, protos[1], paths[1], rows[1], [config.eos_token])
    pieces = _rows_of(target_tokens)
    start = None if start_token is None else pieces.get(start_token, pieces[config.unk_token])
    special, extra = _special_rows(config, pieces, protos[1], rows[1], start, never_predicted)
    added = set(text_pieces(protos[0])) - set(source_tokens)
    target = remap_vocabulary(
        {**pieces, **extra},
        rows[1] + len(extra),
        special,
        added if joint else (),
        {*never_predicted, *extra.values()},
    )
    source = target
    if not joint:
        pieces = _rows_of(source_tokens)
        start = pieces.get(str(config.bos_token)) if special.dedicated_start else None
        # A source is never predicted.
        special, extra = _special_rows(config, pieces, protos[0], rows[0], start, range(rows[0]))
        source = remap_vocabulary({**pieces, **extra}, rows[0] + len(extra), special, added)
    tags = tags_of(source.pieces, protos[0])
    return (
        (source, sentencepiece_model(protos[0], source, tags)),
        (target, sentencepiece_model(protos[1], target)),
    )


def _check_tokens(
    tokens: Sequence[str], proto: ModelProto, path: Path, rows: int, required: Sequence[str]
) -> None:
    """Refuse a vocabulary that fits neither the table nor the SentencePiece model."""
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
    source without one. Without a row, the start token has the row of padding.
    """
    extra: dict[str, int] = {}
    unknown = pieces[config.unk_token]
    end = pieces.get(config.eos_token, -1)
    if end < 0:
        end = extra[config.eos_token] = rows
    pad = pieces.get(proto.trainer_spec.pad_piece, -1) if proto.trainer_spec.pad_id >= 0 else -1
    if pad not in never_predicted or pad in (end, unknown):
        pad = extra[unused_name("pad", pieces)] = rows + len(extra)
    start = pad if start is None else start
    dedicated = start in never_predicted and start not in (pad, end, unknown)
    return SpecialRows(pad, start, end, unknown, dedicated), extra


def ids_of(
    vocabulary: Vocabulary, tokens: Sequence[str], names: Sequence[str], unknown: str
) -> tuple[int, ...]:
    """Return the ids of tokens by row; a token that the vocabulary lacks is unknown."""
    rows = (tokens.index(name if name in tokens else unknown) for name in names)
    return tuple(map(vocabulary.id_of, rows))
