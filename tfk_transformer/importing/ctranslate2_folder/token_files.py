"""config.json, vocabularies and SentencePiece models of a folder of CTranslate2."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, Field

from tfk_transformer.config.record import Record
from tfk_transformer.config.small_files import (
    MAX_VOCABULARY_BYTES,
    read_json,
    read_json_object,
    read_small_file,
)
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile

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
        """Return the values of a folder. Before version 6, they are attributes of the model.

        Raises:
            ValueError: if config.json is broken, or has values of other types.
        """
        if (folder / CONFIG).is_file():
            return cls(**read_json_object(folder / CONFIG))
        return cls(**_attributes(file))


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
