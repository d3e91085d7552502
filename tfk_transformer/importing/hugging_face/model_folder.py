"""JSON files and weights of a folder in Hugging Face's layout. No code in the files is run."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfk_transformer.config import array_files, small_files
from tfk_transformer.config.words import shorten
from tfk_transformer.importing import model_paths
from tfk_transformer.importing.arrays import Arrays, check_float
from tfk_transformer.importing.vocabulary import END_PIECE, PAD_PIECE, UNKNOWN_PIECE

GENERATION = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SAFETENSORS = "model.safetensors"
PICKLE = "pytorch_model.bin"
MAX_NAME = 100  # characters of a file of sharded weights
INDEX = ".index.json"  # suffix of the file that maps arrays to files of sharded weights


def check_model_files(folder: Path, names: Collection[str]) -> None:
    """Refuse a folder without weights or without some other files."""
    model_paths.check_model_path(folder)
    missing = [name for name in names if not (folder / name).is_file()]
    weights = _weights_path(folder)
    if not weights.is_file():
        missing.append(f"{SAFETENSORS} (or {PICKLE})")
    if missing:
        raise ValueError(
            f"folder: expected a model in Hugging Face's layout, got {folder} without "
            f"{', '.join(missing)}{model_paths.folder_type(folder)}."
        )
    model_paths.check_no_pointers([weights, *(folder / name for name in names)])


def read_optional_json(path: Path, max_bytes: int = small_files.MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if the file does not exist."""
    return small_files.read_json_object(path, max_bytes) if path.is_file() else {}


def read_pieces(path: Path) -> dict[str, int]:
    """Return the row of each piece of a vocabulary file, which must have the special tokens."""
    pieces = read_optional_json(path, small_files.MAX_VOCABULARY_BYTES)
    if missing := [name for name in (END_PIECE, UNKNOWN_PIECE, PAD_PIECE) if name not in pieces]:
        raise ValueError(
            f"vocabulary: expected {END_PIECE}, {UNKNOWN_PIECE} and {PAD_PIECE} in {path}, got "
            f"none for {', '.join(missing)}."
        )
    return pieces


def open_arrays(folder: Path) -> Arrays:
    """Open the weights of a folder: the safetensors files, or else the files of PyTorch."""
    path = _weights_path(folder)
    open_file = _open_safetensors if path.name.startswith(SAFETENSORS) else open_pickle
    return _open_sharded(path, open_file) if path.name.endswith(INDEX) else open_file(path)


def _weights_path(folder: Path) -> Path:
    """Return the path of the weights or of their index; without weights, the preferred path."""
    names = (SAFETENSORS, SAFETENSORS + INDEX, PICKLE, PICKLE + INDEX)
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])


def _open_safetensors(path: Path) -> Arrays:
    with small_files.one_line_error(_do_not_load(path)):
        file, slices = array_files.open_safetensors(path)
    shapes = {name: tuple(array.get_shape()) for name, array in slices.items()}

    def read(name: str) -> np.ndarray:
        check_float(path, name, slices[name].get_dtype())
        return file.get_tensor(name).astype("float32")

    return Arrays(path, shapes, read)


def open_pickle(path: Path) -> Arrays:
    """Open a file of `torch.save`; see `read_pickle`."""
    try:
        import torch  # noqa: F401 (which `read_pickle` needs)
    except ImportError:
        raise ImportError(
            f"torch is not installed, and {path} is a pickle, which only torch reads without "
            "running its code. Install it with: "
            f"pip install torch, or use a folder with {SAFETENSORS}."
        ) from None
    with small_files.one_line_error(_do_not_load(path)):
        tensors = array_files.read_pickle(path)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def read(name: str) -> np.ndarray:
        check_float(path, name, str(tensors[name].dtype).removeprefix("torch."))
        return tensors[name].float().numpy()

    return Arrays(path, shapes, read)


def _open_sharded(path: Path, open_file: Callable[[Path], Arrays]) -> Arrays:
    """Open weights in several files of a folder, with an index that maps arrays to files."""
    names = read_optional_json(path).get("weight_map")
    start = _do_not_load(path)
    if not isinstance(names, dict) or not all(
        isinstance(name, str) and Path(name).name == name and len(name) <= MAX_NAME
        for name in names.values()
    ):
        raise ValueError(
            f"{start}expected the file of each array under weight_map, in the folder of this file"
        )
    shards = sorted(set(names.values()))
    content = "files that it names"
    missing = [name for name in shards if not (path.parent / name).is_file()]
    if not missing:
        files = {name: open_file(path.parent / name) for name in shards}
        content = "arrays that it names in their files"
        missing = [array for array, name in names.items() if array not in files[name].shapes]
    if missing:
        listed = ", ".join(map(shorten, missing[:3]))
        raise ValueError(f"{start}expected the {content}, got none for {listed}")
    shapes = {array: files[name].shapes[array] for array, name in names.items()}
    return Arrays(path, shapes, lambda array: files[names[array]].read(array))


def _do_not_load(path: Path) -> str:
    return f"folder: the weights in {path} do not load: "


def shared_array_name(arrays: Arrays, names: Sequence[str]) -> str:
    """Return the name of a shared array in the file. Arrays under its other names must be equal."""
    present = [name for name in names if name in arrays.shapes]
    for name in present[1:]:
        if not np.array_equal(arrays.read(present[0]), arrays.read(name)):
            raise ValueError(
                f"folder: expected one array under the names {', '.join(present)} in "
                f"{arrays.path}, got arrays that differ."
            )
    return present[0] if present else names[0]
