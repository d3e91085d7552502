"""Files of named arrays: their shapes are read first, and each array when it is needed."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn, TypeAlias

import numpy as np

from tfk_transformer.config.array_files import MAX_MEMBERS, Shape
from tfk_transformer.config.words import shorten

Shapes: TypeAlias = dict[str, Shape]

# The types of weights that are read: in safetensors files, and in NumPy and PyTorch.
FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class Arrays(NamedTuple):
    """The arrays of a file of weights."""

    path: Path
    shapes: Shapes  # by name
    read: Callable[[str], np.ndarray]  # returns the array of this name as float32


class StoredArray(NamedTuple):
    """An array in a binary file, whose numbers are little-endian."""

    dtype: str
    shape: tuple[int, ...]
    offset: int  # of its first byte

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return 2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.width

    def read(self, path: Path) -> np.ndarray:
        """Return the array as float32, without dequantization."""
        stored = np.dtype("uint16" if self.dtype == "bfloat16" else self.dtype).newbyteorder("<")
        values = np.fromfile(path, stored, math.prod(self.shape), offset=self.offset)
        values = values.reshape(self.shape)
        if self.dtype == "bfloat16":  # the upper half of a float32
            return (values.astype("uint32") << 16).view("float32")
        return values.astype("float32", copy=False)


class HeaderReader:
    """Reads the parts of a header, each of which must lie within the file."""

    def __init__(self, path: Path, file: BinaryIO, error: Callable[[Path, str], ValueError]):
        self.path = path
        self.file = file
        self.size = os.fstat(file.fileno()).st_size
        self.error = error

    def refuse(self, reason: str) -> NoReturn:
        """Raise the format's error for a file that cannot be read."""
        raise self.error(self.path, reason)

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if size > self.size - self.file.tell():
            self.refuse(f"it breaks off at byte {self.size:,}")
        return self.file.read(size)

    def number(self, size: int) -> int:
        """Return the unsigned integer in the next bytes."""
        return int.from_bytes(self.take(size), "little")

    def count(self, size: int, items: str = "arrays") -> int:
        """Return the number of items that follow, at most `MAX_MEMBERS`."""
        if (count := self.number(size)) > MAX_MEMBERS:
            self.refuse(f"expected at most {MAX_MEMBERS:,} {items}, got {count:,}")
        return count

    def refuse_size(self, name: str, array: StoredArray, needed: int, size: int) -> NoReturn:
        """Raise the error for an array of another size than its shape and type need."""
        self.refuse(
            f"expected {needed:,} bytes for '{shorten(name)}' of shape "
            f"{shorten(str(array.shape))}, got {size:,}, with "
            f"{max(0, self.size - array.offset):,} bytes left"
        )


def check_float(path: Path, name: str, dtype: str) -> None:
    """Refuse an array of integers or of 8-bit floats, whose scales are elsewhere."""
    if dtype not in {*FLOATS, *FLOATS.values()}:
        raise ValueError(
            f"folder: expected weights in float32, float16 or bfloat16 in {path}, got "
            f"{shorten(dtype)} for '{shorten(name)}'; use the original model, or dequantize it and "
            "save it in float32."
        )
