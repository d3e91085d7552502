"""Marian's .bin files: named arrays, some of which are quantized.

The header has a version, the number of arrays, four sizes for each array (of its name, type, shape
and data), the names, the shapes, and the number of bytes before the data. All numbers are
little-endian.
"""

import math
import os
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.hugging_face.model_folder import Arrays
from tfk_transformer.importing.hugging_face.path_problems import MARIAN_VERSION
from tfk_transformer.importing.marian_files.options import MAX_ARRAYS, load_error

MAX_RANK = 8  # of an array; those of Marian have at most 4 axes
# By type number; int8 is the type of the options.
PLAIN_TYPES = {0x101: "int8", 0x402: "float16", 0x404: "float32"}
# The second number is of Marian's fork for Firefox.
QUANTIZED_TYPES = {0x10001: "int8", 0x4101: "int8", 0x10002: "int16", 0x4102: "int16"}
# Types whose layout depends on a processor and a library.
PACKED_TYPES = {
    0x802: "packed16",
    0x1801: "packed8avx2",
    0x2801: "packed8avx512",
    0x18001: "intgemm8ssse3",
    0x11001: "intgemm8avx2",
    0x12001: "intgemm8avx512",
    0x13001: "intgemm8avx512vnni",
    0x14002: "intgemm16sse2",
    0x11002: "intgemm16avx2",
    0x12002: "intgemm16avx512",
}
FACTOR = np.dtype("<f4")  # follows the integers of a quantized array
MIN_FACTOR = 1e-30  # with a smaller one, products of float32 overflow
TABLE = "Wemb"  # part of the names of tables, the only quantized arrays that are not transposed


class StoredArray(NamedTuple):
    """An array in a file."""

    dtype: str
    quantized: bool
    shape: tuple[int, ...]
    offset: int  # of its first byte


def open_binary(path: Path) -> Arrays:
    """Read the header of a file. Arrays are read and dequantized one by one.

    Raises:
        ValueError: if the file breaks off, is of another version, has other sizes than it states,
            or arrays of unsupported types.
    """
    try:
        with path.open("rb") as file:
            items = _MarianHeader(path, file).items()
    except OSError as error:
        raise load_error(path, error) from None
    shapes = {name: item.shape for name, item in items.items()}
    return Arrays(path, shapes, lambda name: _read(path, name, items[name]))


def _read(path: Path, name: str, item: StoredArray) -> np.ndarray:
    """Return an array as float32."""
    count = math.prod(item.shape)
    stored = np.dtype(item.dtype).newbyteorder("<")
    values = np.fromfile(path, stored, count, offset=item.offset).astype("float32")
    if not item.quantized:
        return values.reshape(item.shape)
    # The integers are the products of the array and this factor.
    factor = np.fromfile(path, FACTOR, 1, offset=item.offset + count * stored.itemsize)[0]
    if not MIN_FACTOR < factor < np.inf:
        raise load_error(
            path,
            f"expected a positive factor for '{shorten(name)}', got {factor}; convert it again",
        )
    values *= np.float32(1) / factor
    if TABLE in name:
        return values.reshape(item.shape)
    return values.reshape(item.shape[-1], -1).T.reshape(item.shape)


class _MarianHeader:
    """Reads the parts of a header, each of which must lie within the file."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path = path
        self.file = file
        self.size = os.fstat(file.fileno()).st_size

    def items(self) -> dict[str, StoredArray]:
        """Return the arrays by name."""
        if (version := self._number(8)) != MARIAN_VERSION:
            raise load_error(
                self.path,
                f"expected version {MARIAN_VERSION} of Marian's binary format, got {version:,}; "
                "check that it is a file of Marian that is not encrypted",
            )
        if (count := self._number(8)) > MAX_ARRAYS:
            raise load_error(self.path, f"expected at most {MAX_ARRAYS:,} arrays, got {count:,}")
        sizes = [tuple(self._number(8) for _ in range(4)) for _ in range(count)]
        names = [self._take(size[0]).rstrip(b"\0").decode(errors="replace") for size in sizes]
        shapes = [self._shape(name, size[2]) for name, size in zip(names, sizes, strict=True)]
        offset = self._number(8)
        offset += self.file.tell()
        items = {}
        for name, shape, size in zip(names, shapes, sizes, strict=True):
            items[name] = self._item(name, size[1], shape, offset, size[3])
            offset += size[3]
        if len(items) < count:
            raise load_error(self.path, f"{count - len(items):,} names appear twice")
        return items

    def _item(
        self, name: str, number: int, shape: tuple[int, ...], offset: int, size: int
    ) -> StoredArray:
        quantized = number in QUANTIZED_TYPES
        dtype = {**PLAIN_TYPES, **QUANTIZED_TYPES}.get(number)
        if dtype is None:
            raise load_error(
                self.path,
                f"expected float32, float16, intgemm8 or intgemm16, got "
                f"{PACKED_TYPES.get(number, f'type {number:#x}')} for '{shorten(name)}'; use the "
                ".npz file, or convert it with marian-conv --gemm-type float32",
            )
        needed = math.prod(shape) * np.dtype(dtype).itemsize + quantized * FACTOR.itemsize
        if not needed <= size <= self.size - offset:
            raise load_error(
                self.path,
                f"expected {needed:,} bytes for '{shorten(name)}' of shape "
                f"{shorten(str(shape))}, got {size:,}, with {max(0, self.size - offset):,} bytes "
                "left",
            )
        return StoredArray(dtype, quantized, shape, offset)

    def _shape(self, name: str, rank: int) -> tuple[int, ...]:
        if not 1 <= rank <= MAX_RANK:
            raise load_error(
                self.path, f"expected 1 to {MAX_RANK} axes for '{shorten(name)}', got {rank:,}"
            )
        return tuple(self._number(4) for _ in range(rank))

    def _number(self, size: int) -> int:
        """Return the unsigned integer in the next bytes."""
        return int.from_bytes(self._take(size), "little")

    def _take(self, size: int) -> bytes:
        if size > self.size - self.file.tell():
            raise load_error(self.path, f"it breaks off at byte {self.size:,}")
        return self.file.read(size)
