"""The tokens of a folder of CTranslate2: config.json, vocabularies and SentencePiece models."""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from pydantic import ConfigDict, Field
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.record import Record
from tfk_transformer.config.small_files import (
    MAX_VOCABULARY_BYTES,
    read_json,
    read_json_object,
    read_small_file,
)
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile
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

CONFIG = "config.json"
# The SentencePiece models of source and target. CTranslate2 does not read them, so their names
# are those of the programs that write them.
TOKENIZER_NAMES = (
    ("source.spm", "target.spm"),
    ("source.model", "target.model"),
    *(
        (name, name)
        for name in (
            "sentencepiece.model",
            "sentencepiece.bpe.model",
            "spm.model",
            "tokenizer.model",
            "spiece.model",
        )
    ),
)
# Language tokens of M2M100, NLLB-200 and mBART-50.
LANGUAGE_TOKEN = re.compile(r"__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})|([a-z]{2}_[A-Z]{2})")
MIN_SHARED_PIECES = 0.25  # of a SentencePiece model in its vocabulary


class FolderConfig(Record):
    """The values of a config.json on which results depend."""

    model_config = ConfigDict(extra="ignore")
    proposes_values = False

    unk_token: str = "<unk>"
    bos_token: str | None = "<s>"
    eos_token: str = "</s>"
    decoder_start_token: str | None = "<s>"
    add_source_bos: bool = False
    add_source_eos: bool = False
    layer_norm_epsilon: float | None = Field(default=None, gt=0)

    @classmethod
    def read(cls, folder: Path, file: BinaryFile) -> Self:
        """Return the values of a folder. Before version 6, they are attributes of the model.

        Raises:
            ValueError: if config.json is broken, has values of other types, or asks the user for
                the start token.
        """
        if (folder / CONFIG).is_file():
            config = cls(**read_json_object(folder / CONFIG))
        else:
            config = cls(**_attributes(file))
        if config.decoder_start_token is None:
            raise ValueError(
                f"folder: expected a decoder_start_token in {folder / CONFIG}, got null: this "
                "model expects its start token in each target prefix; name it in the file."
            )
        return config


class Sides(NamedTuple):
    """The tokenizers of both sides, and the tokens before every source and target."""

    source: SideTokenizer
    target: SideTokenizer
    prefixes: Mapping[str, tuple[int, ...]]  # `source_prefix` and `target_prefix`
    source_extra: int  # rows of zeros after the last row of the source's table
    target_extra: int


class LanguageTokens(NamedTuple):
    """The tokens of the source language and of the target language."""

    source: str
    target: str


def _attributes(file: BinaryFile) -> dict[str, Any]:
    names = ("unk_token", "bos_token", "eos_token")
    defaults = {name: FolderConfig.model_fields[name].default for name in names}
    tokens = {name: file.text(name, default) for name, default in defaults.items()}
    start = "bos_token" if file.number("with_target_bos", 1) else "eos_token"
    passed = file.number("user_decoder_start_tokens", 0)
    return {
        **tokens,
        "decoder_start_token": None if passed else tokens[start],
        "add_source_bos": bool(file.number("with_source_bos", 0)),
        "add_source_eos": bool(file.number("with_source_eos", 0)),
    }


def read_vocabularies(folder: Path, unknown: str) -> tuple[list[str], list[str]]:
    """Return the tokens of source and target by row.

    Raises:
        ValueError: if a vocabulary is missing or broken.
    """
    if shared := _read_vocabulary(folder, "shared", unknown):
        return shared, shared
    sides = [_read_vocabulary(folder, side, unknown) for side in ("source", "target")]
    if missing := [
        f"{side}_vocabulary.json"
        for side, tokens in zip(("source", "target"), sides, strict=True)
        if not tokens
    ]:
        raise ValueError(
            f"folder: expected shared_vocabulary.json, or source_vocabulary.json and "
            f"target_vocabulary.json (or .txt) in {folder}, got no {', '.join(missing)}."
        )
    return sides[0], sides[1]


def _read_vocabulary(folder: Path, side: str, unknown: str) -> list[str]:
    """Return the tokens of a vocabulary file; an empty list if there is no such file."""
    path = folder / f"{side}_vocabulary.json"
    if path.is_file():
        tokens = read_json(path, MAX_VOCABULARY_BYTES)
        if not isinstance(tokens, list) or not all(type(token) is str for token in tokens):
            raise ValueError(f"vocabulary: expected a list of tokens in {path}, got other values.")
    elif (path := path.with_suffix(".txt")).is_file():
        tokens = _lines(read_small_file(path, MAX_VOCABULARY_BYTES).decode(errors="replace"))
    else:
        return []
    if not tokens:
        raise ValueError(f"vocabulary: expected tokens in {path}, got none.")
    return tokens if unknown in tokens else [*tokens, unknown]


def _lines(text: str) -> list[str]:
    """Return the lines of a text, as CTranslate2 reads them.

    A carriage return at the end of a line is part of a token, unless every line has one.
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    has_all = all(line.endswith("\r") for line in lines)
    return [line.removesuffix("\r") for line in lines] if has_all else lines


def find_tokenizers(folders: Sequence[Path], vocab: Sequence[Path]) -> tuple[Path, Path]:
    """Return the paths of the SentencePiece models of source and target.

    Args:
        folders: the folders in which to look, in this order.
        vocab: paths that the user passed, which take precedence.

    Raises:
        ValueError: if they are missing, or the tokenizer is not a SentencePiece model.
    """
    if len(vocab) > 2 or (missing := [str(path) for path in vocab if not path.is_file()]):
        got = f"no {', '.join(missing)}" if len(vocab) <= 2 else f"{len(vocab)} files"
        raise ValueError(
            "vocab: expected one SentencePiece model for both sides, or one for the source and "
            f"one for the target, got {got}."
        )
    if vocab:
        return vocab[0], vocab[-1]
    for folder, names in itertools.product(folders, TOKENIZER_NAMES):
        source, target = (folder / name for name in names)
        if source.is_file() and target.is_file():
            return source, target
    if any((folder / "bpe.model").is_file() for folder in folders):
        raise ValueError(
            f"tokenizer: expected a SentencePiece model in {folders[-1]}, got bpe.model, for "
            "Moses's tokenizer and subword-nmt; such a model cannot be imported."
        )
    raise ValueError(
        f"tokenizer: expected source.spm and target.spm, or sentencepiece.model in "
        f"{' or '.join(map(str, folders))}, got none; copy the SentencePiece models of the "
        "training there, or pass them (vocab)."
    )


def language_tokens(tokens: Sequence[str], proto: ModelProto) -> dict[str, str]:
    """Return the language tokens of a vocabulary by language code."""
    pieces = set(text_pieces(proto))
    matches = {token: LANGUAGE_TOKEN.fullmatch(token) for token in tokens if token not in pieces}
    return {next(filter(None, match.groups())): token for token, match in matches.items() if match}


def read_sides(
    config: FolderConfig,
    vocabularies: tuple[list[str], list[str]],
    paths: tuple[Path, Path],
    rows: tuple[int, int],
    never_predicted: Collection[int],
    starts_with_zeros: bool,
    joint: bool,
    languages: LanguageTokens | None,
) -> Sides:
    """Return the tokenizers of both sides, with this project's ids.

    Args:
        config: the values of config.json.
        vocabularies: the tokens of source and target by row.
        paths: the SentencePiece models of source and target.
        rows: the number of rows of the tables of source and target.
        never_predicted: rows of the target that no translation has.
        starts_with_zeros: whether the decoder's first token has an embedding of zeros.
        joint: whether source and target share all tables.
        languages: the language tokens before every source and target. None: the model has none.

    Raises:
        ValueError: if tokens are missing, or do not fit the tables or the SentencePiece models.
    """
    source_tokens, target_tokens = vocabularies
    protos = [read_sentencepiece(path) for path in paths]
    required = [config.eos_token] if config.add_source_eos else []
    _check_tokens(source_tokens, protos[0], paths[0], rows[0], required)
    _check_tokens(target_tokens, protos[1], paths[1], rows[1], [config.eos_token])
    pieces = _rows_of(target_tokens)
    first = languages.target if languages else config.decoder_start_token
    start = None if starts_with_zeros else pieces.get(str(first), pieces[config.unk_token])
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
    before = [config.bos_token] if config.add_source_bos else []
    before += [languages.source] if languages else []
    start_tokens = [config.decoder_start_token] if languages else []
    return Sides(
        SideTokenizer(source, sentencepiece_model(protos[0], source, tags)),
        SideTokenizer(target, sentencepiece_model(protos[1], target)),
        {
            "source_prefix": _ids_of(source, source_tokens, before, config.unk_token),
            "target_prefix": _ids_of(target, target_tokens, start_tokens, config.unk_token),
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
    vocabulary: Vocabulary, tokens: Sequence[str], names: Sequence[str | None], unknown: str
) -> tuple[int, ...]:
    """Return the ids of tokens; a token that the vocabulary lacks is unknown."""
    rows = [tokens.index(name if name in tokens else unknown) for name in names]
    # The last id with a row: the start token, which precedes it, may have the same row.
    return tuple(int(np.flatnonzero(vocabulary.rows == row)[-1]) for row in rows)
