"""Identify the model at a path: a bundle, exported files, or a model of another program.

This module loads neither TensorFlow nor Keras.
"""

from os import PathLike
from pathlib import Path

from tfk_transformer.config.small_files import read_json_object
from tfk_transformer.export import file_names
from tfk_transformer.export.to_saved_model.serving import newest_version

MODEL_PATHS = (
    "a bundle (with config.json), a SavedModel folder (with saved_model.pb) or an .onnx file"
)
LOADABLE = (
    file_names.SAVED_MODEL_FOLDER,
    file_names.TRANSLATE_FILE,
    file_names.with_profile(file_names.TRANSLATE_FILE, "int8"),
    file_names.CLASSIFY_FILE,
    file_names.SCORE_FILE,
)


def model_kind(path: Path) -> str:
    """Return the kind of the file or folder at a path.

    Returns:
        "ONNX", "SavedModel", "bundle", "web", "library" (a folder of another library that this
        project exported), "CTranslate2" or "Hugging Face" (folders that it did not export), or ""
        for any other path.
    """
    if path.suffix == ".onnx" or path.is_file():
        return "ONNX"
    if (path / "saved_model.pb").is_file():
        return "SavedModel"
    if (path / file_names.EXPORTED).is_file():
        return "library"
    if (path / file_names.PAGE_DESCRIPTION).is_file():
        return "web"
    if not (path / "config.json").is_file():
        return ""
    if (path / "model.bin").is_file():
        return "CTranslate2"
    return "Hugging Face" if _transformers_family(path) else "bundle"


def newest_model(path: str | PathLike[str]) -> Path:
    """Return the path of the newest version in a folder of versions, or `path` itself."""
    return newest_version(path) or Path(path)


def unexpected_path(argument: str, path: Path) -> ValueError:
    """Return the error for a path that is not the path of a model.

    Args:
        argument: the name of the argument, for the message.
        path: the path.
    """
    return ValueError(f"{argument}: expected {MODEL_PATHS}, got {_description(path)}.")


def _description(path: Path) -> str:
    kind = model_kind(path)
    if kind == "web":
        page = "a page for browsers and Node (docs/browser.md)"
        return f"{path}, {page}"
    if (path / "model.bin").is_file():
        return f"{path}, a folder of CTranslate2, which ctranslate2.Translator opens"
    if family := _transformers_family(path):
        return (
            f"{path}, a folder of transformers ({family}), which `tfk-transformer import` converts "
            "to a bundle"
        )
    if not path.is_dir():
        return f"{path}, which does not exist"
    if files := [str(path / name) for name in LOADABLE if (path / name).exists()]:
        return f"{path}, the folder of an export; name one of its files: {', '.join(files)}"
    return f"a folder without any of these files ({path})"


def _transformers_family(path: Path) -> str:
    """Return the `model_type` in the configuration of a folder, or "" without one."""
    try:
        config = read_json_object(path / "config.json")
    except (OSError, ValueError):
        return ""
    return str(config.get("model_type") or "")
