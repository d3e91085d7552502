"""The files of a bundle, the folder that training writes: only data, so reading it runs no code."""

import importlib
import json
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeAlias

import keras

from tfk_transformer.atomic_write import atomic_write, read_unchanged
from tfk_transformer.config.model_options import LANGUAGE_OPTIONS, ClassifierConfig
from tfk_transformer.config.small_files import read_json_object, read_small_file, read_small_text
from tfk_transformer.models.configured_model import ConfiguredModel
from tfk_transformer.models.registry import ModelConfig, config_from_json
from tfk_transformer.models.reproduction import changed_layers, note_of_changes, plain_weights
from tfk_transformer.pipelines.model_record import MODEL, check_remake, record_of, remake
from tfk_transformer.pipelines.weights import WEIGHTS_FILE, read_weights, write_weights
from tfk_transformer.runtime_environment import check_process
from tfk_transformer.text.calibration import Calibration, calibration_metadata

# File names.
CONFIG, PROBES = "config.json", "probes.txt"
HISTORY, METRICS, RECIPE, CURVE = "history.json", "metrics.json", "recipe.toml", "curve.png"
SOURCE_TOKENIZER, TARGET_TOKENIZER, LABELS = "source.model", "target.model", "labels.json"

# Keys of the metrics.
ORIGIN = "origin"
SEARCH = "search"

Json: TypeAlias = Mapping[str, Any]  # a JSON object


# The classes whose `load` reads a bundle, and its files.
TRANSLATOR, CLASSIFIER = "Translator", "TextClassifier"
FILES = {
    TRANSLATOR: (CONFIG, WEIGHTS_FILE, SOURCE_TOKENIZER, TARGET_TOKENIZER),
    CLASSIFIER: (CONFIG, WEIGHTS_FILE, SOURCE_TOKENIZER, LABELS),
}


class SavedAsBundle(ABC):
    """Base of models with tokenizers that are saved as a bundle."""

    model: keras.Model
    probes: list[str]
    origin: Json = MappingProxyType({})  # of an imported model: JSON values by name
    # The model's own defaults of search settings by name; a classifier has none.
    search: Json = MappingProxyType({})
    metrics: Json = MappingProxyType({})  # of a loaded model: metrics of its training run by name

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of confidences; a classifier has none."""
        return None

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a bundle. It contains only data: reading it runs no code.

        If the bundle is replaced meanwhile, the new one is read.

        Raises:
            ValueError: if files are missing, do not fit together, or belong to a bundle of another
                type.
        """
        return read_unchanged(path, lambda: cls._read_files(Path(path)))

    @classmethod
    @abstractmethod
    def _read_files(cls, folder: Path) -> Self:
        """Read the files of a bundle."""

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
        """Write the bundle atomically.

        LoRA is merged and int8 weights become float32, with a warning. A subclass is recorded in
        `model.json`; see `model_record.record_of`.

        Args:
            path: the folder. An existing folder is replaced after everything is written.
            history: the metrics that `model.fit` recorded, as lists by name.
            metrics: metrics of the finished model, by name.
            more: a function that writes further files into the new folder.

        Raises:
            ValueError: if the bundle would not load, or load as a model with other outputs.
        """
        record = record_of(self.model)
        if note := note_of_changes(self.model):
            warnings.warn(f"save: in the bundle, {note}.", stacklevel=2)
        with atomic_write(path) as folder:
            folder.mkdir()
            (folder / CONFIG).write_text(self.model.config.to_json(), encoding="utf-8")
            if record:
                write_json(folder / MODEL, record)
            write_probes(folder / PROBES, self.probes)
            records = {
                ORIGIN: dict(self.origin),
                SEARCH: dict(self.search),
                **calibration_metadata(self.calibration),
            }
            present = {name: record for name, record in records.items() if record}
            write_json(folder / HISTORY, history or {})
            write_json(folder / METRICS, {**present, **(metrics or {})})
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
        """Export a file or folder that maps texts to results without this package.

        Like `keras.Model.export`, it writes a single format. The export is compared with the model
        on the probes, and is written only if the results agree. `tfk_transformer.export` describes
        the formats, and writes several at once.

        Args:
            filepath: the path, which must not exist: a file such as `model.onnx` for the formats
                whose names begin with "onnx", a folder for the other formats.
            format: "tf_saved_model" or "onnx", as Keras names them, or "onnx_int8", "ctranslate2",
                "huggingface", "web" or "web_int8". A classifier has the first two. Default:
                "tf_saved_model".
            verbose: whether to print the path. Default: it is not printed.

        Returns:
            The parity figures: JSON values by name. They are also in the metadata of an ONNX file.

        Raises:
            ValueError: if the format is unknown or does not support the model's options, the path
                exists, or ONNX would need a second file for more than 2 GB of weights.
            ParityError: if the results differ from the model's.
        """
        # By name, since `export/` is the higher layer and imports this module.
        exporting = importlib.import_module("tfk_transformer.export.exporting")
        figures: Json = exporting.export_one(self, filepath, format, verbose)
        return figures


def write_probes(path: Path, probes: Sequence[str]) -> None:
    """Write one probe per line."""
    # A line break inside a probe becomes a blank, since tokenizers treat both alike.
    lines = [" ".join(re.split(r"[\r\n]", text)) for text in probes]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_probes(path: Path) -> list[str]:
    """Return the probes that `write_probes` wrote, or an empty list if the file is missing."""
    if not path.is_file():
        return []
    # Exports contain the probes, so a link could publish any file that the reader can read.
    folder = path.parent.resolve()
    store = folder.parent.parent / "blobs"  # of Hugging Face's cache: snapshots link to its files
    if path.resolve().parent not in (folder, store):
        raise ValueError(
            f"bundle: expected a file in the folder, got {path}, which is a link to "
            f"{path.resolve()}; replace the link with the file if you trust the bundle."
        )
    return read_small_text(path).split("\n")[:-1]


def read_metrics(folder: Path) -> Json:
    """Return the metrics of a bundle, by name; empty if the file is missing."""
    path = folder / METRICS
    return read_json_object(path) if path.is_file() else {}


def read_record(folder: Path, name: str) -> Json:
    """Return the JSON object `ORIGIN` or `SEARCH` of the metrics; empty if there is none."""
    record = read_metrics(folder).get(name)
    return record if isinstance(record, dict) else {}


def reader_of(path: str | PathLike[str]) -> str | None:
    """Return the class that reads a bundle; None if the folder has no configuration."""
    config = _read_config_file(Path(path))
    return _reader_for(config) if config else None


def _reader_for(config: ModelConfig) -> str:
    return CLASSIFIER if isinstance(config, ClassifierConfig) else TRANSLATOR


def read_config(folder: Path, reader: str) -> ModelConfig:
    """Check that a bundle has the files that a reader needs, and return its configuration."""
    config = _read_config_file(folder)
    if config and (other := _reader_for(config)) != reader:
        raise ValueError(
            f"bundle: expected a bundle that {reader} reads, got {folder}, which is for {other}; "
            f"open it with {other}.load."
        )
    missing = [name for name in FILES[reader] if not (folder / name).is_file()]
    if config is None or missing:
        raise ValueError(
            f"bundle: expected a folder that `train` or `{reader}.save` wrote, got {folder} "
            f"without {', '.join(missing)}."
        )
    if isinstance(config, ClassifierConfig) or config.source_language or config.target_language:
        return config
    # Bundles of imported models had the languages only in their origin.
    origin = read_record(folder, ORIGIN)
    languages = {name: origin[name] for name in LANGUAGE_OPTIONS if name in origin}
    return config.replace(**languages) if languages else config


def _read_config_file(folder: Path) -> ModelConfig | None:
    path = folder / CONFIG
    return config_from_json(read_small_file(path)) if path.is_file() else None


def read_model(folder: Path, reader: str) -> ConfiguredModel:
    """Return the float32 model of a bundle, whose files are checked by `read_config`."""
    check_process()
    return read_weights(read_config(folder, reader), folder / WEIGHTS_FILE)


def write_json(path: Path, content: Json | Sequence[Any]) -> None:
    """Write indented JSON with sorted keys, the form of every JSON file of a bundle."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def plain_copy(model: keras.Model) -> keras.Model:
    """Return a float32 model of the same class with the plain weights and without an optimizer."""
    check_remake(model)
    copy = remake(model)
    weights = plain_weights(model)
    for name, weight in copy.named_weights.items():
        weight.assign(weights[name])
    return copy


def is_plain(model: keras.Model) -> bool:
    """Return whether a model computes in float32, without LoRA and quantization."""
    return model.compute_dtype == "float32" and not changed_layers(model)
