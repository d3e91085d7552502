"""config.json, vocabularies and tokenizers of a folder of CTranslate2."""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import Field
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.small_files import read_json_object
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile
from tfk_transformer.importing.imported import ForeignConfig, check_languages
from tfk_transformer.importing.model_paths import CONFIG
from tfk_transformer.importing.token_lists import read_token_list, token_list_model
from tfk_transformer.importing.vocabulary import (
    Side,
    SpecialRows,
    Vocabulary,
    check_vocab,
    first_rows,
    read_sentencepiece,
    tags_of,
    text_pieces,
    unused_name,
)
from tfk_transformer.text.languages import Languages

FAMILY = "CTranslate2"
# The SentencePiece models of source and target. CTranslate2 does not read them, so their names
# are those of the programs that write them.
TOKENIZER_NAMES = (
    ("source.spm", "target.spm"),
    ("source.model", "target.model"),
    ("sentencepiece.model",) * 2,
    ("sentencepiece.bpe.model",) * 2,
    ("spm.model",) * 2,
    ("tokenizer.model",) * 2,
    ("spiece.model",) * 2,
)
# M2M100: __de__; NLLB-200: deu_Latn; mBART: de_DE. fairseq has the latter as __deu_Latn__ and
# [de_DE].
LANGUAGE_TOKEN = re.compile(
    r"__([a-z]{2,3})__|(?:__)?([a-z]{3}_[A-Z][a-z]{3})(?:__)?|\[?([a-z]{2}_[A-Z]{2})\]?"
)
PAD_NAMES = ("<blank>", "<pad>")  # of OpenNMT and of the others
MIN_SHARED_PIECES = 0.25  # of a SentencePiece model in its vocabulary


class FolderConfig(ForeignConfig):
    """The values of a config.json on which results depend."""

    unk_token: str = "<unk>"
    bos_token: str | None = "<s>"
    eos_token: str = "</s>"
    decoder_start_token: str | None = "<s>"  # None: the user passes it as a target prefix
    add_source_bos: bool = False
    add_source_eos: bool = False
    layer_norm_epsilon: float | None = Field(default=None, gt=0)

    @classmethod
    def read(cls, folder: Path, file: BinaryFile) -> Self:
        """Return the values of a folder. Before version 6, they are attributes of the model."""
        if (folder / CONFIG).is_file():
            return cls(**read_json_object(folder / CONFIG))
        names = ("unk_token", "bos_token", "eos_token")
        tokens = {name: file.text(name, cls.model_fields[name].default) for name in names}
        start = tokens["bos_token" if file.number("with_target_bos", 1) else "eos_token"]
        return cls(
            **tokens,
            decoder_start_token=None if file.number("user_decoder_start_tokens", 0) else start,
            add_source_bos=bool(file.number("with_source_bos", 0)),
            add_source_eos=bool(file.number("with_source_eos", 0)),
        )


class PassedTokens(NamedTuple):
    """The tokens that users of CTranslate2 pass with every text, such as those of languages."""

    start: str  # the decoder's first token, or the one after `target_prefix`
    source_prefix: tuple[str, ...]
    source_suffix: tuple[str, ...] = ()  # after the end token
    target_prefix: tuple[str, ...] = ()  # before the start token


def passed_tokens(
    config: FolderConfig,
    tokens: Sequence[str],
    proto: ModelProto,
    languages: Languages,
    target_prefix: str | None,
) -> tuple[PassedTokens, Languages]:
    """Return the tokens with every text, and the languages that they select, if any.

    A model with language tokens reads and writes them where its family does: as M2M100, NLLB-200
    and mBART-50 if its decoder starts with the end token, as mBART-25 if its users pass the start
    token. `tokens` are the target's vocabulary, `proto` is the source's, and Argos Translate may
    pass a `target_prefix`.
    """
    first = config.decoder_start_token  # None: users pass it
    before = (str(config.bos_token),) if config.add_source_bos else ()
    forced = () if first is None else (first,)
    if target_prefix is not None:
        return PassedTokens(target_prefix, before, target_prefix=forced), Languages()
    pieces = set(text_pieces(proto))
    matches = {token: LANGUAGE_TOKEN.fullmatch(token) for token in tokens if token not in pieces}
    available = {
        next(filter(None, match.groups())): token for token, match in matches.items() if match
    }
    if len(available) > 1 and first in (None, config.eos_token):
        check_languages(languages, available, FAMILY)
        source, target = (available[str(language)] for language in languages)
        if first is None:
            return PassedTokens(target, before, source_suffix=(source,)), languages
        return PassedTokens(target, (*before, source), target_prefix=forced), languages
    if first is None:
        raise ValueError(
            f"folder: expected a decoder_start_token in {CONFIG}, got null: this model expects its "
            "start token in each target prefix; name it in the file."
        )
    return PassedTokens(first, before), Languages()


def read_vocabularies(folder: Path, unknown: str) -> tuple[list[str], list[str]]:
    """Return the tokens of source and target by row."""
    sides: dict[str, list[str]] = {}
    for side, suffix in itertools.product(("shared", "source", "target"), (".json", ".txt")):
        path = folder / f"{side}_vocabulary{suffix}"
        if side not in sides and path.is_file():
            tokens = read_token_list(path)
            sides[side] = tokens if unknown in tokens else [*tokens, unknown]
    if "shared" in sides:
        return sides["shared"], sides["shared"]
    if missing := [f"{side}_vocabulary.json" for side in ("source", "target") if side not in sides]:
        raise ValueError(
            f"folder: expected shared_vocabulary.json, or source_vocabulary.json and "
            f"target_vocabulary.json (or .txt) in {folder}, got no {', '.join(missing)}."
        )
    return sides["source"], sides["target"]


def find_tokenizers(folders: Sequence[Path], vocab: Sequence[Path]) -> tuple[Path, Path]:
    """Return the SentencePiece models of both sides: `vocab`, or those of the first such folder."""
    check_vocab(vocab, range(3))
    if vocab:
        return vocab[0], vocab[-1]
    for folder, names in itertools.product(folders, TOKENIZER_NAMES):
        source, target = (folder / name for name in names)
        if source.is_file() and target.is_file():
            return source, target
    models = [path for folder in folders for path in sorted(folder.glob("*.model"))]
    models = [path for path in models if path.stem not in ("source", "target", "bpe")]
    if len(models) == 1:
        return models[0], models[0]
    if any((folder / "bpe.model").is_file() for folder in folders):
        raise ValueError(
            f"tokenizer: expected a SentencePiece model in {folders[-1]}, got bpe.model: codes of "
            "subword-nmt for words of Moses's tokenizer, whose rules (abbreviations, apostrophes "
            "by language) a SentencePiece model cannot express; such packages are conversions of "
            "OPUS-MT: import an OPUS-MT model of the pair that has SentencePiece models, such as "
            "Helsinki-NLP/opus-mt-de-en."
        )
    raise ValueError(
        f"tokenizer: expected source.spm and target.spm, or sentencepiece.model in "
        f"{' or '.join(map(str, folders))}, got none; copy the SentencePiece models of the "
        "training there, or pass them (vocab); if there never were any, pass the rule of the "
        "vocabulary's tokens (tokens): 'characters', 'words', or a regular expression."
    )


def read_tokenizers(
    folders: Sequence[Path], vocab: Sequence[Path], rule: str | None, config: FolderConfig
) -> tuple[tuple[ModelProto, ModelProto], tuple[list[str], ...], tuple[list[str], ...]]:
    """Return the SentencePiece models, the tokens by row, and their pieces, of source and target.

    The first of the `folders` has the vocabularies. Without a `rule`, tokens are pieces.
    """
    vocabularies = read_vocabularies(folders[0], config.unk_token)
    if rule is None:
        source, target = map(_read_model, find_tokenizers(folders, vocab), vocabularies)
        return (source, target), vocabularies, vocabularies
    if vocab:
        raise ValueError(
            f"vocab: expected none with tokens={rule!r}, which reads the folder's vocabularies, "
            f"got {', '.join(map(str, vocab))}."
        )
    special = (*PAD_NAMES, config.bos_token or "", config.eos_token, config.unk_token)
    (source, source_pieces), (target, target_pieces) = (
        token_list_model(tokens, rule, special) for tokens in vocabularies
    )
    return (source, target), vocabularies, (source_pieces, target_pieces)


def _read_model(path: Path, tokens: Sequence[str]) -> ModelProto:
    """Read the SentencePiece model of a vocabulary, and refuse that of another one."""
    model = read_sentencepiece(path)
    pieces = set(text_pieces(model))
    shared = len(pieces.intersection(tokens))
    if shared < MIN_SHARED_PIECES * min(len(pieces), len(tokens)):
        raise ValueError(
            f"tokenizer: expected the SentencePiece model of the vocabulary, got {path}, of whose "
            f"{len(pieces):,} pieces the vocabulary has {shared:,}."
        )
    return model


def read_sides(
    config: FolderConfig,
    vocabularies: tuple[list[str], ...],
    protos: tuple[ModelProto, ModelProto],
    rows: tuple[int, int],
    never_predicted: Collection[int],
    start_token: str | None,
    joint: bool,
) -> tuple[Side, Side]:
    """Return the tokens of source and target, and SentencePiece models with their ids.

    Pairs have values of source and target: the pieces by row, SentencePiece models, and the numbers
    of rows of the tables, of which there is one if they are joint. A start token None has an
    embedding of zeros.
    """
    source_tokens, target_tokens = vocabularies
    required = [config.eos_token] if config.add_source_eos else []
    _check_tokens(source_tokens, rows[0], required)
    _check_tokens(target_tokens, rows[1], [config.eos_token])
    pieces = first_rows(target_tokens)
    start = None if start_token is None else pieces.get(start_token, pieces[config.unk_token])
    special, extra = _special_rows(config, pieces, protos[1], rows[1], start, never_predicted)
    added = set(text_pieces(protos[0])) - set(source_tokens)
    target = Vocabulary.remapped(
        {**pieces, **extra},
        rows[1] + len(extra),
        special,
        added if joint else (),
        {*never_predicted, *extra.values()},
    )
    source = target
    if not joint:
        pieces = first_rows(source_tokens)
        start = pieces.get(str(config.bos_token)) if special.dedicated_start else None
        # A source is never predicted.
        special, extra = _special_rows(config, pieces, protos[0], rows[0], start, range(rows[0]))
        source = Vocabulary.remapped({**pieces, **extra}, rows[0] + len(extra), special, added)
    tags = tags_of(source.pieces, protos[0])
    return (
        (source, source.sentencepiece_model(protos[0], tags)),
        (target, target.sentencepiece_model(protos[1])),
    )


def _check_tokens(tokens: Sequence[str], rows: int, required: Sequence[str]) -> None:
    """Refuse a vocabulary that does not fit the table."""
    if len(tokens) > rows or not set(required).issubset(tokens):
        raise ValueError(
            f"vocabulary: expected at most {rows:,} tokens, the rows of the table, with "
            f"{', '.join(map(shorten, required)) or 'any names'}, got {len(tokens):,} tokens"
            f"{'' if set(required).issubset(tokens) else ' without it'}."
        )


def _special_rows(
    config: FolderConfig,
    pieces: Mapping[str, int],
    proto: ModelProto,
    rows: int,
    start: int | None,
    never_predicted: Collection[int],
) -> tuple[SpecialRows, dict[str, int]]:
    """Return the rows of the special tokens, and those of them that the table lacks, by name.

    A special token without a row of its own has a row of zeros after the last one: padding
    (CTranslate2 may predict the token for padding), and the end token of a source without one.
    Without a row, as in Marian, the start token has the row of padding.
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
