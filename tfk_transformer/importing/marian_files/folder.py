"""Folders of Marian's files.

The names in them are those of OPUS-MT, of Bergamot's students (browsermt/students) and of Firefox's
models (mozilla/firefox-translations-models).
"""

import math
import re
from pathlib import Path
from typing import Any

from tfk_transformer.config.small_files import MAX_OPTIONS_BYTES, read_json_object, read_small_file
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.marian_files.files import MAX_LENGTH, named_options
from tfk_transformer.importing.model_paths import BINARY, GZIP, NPZ, is_marian_file
from tfk_transformer.text.languages import Languages, is_language

SENTENCEPIECE = ".spm"
OPTIMIZER = ".optimizer.npz"  # of a training run, without a model
METADATA = "metadata.json"  # of Firefox's models
FIREFOX_NAME = re.compile(r"model\.([a-z]{2})([a-z]{2})\.")
SOURCE_NAMES = ("srcvocab", "source", "src")
TARGET_NAMES = ("trgvocab", "target", "trg")
DECODER_FILES = ("*decoder*.yml", "config*.yml")
# Options of Marian's decoder: the default, and the largest value that is imported.
DECODER_OPTIONS = {"beam-size": (12, 64), "normalize": (0, 10), "max-length-factor": (3, 1000)}
# The values with which Firefox translates.
FIREFOX_VALUES: dict[str, Any] = {"beam-size": 1, "normalize": 1.0, "max-length-factor": 2.0}


def model_in(folder: Path) -> Path:
    """Return the model in a folder: an .npz file, or else a .bin file, which is often quantized."""
    for suffix in (NPZ, BINARY):
        models = sorted(
            path
            for path in folder.glob(f"*{suffix}")
            if is_marian_file(path) and not path.name.endswith(OPTIMIZER)
        )
        if len(models) > 1:
            names = ", ".join(path.name for path in models[:5])
            raise ValueError(
                f"folder: expected one {suffix} file of Marian in {folder}, got {len(models)}, "
                f"{names}; pass the path of the one to import."
            )
        if models:
            return models[0]
    raise ValueError(f"folder: expected an {NPZ} or {BINARY} file of Marian in {folder}, got none.")


def model_languages(model: Path) -> Languages:
    """Return the languages in metadata.json next to a model, or in its name, if there are any."""
    metadata = model.parent / METADATA
    if metadata.is_file():
        values = read_json_object(metadata)
        codes = [values.get(name) for name in ("sourceLanguage", "targetLanguage")]
        return Languages(*(code if is_language(code) else None for code in codes))
    match = FIREFOX_NAME.match(model.name)
    return Languages(*match.groups()) if match else Languages()


def check_rows(model: Path) -> None:
    """Refuse a model of OPUS-MT, whose rows are in a vocabulary of Marian next to it."""
    if lists := sorted(model.parent.glob("*vocab*.yml")):
        raise ValueError(
            f"vocab: expected SentencePiece models whose ids are the model's rows, got {lists[0]}, "
            "which has other rows; import the folder of transformers that it was converted to, "
            "such as Helsinki-NLP/opus-mt-en-de."
        )


def find_vocab(path: Path) -> list[Path]:
    """Return the SentencePiece models next to a file: one for both sides, or source and target."""
    folder = path.parent
    languages = model_languages(path)
    models = sorted(folder.glob(f"*{SENTENCEPIECE}"))
    if len(models) == 1:
        return models
    # A side is one of the parts of a name between dots.
    sources, targets = (
        [path for path in models if {*names, language} & set(path.name.split("."))]
        for names, language in zip((SOURCE_NAMES, TARGET_NAMES), languages, strict=True)
    )
    if len(models) == 2 and len(sources) == len(targets) == 1 and sources != targets:
        return [*sources, *targets]
    compressed = sorted(folder.glob(f"*{SENTENCEPIECE}{GZIP}"))
    remedy = f"run gunzip {compressed[0]}" if compressed else "pass them (vocab)"
    names = ", ".join(path.name for path in models[:5]) or "none"
    raise ValueError(
        f"vocab: expected one SentencePiece model (*{SENTENCEPIECE}) in {folder}, or one for the "
        f"source and one for the target, got {names}; {remedy}."
    )


def decoder_options(model: Path) -> dict[str, Any]:
    """Return the options of Marian's decoder next to a model; {} if there are none."""
    paths = {path for pattern in DECODER_FILES for path in model.parent.glob(pattern)}
    texts = {path: read_small_file(path, MAX_OPTIONS_BYTES) for path in sorted(paths)}
    options = [named_options(text, str(path)) for path, text in texts.items()]
    # Of several files, the one that names the model is read.
    naming = [values for values in options if model.name in str(values.get("models"))]
    others = [values for values in options if "beam-size" in values and "models" not in values]
    if naming or others:
        return (naming or others)[0]
    is_firefox = (model.parent / METADATA).is_file() or FIREFOX_NAME.match(model.name)
    return FIREFOX_VALUES if is_firefox else {}


def search_settings(values: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the search settings for options of Marian's decoder, and notes; {} without options."""
    if not values:
        return {}, ()
    beam_size = max(1, int(_number(values, "beam-size")))
    search = {
        "beam_size": beam_size,
        "length_penalty": _number(values, "normalize"),
        "length_penalty_form": "length",
        "max_length": MAX_LENGTH,  # Marian only has a factor
        "max_length_factor": _number(values, "max-length-factor"),
    }
    notes = []
    if beam_size > 1:
        notes.append(
            "the search of Marian removes complete hypotheses from its beam; here, beam_size open "
            "hypotheses remain"
        )
    if penalty := values.get("word-penalty"):
        notes.append(f"word-penalty {shorten(str(penalty))} is not imported")
    return search, tuple(notes)


def _number(values: dict[str, Any], name: str) -> float:
    """Return an option between 0 and its maximum, or Marian's default if it is not a number."""
    default, maximum = DECODER_OPTIONS[name]
    value = values.get(name)
    is_nan = isinstance(value, float) and math.isnan(value)
    if is_nan or not isinstance(value, int | float):
        value = default
    return float(min(max(0, value), maximum))
