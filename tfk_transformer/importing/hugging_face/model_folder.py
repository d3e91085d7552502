"""The files of a folder in Hugging Face's layout: JSON, and weights that are read without running
code.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors

from tfk_transformer.config.json_text import parsed_object
from tfk_transformer.importing.vocabulary import END, PAD, UNKNOWN

CONFIG, GENERATION, SAFETENSORS, PICKLE = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "pytorch_model.bin",
)
INDEX = ".index.json"  # after the name of a file of weights: which of several files has each array

Shapes = dict[str, tuple[int, ...]]


class Arrays(Protocol):
    """The arrays of a file of weights, by name."""

    path: Path
    shapes: Shapes

    def read(self, name: str) -> np.ndarray:
        """Return an array as float32."""


def check_model_files(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder without some files.

    Raises:
        ValueError: with the names of all that are missing.
    """
    missing = [name for name in names if not (folder / name).is_file()]
    if not _weights(folder).is_file():
        missing.append(f"{SAFETENSORS} (or {PICKLE})")
    if missing:
        got = (
            f"{folder} without {', '.join(missing)}"
            if folder.is_dir()
            else f"{folder}, which is no folder"
        )
        raise ValueError(f"folder: expected a model in Hugging Face's layout, got {got}.")


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; an empty one if there is no file.

    Raises:
        ValueError: if the file is not a JSON object.
    """
    return parsed_object(path.read_bytes(), str(path)) if path.is_file() else {}


def read_pieces(path: Path) -> dict[str, int]:
    """Return the rows of the pieces of a vocabulary file.

    Raises:
        ValueError: if it has no special tokens.
    """
    pieces = read_json(path)
    if missing := [name for name in (END, UNKNOWN, PAD) if name not in pieces]:
        raise ValueError(
            f"vocabulary: expected {END}, {UNKNOWN} and {PAD} in {path}, got none for "
            f"{', '.join(missing)}."
        )
    return pieces


def open_arrays(folder: Path) -> Arrays:
    """Open the weights of a folder: the safetensors file or files, or else those of PyTorch.

    Raises:
        ValueError: if a file is broken or missing.
        ImportError: if there are only PyTorch's files, and PyTorch is not installed.
    """
    path = _weights(folder)
    kind = SafetensorsFile if path.name.startswith(SAFETENSORS) else TorchFile
    return SeveralFiles(path, kind) if path.name.endswith(INDEX) else kind(path)


def _weights(folder: Path) -> Path:
    """Return the file of weights of a folder, or the index of several; if there is none, the path
    that is expected.
    """
    paths = [folder / f"{name}{suffix}" for name in (SAFETENSORS, PICKLE) for suffix in ("", INDEX)]
    return next((path for path in paths if path.is_file()), paths[0])


class SafetensorsFile:
    """A safetensors file. Arrays are read one by one.

    Raises:
        ValueError: if the file is broken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = safetensors.safe_open(path, framework="np")
            self.shapes: Shapes = {
                name: tuple(self._file.get_slice(name).get_shape()) for name in self._file.keys()
            }  # noqa: SIM118
        except (safetensors.SafetensorError, OSError) as error:
            raise _unreadable(path, error) from None

    def read(self, name: str) -> np.ndarray:
        """Return an array as float32."""
        try:
            return self._file.get_tensor(name).astype("float32")
        except (TypeError, ValueError) as error:  # of types that NumPy lacks
            raise _unreadable(self.path, error) from None


class TorchFile:
    """A file that `torch.save` wrote. PyTorch's restricted unpickler reads it, which makes tensors
    and runs no code of the file.

    Raises:
        ValueError: if the file is broken, or has more than tensors.
        ImportError: if PyTorch is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tensors = _torch_tensors(path)
        self.shapes: Shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def read(self, name: str) -> np.ndarray:
        """Return an array as float32."""
        return self._tensors[name].float().numpy()


class SeveralFiles:
    """Weights in several files of a folder, with an index that names the file of each array.

    Args:
        path: the index.
        kind: opens one of the files.

    Raises:
        ValueError: if the index or a file is broken, or does not have what the index names.
    """

    def __init__(self, path: Path, kind: Callable[[Path], Arrays]) -> None:
        self.path = path
        names = read_json(path).get("weight_map")
        if not isinstance(names, dict) or not all(
            isinstance(name, str) and Path(name).name == name for name in names.values()
        ):
            raise _unreadable(
                path,
                ValueError(
                    "expected the file of each array under weight_map, in the folder of this file"
                ),
            )
        if missing := sorted(
            {name for name in names.values() if not (path.parent / name).is_file()}
        ):
            raise _unreadable(
                path,
                ValueError(f"expected the files that it names, got none for {', '.join(missing)}"),
            )
        files = {name: kind(path.parent / name) for name in sorted(set(names.values()))}
        if absent := [array for array, name in names.items() if array not in files[name].shapes]:
            raise _unreadable(
                path,
                ValueError(
                    "expected the arrays that it names in their files, got none for "
                    f"{', '.join(absent[:5])}"
                ),
            )
        self._files = {array: files[name] for array, name in names.items()}
        self.shapes: Shapes = {array: file.shapes[array] for array, file in self._files.items()}

    def read(self, name: str) -> np.ndarray:
        """Return an array as float32."""
        return self._files[name].read(name)


def _torch_tensors(path: Path) -> Mapping[str, Any]:
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"torch is not installed, and {path} is a pickle, which only torch reads without "
            "running its code. Install it with: "
            f"pip install torch, or use a folder with {SAFETENSORS}."
        ) from None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's errors of broken files share no base but Exception
        raise _unreadable(path, error) from None
    if not isinstance(found, dict) or not all(
        isinstance(tensor, torch.Tensor) for tensor in found.values()
    ):
        raise _unreadable(path, ValueError("expected tensors by name"))
    return found


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"folder: the weights in {path} do not load: "
        f"{(str(error).splitlines() or [type(error).__name__])[0][:300]}"
    )


def one_of(arrays: Arrays, names: Iterable[str]) -> str:
    """Return the first name that the file has of those that a shared array may have; the first one
    if it has none.

    Raises:
        ValueError: if the arrays of two of these names differ.
    """
    names = list(names)
    there = [name for name in names if name in arrays.shapes]
    if not all(_equal(arrays, there[0], name) for name in there[1:]):
        raise ValueError(
            f"folder: expected one array under the names {', '.join(there)} in {arrays.path}, got "
            "several."
        )
    return there[0] if there else names[0]


def _equal(arrays: Arrays, one: str, other: str) -> bool:
    return arrays.shapes[one] == arrays.shapes[other] and np.array_equal(
        arrays.read(one), arrays.read(other)
    )
