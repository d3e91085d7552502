"""The formats of an export, and checks of its arguments.

This module loads neither TensorFlow nor Keras.
"""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from tfk_transformer.config.words import unknown_names
from tfk_transformer.export import file_names
from tfk_transformer.runtime_environment import with_install_line

TRANSLATOR_FORMATS = (
    "saved_model",
    "onnx",
    "onnx_steps",
    "onnx_int8",
    "ctranslate2",
    "huggingface",
    "web",
    "web_int8",
)
WEB_FORMATS = ("web", "web_int8")  # need npm packages
APPROXIMATE_FORMATS = ("onnx_int8", "web_int8")  # ids may differ from the Keras model's
DEFAULT_TRANSLATOR_FORMATS = ("saved_model", "onnx", "onnx_steps")
SHORTLIST_FORMATS = ("onnx", "onnx_int8", "ctranslate2", *WEB_FORMATS)  # can have a shortlist
CLASSIFIER_FORMATS = ("saved_model", "onnx")

# The formats of the method `export`, the first two of which Keras has too: our format, and the file
# or folder of it that becomes the result.
KERAS_TRANSLATOR_FORMATS = {
    "tf_saved_model": ("saved_model", file_names.SAVED_MODEL_FOLDER),
    "onnx": ("onnx", file_names.TRANSLATE_FILE),
    "onnx_int8": ("onnx_int8", file_names.with_profile(file_names.TRANSLATE_FILE, "int8")),
    "ctranslate2": ("ctranslate2", file_names.CTRANSLATE2_FOLDER),
    "huggingface": ("huggingface", file_names.HUGGINGFACE_FOLDER),
    "web": ("web", file_names.WEB_FOLDER),
    "web_int8": ("web_int8", file_names.WEB_INT8_FOLDER),
}
KERAS_CLASSIFIER_FORMATS = {
    "tf_saved_model": ("saved_model", file_names.SAVED_MODEL_FOLDER),
    "onnx": ("onnx", file_names.CLASSIFY_FILE),
}


def check_formats(
    formats: Sequence[str] | None, supported: Sequence[str] = TRANSLATOR_FORMATS
) -> None:
    """Check the names of formats.

    Args:
        formats: the requested formats; None for the default formats.
        supported: the formats of the model: `TRANSLATOR_FORMATS` or `CLASSIFIER_FORMATS`.

    Raises:
        ValueError: if `formats` is a string, is empty or has an unknown name.
        ImportError: if a format needs a package that is not installed.
    """
    if isinstance(formats, str):
        raise ValueError(
            f"formats: expected a list of names, got the string {formats!r}; write [{formats!r}]."
        )
    unknown = sorted(set(formats or ()) - set(supported))
    if unknown or (formats is not None and not formats):
        raise ValueError(unknown_names("formats", unknown, supported))
    check_packages(formats or ())


def check_shortlist(formats: Sequence[str] | None, architecture: str) -> None:
    """Check that a model, and the files of the requested formats, can have a shortlist.

    Args:
        formats: the requested formats; None for `SHORTLIST_FORMATS[:1]`.
        architecture: the architecture of the model.

    Raises:
        ValueError: if the model or one of the formats cannot have a shortlist.
    """
    if architecture not in ("encoder_decoder", "ensemble"):
        raise ValueError(
            "shortlist: expected a model that translates, got one of architecture "
            f"'{architecture}'; export without it."
        )
    if unsupported := [name for name in formats or () if name not in SHORTLIST_FORMATS]:
        raise ValueError(
            f"formats: expected {', '.join(SHORTLIST_FORMATS)} with a shortlist, got "
            f"{', '.join(unsupported)}; export these without it, into another folder."
        )


def check_packages(formats: Sequence[str]) -> None:
    """Check that the packages of formats are installed that the extra `tensorflow` lacks.

    Raises:
        ImportError: with the line that installs the missing package.
    """
    if "ctranslate2" in formats and importlib.util.find_spec("ctranslate2") is None:
        raise with_install_line(ModuleNotFoundError(name="ctranslate2"))


def check_out(out: str | os.PathLike[str], argument: str = "out", what: str = "folder") -> None:
    """Check that a new folder or file can be made at a path.

    Missing parent folders are made later.

    Args:
        out: the path.
        argument: the name of the argument, for errors.
        what: "folder" or "file", for errors.

    Raises:
        ValueError: if `out` exists, or if it cannot be written.
    """
    if Path(out).exists():
        raise ValueError(
            f"{argument}: expected a new {what}, got {out}, which exists; choose another name or "
            "remove it."
        )
    check_writable(out, argument)


def check_writable(path: str | os.PathLike[str], argument: str) -> None:
    """Check that files can be written into a folder, or that the folder can be made.

    Args:
        path: the path of the folder.
        argument: the name of the argument, for errors.

    Raises:
        ValueError: if a part of the path is a file, or is not writable.
    """
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
