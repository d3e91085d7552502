"""What the bundles hold: the files of each kind, and the parts that all kinds have in common."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tfk_transformer.models.registry import config_from_json, make_model

CONFIG, WEIGHTS, PROBES = "config.json", "model.weights.h5", "probes.txt"
HISTORY, METRICS = "history.json", "metrics.json"
RECIPE, CURVE = "recipe.toml", "curve.png"
SOURCE_TOKENIZER, TARGET_TOKENIZER, LABELS = "source.model", "target.model", "labels.json"


class Kind(NamedTuple):
    """A kind of bundle."""

    reader: str  # the class whose `load` reads it
    writer: str  # what writes it, for errors
    files: tuple[str, ...]  # what it needs


TRANSLATOR = Kind("Translator", "`train`", (CONFIG, WEIGHTS, SOURCE_TOKENIZER, TARGET_TOKENIZER))
CLASSIFIER = Kind("TextClassifier", "`TextClassifier.save`", (CONFIG, WEIGHTS, SOURCE_TOKENIZER, LABELS))
KINDS = {"encoder_decoder": TRANSLATOR, "decoder": TRANSLATOR, "encoder": CLASSIFIER}


def write_parts(folder: Path, model, probes: Sequence[str], history: dict | None, metrics: dict | None) -> None:
    """Write configuration, weights, probes, history and metrics into a folder that is there."""
    (folder / CONFIG).write_text(model.config.to_json())
    write_probes(folder, probes)
    for name, content in ((HISTORY, history or {}), (METRICS, metrics or {})):
        write_json(folder / name, content)
    plain_copy(model).save_weights(folder / WEIGHTS)


def read_model(folder: Path, kind: Kind):
    """Return the model of a bundle, in float32; no code of the bundle is run.

    Raises:
        ValueError: if the bundle is of another kind, or files are missing or broken.
    """
    config = _read_config(folder)
    if config and KINDS[config.architecture] != kind:
        other = KINDS[config.architecture].reader
        raise ValueError(f"bundle: expected one that {kind.reader} reads, got {folder}, which is for {other}; open it with {other}.load.")
    missing = [name for name in kind.files if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"bundle: expected a folder that {kind.writer} wrote, got {folder} without {', '.join(missing)}.")
    model = make_model(config, dtype="float32")
    try:
        model.load_weights(folder / WEIGHTS)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"bundle: the weights in {folder / WEIGHTS} do not load: {str(error).splitlines()[0]}") from None
    return model


def kind_of(path) -> Kind | None:
    """Return which kind of bundle a folder is, None if it has no configuration."""
    config = _read_config(Path(path))
    return KINDS[config.architecture] if config else None


def _read_config(folder: Path):
    return config_from_json((folder / CONFIG).read_text()) if (folder / CONFIG).is_file() else None


def write_probes(folder: Path, probes: Sequence[str]) -> None:
    """Write the probes into a folder, one per line. Line breaks within a probe become blanks, as which tokenizers read them."""
    lines = [" ".join(re.split(r"[\r\n]", text)) for text in probes]
    (folder / PROBES).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_probes(folder: Path) -> list[str]:
    """Return the probes of a bundle, none if the file is missing."""
    return (folder / PROBES).read_text(encoding="utf-8").split("\n")[:-1] if (folder / PROBES).is_file() else []


def write_json(path: Path, content) -> None:
    """Write JSON as every file of a bundle has it."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def plain_copy(model):
    """Return a float32 model of the same weights without an optimizer, whose moments would make up two thirds of a file."""
    copy = type(model)(model.config, dtype="float32")
    copy.build()
    copy.set_weights(model.get_weights())
    return copy
