"""Folders for TensorFlow Serving: NAME/VERSION/saved_model.pb, and the server's configuration."""

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tfk_transformer.atomic_write import atomic_write, lock
from tfk_transformer.export.formats import check_writable

if TYPE_CHECKING:
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

SAVED_MODEL_FILE = "saved_model.pb"
MODELS_FILE = "models.config"
BATCHING_FILE = "batching_parameters.txt"
MOUNTED = "/models"  # path of the models in the server's image

BATCHING_PARAMETERS = """\
# How TensorFlow Serving joins requests into batches (--enable_batching).
# A batch uses all cores, so that a few batches at a time are enough. By default, num_batch_threads
# is the number of cores. The model takes batches of any size: allowed_batch_sizes would add
# padding.
max_batch_size { value: 32 }  # texts
batch_timeout_micros { value: 5000 }  # the longest time that a request waits for other requests
max_enqueued_batches { value: 100 }  # further requests are refused: UNAVAILABLE
"""


def write_serving(
    saved_model: str | os.PathLike[str],
    models: str | os.PathLike[str],
    name: str,
    version: int | None = None,
    mounted: str | os.PathLike[str] = MOUNTED,
) -> Path:
    """Add an exported SavedModel to a folder of TensorFlow Serving, as a version of a model.

    `models.config` and `batching_parameters.txt` are written if they are missing, and the model is
    added to `models.config` if it is not listed. Several calls at once add their models one after
    the other. The version's folder appears only when it is complete, so that a running server that
    watches `models` can load it.

    Args:
        saved_model: folder with saved_model.pb.
        models: folder of all models.
        name: name of the model, which is part of the URL.
        version: number of the version. Default: one more than the newest.
        mounted: path of `models` on the server.

    Returns:
        The new folder, MODELS/NAME/VERSION.
    """
    saved_model = Path(saved_model)
    models = Path(models)
    if not (saved_model / SAVED_MODEL_FILE).is_file():
        raise ValueError(f"saved_model: expected a folder with saved_model.pb, got {saved_model}.")
    # Others may add models to the folder at the same time, after an export of minutes.
    with lock(models, "models", waits=True):
        check_serving(models, name, version)
        if version is None:
            version = max(_versions(models / name), default=0) + 1
        folder = models / name / str(version)
        with atomic_write(folder) as new:
            shutil.copytree(saved_model, new)
        if not (models / BATCHING_FILE).exists():
            with atomic_write(models / BATCHING_FILE) as new:
                new.write_text(BATCHING_PARAMETERS, encoding="utf-8")
        _add_to_configuration(models / MODELS_FILE, name, f"{os.fspath(mounted)}/{name}")
    return folder


def check_serving(models: str | os.PathLike[str], name: str, version: int | None = None) -> None:
    """Check the arguments of `write_serving` before a SavedModel is exported."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"name: expected letters, digits, '_', '-' and '.', got '{name}'.")
    folder = Path(models) / name
    if version is not None and (version < 1 or (folder / str(version)).exists()):
        raise ValueError(
            f"version: expected a new number of at least 1, got {version}; {folder} has "
            f"{_versions(folder) or 'none'}."
        )
    check_writable(folder, "models")
    _read_configuration(Path(models) / MODELS_FILE)


def newest_version(folder: str | os.PathLike[str]) -> Path | None:
    """Return the SavedModel with the highest version in the folder of a model, or None."""
    versions = _versions(Path(folder))
    return Path(folder) / str(max(versions)) if versions else None


def _versions(folder: Path) -> list[int]:
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted(
        int(path.name)
        for path in paths
        if re.fullmatch("[1-9][0-9]*", path.name) and (path / SAVED_MODEL_FILE).is_file()
    )


def _add_to_configuration(file: Path, name: str, base_path: str) -> None:
    from google.protobuf import text_format

    config = _read_configuration(file)
    served = config.model_config_list.config
    if name not in [model.name for model in served]:
        served.add(name=name, base_path=base_path, model_platform="tensorflow")
        with atomic_write(file) as new:
            new.write_text(text_format.MessageToString(config), encoding="utf-8")


def _read_configuration(file: Path) -> "ModelServerConfig":
    from google.protobuf import text_format
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return text_format.Parse(text, ModelServerConfig())
    except text_format.ParseError as error:
        raise ValueError(
            f"models: expected a ModelServerConfig in {file}, got invalid text: {error}."
        ) from None
