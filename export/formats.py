"""The formats of an export, and checks of its arguments, without TensorFlow and Keras."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfk_transformer.atomic_write import check_new
from tfk_transformer.config.words import unknown_names
from tfk_transformer.export import file_names
from tfk_transformer.runtime_environment import check_tensorflow_text, with_install_line

# The file or folder of each format that opens as a translator, and as a classifier. "": several
# files that are used together.
RESULTS = {
    "saved_model": file_names.SAVED_MODEL_FOLDER,
    "onnx": file_names.TRANSLATE_FILE,
    "onnx_steps": "",
    "onnx_int8": file_names.TRANSLATE_INT8_FILE,
    "ctranslate2": file_names.CTRANSLATE2_FOLDER,
    "huggingface": file_names.HUGGINGFACE_FOLDER,
    "web": file_names.WEB_FOLDER,
    "web_int8": file_names.WEB_INT8_FOLDER,
}
CLASSIFIER_RESULTS = {
    "saved_model": file_names.SAVED_MODEL_FOLDER,
    "onnx": file_names.CLASSIFY_FILE,
}
# Web folders need npm packages, and are made from the files of another format.
WEB_SOURCES = {"web": "onnx", "web_int8": "onnx_int8"}

TRANSLATOR_FORMATS = tuple(RESULTS)
CLASSIFIER_FORMATS = tuple(CLASSIFIER_RESULTS)
DEFAULT_TRANSLATOR_FORMATS = ("saved_model", "onnx", "onnx_steps")
SHORTLIST_FORMATS = ("onnx", "onnx_int8", "ctranslate2", "web", "web_int8")
INT8_FORMATS = ("onnx_int8", "web_int8")  # translations may differ from the Keras model's
LIBRARY_FORMATS = ("ctranslate2", "huggingface")
# The files compute what the Keras model computes, whatever its layers are.
OWN_LAYER_FORMATS = ("saved_model", "onnx", "onnx_steps", "web")


def keras_formats(is_classifier: bool) -> dict[str, tuple[str, str]]:
    """Return the formats of the method `export`: Keras's name -> the name here, and the result."""
    results = CLASSIFIER_RESULTS if is_classifier else RESULTS
    names = {name: "tf_saved_model" if name == "saved_model" else name for name in results}
    return {names[name]: (name, result) for name, result in results.items() if result}


def load_writer(name: str, is_classifier: bool = False) -> Callable[..., dict[str, Any]]:
    """Return the writer of a format that is not a web folder."""
    home = "library_files" if name in LIBRARY_FORMATS else "model_files"
    module = importlib.import_module(f"tfk_transformer.export.{home}")
    return getattr(module, f"export_classifier_{name}" if is_classifier else f"export_{name}")


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
    """Refuse an architecture and formats without shortlists; None is `SHORTLIST_FORMATS[:1]`."""
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
    """Refuse formats that have only this package's layers, and ONNX formats without tf2onnx."""
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
    check_new(out, argument, what)
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
