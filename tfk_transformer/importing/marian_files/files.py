"""Marian's files of named arrays: NumPy archives (.npz), and .bin files, which may be quantized.

The header of a .bin file has a version, the number of arrays, four sizes for each array (of its
name, type, shape and data), the names, the shapes, and the number of bytes before the data. All
numbers are little-endian.
"""

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.arrays import (
    MAX_ARRAYS,
    Arrays,
    HeaderReader,
    StoredArray,
    check_float,
    first_line,
)
from tfk_transformer.importing.model_paths import MARIAN_VERSION, NPZ

OPTIONS = "special:model.yml"  # the array of the options
NPY = ".npy"  # of each array in an archive
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
FACTOR_BYTES = 4  # of the float32 that follows the integers of a quantized array
MIN_FACTOR = 1e-30  # with a smaller one, products of float32 overflow
TABLE = "Wemb"  # part of the names of tables, the only quantized arrays that are not transposed


@contextlib.contextmanager
def open_file(path: Path) -> Iterator[Arrays]:
    """Open a file. Shapes are read on opening, and arrays one by one."""
    if path.suffix != NPZ:
        yield open_binary(path)
        return
    with contextlib.ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
            shapes = dict(_npy_headers(archive))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise load_error(path, error) from None

        def read(name: str) -> np.ndarray:
            try:
                with archive.open(f"{name}{NPY}") as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
            except (zipfile.BadZipFile, ValueError, KeyError, OSError, EOFError) as error:
                raise load_error(path, error) from None
            if name != OPTIONS:
                check_float(path, name, str(array.dtype))
            return array.astype("float32")

        yield Arrays(path, shapes, read)


def _npy_headers(archive: zipfile.ZipFile) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and the shape of each array."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if (count := len(archive.namelist())) > MAX_ARRAYS:
        raise ValueError(f"expected at most {MAX_ARRAYS:,} arrays, got {count:,}")
    for name in archive.namelist():
        with archive.open(name) as file:
            version = np.lib.format.read_magic(file)
            if version not in readers:
                raise ValueError(
                    f"expected arrays of version 1.0 or 2.0, got {version} for '{name}'"
                )
            yield name.removesuffix(NPY), readers[version](file)[0]


def open_binary(path: Path) -> Arrays:
    """Read the header of a .bin file. Arrays are read and dequantized one by one."""
    try:
        with path.open("rb") as file:
            items = _binary_items(HeaderReader(path, file, load_error))
    except OSError as error:
        raise load_error(path, error) from None
    shapes = {name: item.shape for name, (item, _) in items.items()}
    return Arrays(path, shapes, lambda name: _read_binary(path, name, *items[name]))


def _binary_items(reader: HeaderReader) -> dict[str, tuple[StoredArray, bool]]:
    """Return the arrays by name, and whether they are quantized."""
    if (version := reader.number(8)) != MARIAN_VERSION:
        reader.refuse(
            f"expected version {MARIAN_VERSION} of Marian's binary format, got {version:,}; "
            "check that it is a file of Marian that is not encrypted"
        )
    count = reader.count(8)
    sizes = [tuple(reader.number(8) for _ in range(4)) for _ in range(count)]
    names = [reader.take(size[0]).rstrip(b"\0").decode(errors="replace") for size in sizes]
    shapes = []
    for name, (_, _, rank, _) in zip(names, sizes, strict=True):
        if not 1 <= rank <= MAX_RANK:
            reader.refuse(f"expected 1 to {MAX_RANK} axes for '{shorten(name)}', got {rank:,}")
        shapes.append(tuple(reader.number(4) for _ in range(rank)))
    offset = reader.number(8)
    offset += reader.file.tell()
    items = {}
    for name, shape, (_, number, _, size) in zip(names, shapes, sizes, strict=True):
        items[name] = _binary_item(reader, name, number, shape, offset, size)
        offset += size
    if len(items) < count:
        reader.refuse(f"{count - len(items):,} names appear twice")
    return items


def _binary_item(
    reader: HeaderReader, name: str, number: int, shape: tuple[int, ...], offset: int, size: int
) -> tuple[StoredArray, bool]:
    quantized = number in QUANTIZED_TYPES
    dtype = {**PLAIN_TYPES, **QUANTIZED_TYPES}.get(number)
    if dtype is None:
        reader.refuse(
            f"expected float32, float16, intgemm8 or intgemm16, got "
            f"{PACKED_TYPES.get(number, f'type {number:#x}')} for '{shorten(name)}'; use the "
            ".npz file, or convert it with marian-conv --gemm-type float32"
        )
    item = StoredArray(dtype, shape, offset)
    needed = item.size + quantized * FACTOR_BYTES
    if not needed <= size <= reader.size - offset:
        reader.refuse_size(name, item, needed, size)
    return item, quantized


def _read_binary(path: Path, name: str, item: StoredArray, quantized: bool) -> np.ndarray:
    """Return an array as float32."""
    values = item.read(path)
    if not quantized:
        return values
    # The integers are the products of the array and this factor.
    factor = StoredArray("float32", (1,), item.offset + item.size).read(path)[0]
    if not MIN_FACTOR < factor < np.inf:
        raise load_error(
            path,
            f"expected a positive factor for '{shorten(name)}', got {factor}; convert it again",
        )
    values *= np.float32(1) / factor
    if TABLE in name:
        return values
    return values.reshape(item.shape[-1], -1).T.reshape(item.shape)


def load_error(path: Path, error: Exception | str) -> ValueError:
    """Return the error for a file that cannot be read."""
    return ValueError(f"Marian: {path} does not load: {first_line(error)}")
