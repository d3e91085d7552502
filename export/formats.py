"""The formats of an export, and checks of its arguments.

This module loads neither TensorFlow nor Keras.
"""

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfk_transformer.config.words import unknown_names
from tfk_transformer.export import file_names
from tfk_transformer.runtime_environment import check_tensorflow_text, with_install_line


class Format(NamedTuple):
    """An export format. A new format needs a record in `FORMATS` and a writer."""

    name: str
    # The file or folder to open as a translator, and the one to open as a classifier. "": none, or
    # several files that are used together.
    result: str
    classifier_result: str = ""
    # MODULE:FUNCTION in this package; see `load_writer`. A web folder has no writer: it is made
    # from the files of the format `web_source`.
    writer: str = ""
    web_source: str = ""
    takes_shortlist: bool = False

    @property
    def classifier_writer(self) -> str:
        """The writer for classifiers, in the form of `writer`."""
        if not self.classifier_result:
            return ""
        return self.writer.replace(":export_", ":export_classifier_")

    @property
    def has_int8_weights(self) -> bool:
        """Whether translations may differ from the Keras model's."""
        return self.name.endswith("_int8")

    @property
    def is_exact(self) -> bool:
        """Whether the files compute what the Keras model computes, whatever its layers are.

        Files with 8-bit weights and folders of other libraries have only this package's layers.
        """
        return not (self.has_int8_weights or self.writer.startswith("library_files:"))


FORMATS = (
    Format(
        "saved_model",
        file_names.SAVED_MODEL_FOLDER,
        file_names.SAVED_MODEL_FOLDER,
        "model_files:export_saved_model",
    ),
    Format(
        "onnx",
        file_names.TRANSLATE_FILE,
        file_names.CLASSIFY_FILE,
        "model_files:export_onnx",
        takes_shortlist=True,
    ),
    Format("onnx_steps", "", writer="model_files:export_onnx_steps"),
    Format(
        "onnx_int8",
        file_names.with_profile(file_names.TRANSLATE_FILE, "int8"),
        writer="model_files:export_onnx_int8",
        takes_shortlist=True,
    ),
    Format(
        "ctranslate2",
        file_names.CTRANSLATE2_FOLDER,
        writer="library_files:export_ctranslate2",
        takes_shortlist=True,
    ),
    Format("huggingface", file_names.HUGGINGFACE_FOLDER, writer="library_files:export_huggingface"),
    Format("web", file_names.WEB_FOLDER, web_source="onnx", takes_shortlist=True),
    Format("web_int8", file_names.WEB_INT8_FOLDER, web_source="onnx_int8", takes_shortlist=True),
)
FORMAT_BY_NAME = {format.name: format for format in FORMATS}

TRANSLATOR_FORMATS = tuple(FORMAT_BY_NAME)
CLASSIFIER_FORMATS = tuple(format.name for format in FORMATS if format.classifier_writer)
DEFAULT_TRANSLATOR_FORMATS = ("saved_model", "onnx", "onnx_steps")
SHORTLIST_FORMATS = tuple(format.name for format in FORMATS if format.takes_shortlist)
OWN_LAYER_FORMATS = tuple(format.name for format in FORMATS if format.is_exact)
INT8_FORMATS = tuple(format.name for format in FORMATS if format.has_int8_weights)
WEB_FORMATS = tuple(format.name for format in FORMATS if format.web_source)  # need npm packages

# The formats of the method `export`. Keys are the names that Keras uses; values are the name of the
# format here, and the file or folder of the format that becomes the result.
KERAS_NAMES = {"saved_model": "tf_saved_model"}
KERAS_TRANSLATOR_FORMATS = {
    KERAS_NAMES.get(format.name, format.name): (format.name, format.result)
    for format in FORMATS
    if format.result
}
KERAS_CLASSIFIER_FORMATS = {
    KERAS_NAMES.get(format.name, format.name): (format.name, format.classifier_result)
    for format in FORMATS
    if format.classifier_result
}


def load_writer(writer: str) -> Callable[..., dict[str, Any]]:
    """Return the function of a `Format.writer`; see `model_files`."""
    module, function = writer.split(":")
    return getattr(importlib.import_module(f"tfk_transformer.export.{module}"), function)


def check_formats(
    formats: Sequence[str] | None, supported: Sequence[str] = TRANSLATOR_FORMATS
) -> None:
    """Refuse a string, an empty list and unknown names; None stands for the default formats."""
    if isinstance(formats, str):
        raise ValueError(
            f"formats: expected a list of names, got the string {formats!r}; write [{formats!r}]."
        )
    unknown = sorted(set(formats or ()) - set(supported))
    if unknown or (formats is not None and not formats):
        raise ValueError(unknown_names("formats", unknown, supported))


def check_shortlist(formats: Sequence[str] | None, architecture: str) -> None:
    """Refuse a model of an architecture without shortlists, and formats without them.

    None stands for `SHORTLIST_FORMATS[:1]`.
    """
    if architecture not in ("encoder_decoder", "ensemble"):
        raise ValueError(
            "shortlist: expected a model that translates, got architecture "
            f"'{architecture}'; export without it."
        )
    if unsupported := [name for name in formats or () if name not in SHORTLIST_FORMATS]:
        raise ValueError(
            f"formats: expected {', '.join(SHORTLIST_FORMATS)} with a shortlist, got "
            f"{', '.join(unsupported)}; export these without a shortlist, into another folder."
        )


def check_own_layers(formats: Sequence[str], difference: str) -> None:
    """Refuse formats that have only this package's own layers, for a model with other layers.

    `difference` is a result of `reproduction.difference.difference_from`. tf2onnx, which converts
    other layers, must be installed.
    """
    if unsupported := [name for name in formats if name not in OWN_LAYER_FORMATS]:
        raise ValueError(
            f"formats: expected {', '.join(OWN_LAYER_FORMATS)} for a model with layers of its own, "
            f"got {', '.join(unsupported)}, whose files contain the library's own layers; the "
            f"model differs: {difference}. Nothing was written."
        )
    if set(formats) - {"saved_model"} and importlib.util.find_spec("tf2onnx") is None:
        raise with_install_line(ModuleNotFoundError(name="tf2onnx"))


def check_packages(formats: Sequence[str]) -> None:
    """Check that the packages of formats that the extra `tensorflow` may lack are installed."""
    if "saved_model" in formats:
        check_tensorflow_text()
    if "ctranslate2" in formats and importlib.util.find_spec("ctranslate2") is None:
        raise with_install_line(ModuleNotFoundError(name="ctranslate2"))


def check_out(out: str | os.PathLike[str], argument: str = "out", what: str = "folder") -> None:
    """Check that a new folder or file can be made at a path. Missing parents are made later."""
    if os.path.lexists(out):
        raise ValueError(
            f"{argument}: expected a new {what}, got {out}, which exists; choose another name or "
            "remove it."
        )
    check_writable(out, argument)


def check_writable(path: str | os.PathLike[str], argument: str) -> None:
    """Check that files can be written into a folder, or that the folder can be made."""
    absolute = Path(path).absolute()
    existing = next(folder for folder in (absolute, *absolute.parents) if folder.exists())
    if not existing.is_dir():
        raise ValueError(
            f"{argument}: expected a path inside a folder, got {path}, but {existing} is a file; "
            "choose another path."
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(
            f"{argument}: expected a path in a writable folder, got {path}, but {existing} is not "
            "writable; choose another path."
        )
