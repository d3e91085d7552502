"""The files of a bundle, by name and kind, and how the parts that all kinds share are written and
read.

A bundle is the folder that training writes. It holds only data: reading one runs no code of it.
"""

import importlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import keras

from tfk_transformer.atomic_write import written_whole
from tfk_transformer.config.json_text import parsed_object
from tfk_transformer.models.base import ConfiguredModel
from tfk_transformer.models.registry import ModelConfig, config_from_json
from tfk_transformer.pipelines.weights import WEIGHTS_FILE, read_weights, write_weights
from tfk_transformer.runtime_environment import check_process

CONFIG, PROBES = "config.json", "probes.txt"
HISTORY, METRICS, RECIPE, CURVE = "history.json", "metrics.json", "recipe.toml", "curve.png"
SOURCE_TOKENIZER, TARGET_TOKENIZER, LABELS = "source.model", "target.model", "labels.json"
ORIGIN = "origin"  # a key of the metrics

Json: TypeAlias = Mapping[str, Any]  # a JSON object


class BundleType(NamedTuple):
    """A kind of bundle."""

    reader: str  # the class whose `load` reads it
    writer: str  # the command or method that writes it, for error messages
    files: tuple[str, ...]  # the files that it must have


TRANSLATOR = BundleType(
    "Translator",
    "`train` or `Translator.save`",
    (CONFIG, WEIGHTS_FILE, SOURCE_TOKENIZER, TARGET_TOKENIZER),
)
CLASSIFIER = BundleType(
    "TextClassifier",
    "`train` or `TextClassifier.save`",
    (CONFIG, WEIGHTS_FILE, SOURCE_TOKENIZER, LABELS),
)
BUNDLE_TYPES = {
    "encoder_decoder": TRANSLATOR,
    "decoder": TRANSLATOR,
    "encoder": CLASSIFIER,
    "ensemble": TRANSLATOR,
}


class SavedAsBundle(ABC):
    """A model with its tokenizers that is saved as a bundle; a subclass writes the files of its
    kind.
    """

    model: keras.Model
    probes: list[str]
    # Where an imported model came from: values that JSON can hold, by name.
    origin: Json = MappingProxyType({})
    # Of a loaded model: the figures of its training run, by name.
    metrics: Json = MappingProxyType({})

    @abstractmethod
    def _write_files(self, folder: Path) -> None:
        """Write tokenizers and labels into an existing folder."""

    def save(
        self,
        path: str | PathLike[str],
        history: Json | None = None,
        metrics: Json | None = None,
        more: Callable[[Path], None] | None = None,
    ) -> None:
        """Write the bundle, completely or not at all.

        Args:
            path: the folder. An existing one is replaced when everything is written.
            history: the metrics that `model.fit` recorded, as lists by name.
            metrics: figures of the finished model, by name.
            more: a function that writes further files into the folder before it is put in place.
        """
        with written_whole(path) as folder:
            folder.mkdir()
            (folder / CONFIG).write_text(self.model.config.to_json())
            write_probes(folder / PROBES, self.probes)
            origin = {ORIGIN: dict(self.origin)} if self.origin else {}
            for name, content in (
                (HISTORY, history or {}),
                (METRICS, {**origin, **(metrics or {})}),
            ):
                write_json(folder / name, content)
            write_weights(self.model, folder / WEIGHTS_FILE)
            self._write_files(folder)
            if more:
                more(folder)

    def export(
        self,
        filepath: str | PathLike[str],
        format: str = "tf_saved_model",
        verbose: bool | None = None,
    ) -> Json:
        """Write one file or folder that runs without this package, as `keras.Model.export` writes a
        model: texts in, results out.

        It is compared with the model on the probes, and is written only if the results agree.
        `tfk_transformer.export` describes the formats, and writes several.

        Args:
            filepath: the path, which must not exist: a file such as `model.onnx` for the formats
                whose names begin with "onnx", a folder for the others.
            format: "tf_saved_model" or "onnx", as Keras names them, or "onnx_int8", "ctranslate2",
                "huggingface", "web" or "web_int8". A classifier has the first two. Default:
                "tf_saved_model".
            verbose: whether the path is printed when it is written. Default: no.

        Returns:
            The parity figures: values that JSON can hold, by name. They are also in the metadata of
            an ONNX file.

        Raises:
            ValueError: if the format is unknown or does not have the model's options, something
                exists at the path, or ONNX needs a second file because there are more than 2 GB of
                weights.
            ParityError: if the results differ from the model's.
        """
        # `export/` stands above this folder and imports it. It is imported by its name, and only
        # here.
        exporting = importlib.import_module("tfk_transformer.export.exporting")
        figures: Json = exporting.export_one(self, filepath, format, verbose)
        return figures


def write_probes(path: Path, probes: Sequence[str]) -> None:
    """Write probes, one a line. A line break inside a probe becomes a blank, as which tokenizers
    read it.
    """
    lines = [" ".join(re.split(r"[\r\n]", text)) for text in probes]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_probes(path: Path) -> list[str]:
    """Return the probes that `write_probes` wrote; none if there is no file."""
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []


def read_origin(folder: Path) -> Json:
    """Return where the model of a bundle came from; nothing if it was not imported."""
    origin = read_metrics(folder).get(ORIGIN)
    return origin if isinstance(origin, dict) else {}


def read_metrics(folder: Path) -> Json:
    """Return the figures in a bundle, by name; nothing if there are none."""
    return (
        parsed_object((folder / METRICS).read_bytes(), str(folder / METRICS))
        if (folder / METRICS).is_file()
        else {}
    )


def read_config(folder: Path, kind: BundleType) -> ModelConfig:
    """Return the configuration of a bundle, after checking that its files are there.

    Raises:
        ValueError: if the bundle is of another kind, or files are missing.
    """
    config = _config_in(folder)
    if config and BUNDLE_TYPES[config.architecture] != kind:
        other = BUNDLE_TYPES[config.architecture].reader
        raise ValueError(
            f"bundle: expected one that {kind.reader} reads, got {folder}, which is for {other}; "
            f"open it with {other}.load."
        )
    missing = [name for name in kind.files if not (folder / name).is_file()]
    if config is None or missing:
        raise ValueError(
            f"bundle: expected a folder that {kind.writer} wrote, got {folder} without "
            f"{', '.join(missing)}."
        )
    return config


def read_model(folder: Path, kind: BundleType) -> ConfiguredModel:
    """Return the model of a bundle, in float32.

    Raises:
        ValueError: if the bundle is of another kind, or files are missing or broken.
    """
    check_process()
    return read_weights(read_config(folder, kind), folder / WEIGHTS_FILE)


def kind_of(path: str | PathLike[str]) -> BundleType | None:
    """Return the kind of the bundle in a folder; None if the folder has no configuration."""
    config = _config_in(Path(path))
    return BUNDLE_TYPES[config.architecture] if config else None


def _config_in(folder: Path) -> ModelConfig | None:
    return config_from_json((folder / CONFIG).read_bytes()) if (folder / CONFIG).is_file() else None


def write_json(path: Path, content: Json | Sequence[Any]) -> None:
    """Write JSON in the form that every file of a bundle has: indented, with sorted keys."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def plain_copy(model: keras.Model) -> keras.Model:
    """Return a float32 model with the same weights and without an optimizer, whose moments would
    take two thirds of a file.
    """
    copy = type(model)(model.config, dtype="float32")
    copy.build()
    copy.set_weights(model.get_weights())
    return copy
