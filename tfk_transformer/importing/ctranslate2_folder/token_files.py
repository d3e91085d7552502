"""config.json, vocabularies and SentencePiece models of a folder of CTranslate2."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import ConfigDict, Field
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.record import Record
from tfk_transformer.config.small_files import (
    MAX_VOCABULARY_BYTES,
    read_json,
    read_json_object,
    read_small_file,
)
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile
from tfk_transformer.importing.imported import check_languages
from tfk_transformer.importing.vocabulary import check_vocab, text_pieces
from tfk_transformer.text.languages import Languages

FAMILY = "CTranslate2"
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
# M2M100: __de__; NLLB-200: deu_Latn; mBART: de_DE. fairseq has the latter as __deu_Latn__ and
# [de_DE].
LANGUAGE_TOKEN = re.compile(
    r"__([a-z]{2,3})__|(?:__)?([a-z]{3}_[A-Z][a-z]{3})(?:__)?|\[?([a-z]{2}_[A-Z]{2})\]?"
)


class FolderConfig(Record):
    """The values of a config.json on which results depend."""

    model_config = ConfigDict(extra="ignore")
    proposes_values = False

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
        defaults = {name: cls.model_fields[name].default for name in names}
        tokens = {name: file.text(name, default) for name, default in defaults.items()}
        start = tokens["bos_token" if file.number("with_target_bos", 1) else "eos_token"]
        return cls(
            **tokens,
            decoder_start_token=None if file.number("user_decoder_start_tokens", 0) else start,
            add_source_bos=bool(file.number("with_source_bos", 0)),
            add_source_eos=bool(file.number("with_source_eos", 0)),
        )


class PassedTokens(NamedTuple):
    """The tokens that users of CTranslate2 pass with every text, such as the tokens of languages.

    CTranslate2 does not know them: they are part of the tokens of a source and of a target prefix.
    All but the start token may be several.
    """

    start: str | None  # the decoder's first token, or the one after `target_prefix`
    source_prefix: tuple[str, ...] = ()
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
    token. The tokens are the target's vocabulary, the SentencePiece model is the source's, and a
    program may pass a target prefix.
    """
    first = config.decoder_start_token
    before = (str(config.bos_token),) if config.add_source_bos else ()
    if target_prefix is not None:
        prefix = () if first is None else (first,)
        return PassedTokens(target_prefix, before, target_prefix=prefix), Languages()
    available = _language_tokens(tokens, proto)
    if len(available) > 1 and first in (None, config.eos_token):
        check_languages(languages, available, FAMILY)
        source, target = (available[str(language)] for language in languages)
        if first is None:
            return PassedTokens(target, before, source_suffix=(source,)), languages
        return PassedTokens(target, (*before, source), target_prefix=(first,)), languages
    if first is None:
        raise ValueError(
            f"folder: expected a decoder_start_token in {CONFIG}, got null: this model expects its "
            "start token in each target prefix; name it in the file."
        )
    return PassedTokens(first, before), Languages()


def _language_tokens(tokens: Sequence[str], proto: ModelProto) -> Mapping[str, str]:
    """Return the language tokens of a vocabulary by language code."""
    pieces = set(text_pieces(proto))
    matches = {token: LANGUAGE_TOKEN.fullmatch(token) for token in tokens if token not in pieces}
    return {next(filter(None, match.groups())): token for token, match in matches.items() if match}


def read_vocabularies(folder: Path, unknown: str) -> tuple[list[str], list[str]]:
    """Return the tokens of source and target by row."""
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
    """Return the paths of the SentencePiece models of source and target: those that the user passed
    (vocab), or else those in the first folder that has some.
    """
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
        "training there, or pass them (vocab)."
    )
