"""`model.bin` of CTranslate2: named arrays, some of which are quantized.

The format is from `Model::load` in CTranslate2's src/models/model.cc and from
python/ctranslate2/specs/model_spec.py. All numbers are little-endian. A text has a length of two
bytes, which counts a zero byte at its end.
"""

import math
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.hugging_face.model_folder import Arrays

VERSIONS = range(2, 7)
MAX_ARRAYS = 10_000  # a model of 100 layers has 4,000
DTYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # by type number
OLD_DTYPES = {4: "float32", 2: "int16", 1: "int8"}  # by item size, before version 4
QUANTIZED = ("int8", "int16")
SCALE = "_scale"  # suffix of the array with which a quantized array was multiplied
OLD_INT16_SCALE = np.float32(1000)  # of the first versions, which did not store it


class Variable(NamedTuple):
    """An array in a file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int  # of its first byte


class BinaryFile(NamedTuple):
    """The header of a file: the specification of the model, and its arrays by name."""

    path: Path
    spec: str  # the name of the class of models
    revision: int  # of the names of this class
    variables: dict[str, Variable]

    def number(self, name: str, default: float) -> float:
        """Return the value of a scalar, or a default if the file does not have it.

        Raises:
            ValueError: if the array is not a finite scalar.
        """
        if name not in self.variables:
            return default
        values = self._values(name)
        if values.shape or not np.isfinite(values):
            raise load_error(
                self.path, f"expected a finite number as '{name}', got the shape {values.shape}"
            )
        return float(values)

    def text(self, name: str, default: str) -> str:
        """Return a text, whose bytes are an array, or a default if the file does not have it."""
        if name not in self.variables or self.variables[name].dtype != "int8":
            return default
        return self._values(name).astype("int8").tobytes().decode(errors="replace")

    def arrays(self) -> Arrays:
        """Return all arrays other than scalars and scales. Quantized arrays are dequantized."""
        shapes = {
            name: variable.shape
            for name, variable in self.variables.items()
            if variable.shape and not name.endswith(SCALE)
        }
        return Arrays(self.path, shapes, self._read)

    def _values(self, name: str) -> np.ndarray:
        """Return an array as float32, without dequantization."""
        dtype, shape, offset = self.variables[name]
        stored = np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")
        count = math.prod(shape)
        values = np.fromfile(self.path, stored, count, offset=offset).reshape(shape)
        if dtype == "bfloat16":  # the upper half of a float32
            return (values.astype("uint32") << 16).view("float32")
        return values.astype("float32", copy=False)

    def _read(self, name: str) -> np.ndarray:
        dtype, shape, _ = self.variables[name]
        if dtype == "int32":
            raise load_error(self.path, f"expected an array of floats as '{name}', got int32")
        values = self._values(name)
        return values * self._factors(name, dtype, shape) if dtype in QUANTIZED else values

    def _factors(self, name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return the factor of a quantized array (), or the factors of its rows (R, 1, …).

        Raises:
            ValueError: if the scale is missing, of another shape, or not a positive number.
        """
        scale_name = name + SCALE
        if scale_name not in self.variables and dtype == "int16":
            return np.asarray(np.float32(1) / OLD_INT16_SCALE)
        if scale_name not in self.variables:
            raise load_error(self.path, f"expected the scale of '{name}' as '{scale_name}'")
        scale = self._values(scale_name)
        if scale.shape not in ((), (1,), shape[:1]) or not (np.isfinite(scale) & (scale > 0)).all():
            raise load_error(
                self.path,
                f"expected a positive scale for each of the {shape[0]:,} rows as '{scale_name}', "
                f"got the shape {scale.shape} or another value",
            )
        factors = np.float32(1) / scale
        return factors.reshape(-1, *[1] * (len(shape) - 1)) if scale.size > 1 else factors


class _HeaderReader:
    """Reads the parts of a header, each of which must lie within the file."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path = path
        self.file = file
        self.size = os.fstat(file.fileno()).st_size

    def number(self, size: int) -> int:
        """Return the unsigned integer in the next bytes."""
        return int.from_bytes(self._take(size), "little")

    def text(self) -> str:
        """Return the next text."""
        length = self.number(2)
        return self._take(length)[:-1].decode(errors="replace")

    def variable(self, version: int) -> tuple[str, Variable]:
        """Return the next array and its name; its values are not read."""
        name = self.text()
        shape = tuple(self.number(4) for _ in range(self.number(1)))
        number = self.number(1)
        dtypes = dict(enumerate(DTYPES)) if version >= 4 else OLD_DTYPES
        if number not in dtypes:
            raise load_error(self.path, f"'{shorten(name)}' has the unknown type {number}")
        dtype = dtypes[number]
        width = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        size = self.number(4) * (1 if version >= 4 else width)
        offset = self.file.tell()
        if size != math.prod(shape) * width or offset + size > self.size:
            raise load_error(
                self.path,
                f"expected {math.prod(shape) * width:,} bytes for '{shorten(name)}' of shape "
                f"{shorten(str(shape))}, got {size:,}, with {self.size - offset:,} bytes left",
            )
        self.file.seek(size, os.SEEK_CUR)
        return name, Variable(dtype, shape, offset)

    def count(self, items: str) -> int:
        """Return the number of items that follow.

        Raises:
            ValueError: if there are more than any model has.
        """
        count = self.number(4)
        if count > MAX_ARRAYS:
            raise load_error(self.path, f"expected at most {MAX_ARRAYS:,} {items}, got {count:,}")
        return count

    def _take(self, size: int) -> bytes:
        content = self.file.read(size)
        if len(content) < size:
            raise load_error(self.path, f"it breaks off at byte {self.size:,}")
        return content


def open_binary(path: Path) -> BinaryFile:
    """Read the header of a file. The values of arrays are not read.

    Raises:
        ValueError: if the file breaks off, is of another version, or is not such a file.
        OSError: if the file cannot be read.
    """
    with path.open("rb") as file:
        reader = _HeaderReader(path, file)
        if (version := reader.number(4)) not in VERSIONS:
            raise load_error(
                path,
                f"expected binary version {VERSIONS[0]} to {VERSIONS[-1]}, got {version:,}; check "
                "that it is a file of CTranslate2, or convert the model again",
            )
        spec = reader.text()
        revision = reader.number(4)
        variables = dict(reader.variable(version) for _ in range(reader.count("arrays")))
        aliases = {}
        for _ in range(reader.count("aliases") if version >= 3 else 0):
            alias = reader.text()
            aliases[alias] = reader.text()
    if missing := [name for name in aliases.values() if name not in variables]:
        raise load_error(
            path, f"expected an array '{shorten(missing[0])}', of which another is one"
        )
    for alias, name in aliases.items():
        for suffix in ("", SCALE):
            if name + suffix in variables:
                variables.setdefault(alias + suffix, variables[name + suffix])
    return BinaryFile(path, spec, revision, variables)


def load_error(path: Path, reason: Any) -> ValueError:
    """Return the error for a file that cannot be read."""
    return ValueError(f"CTranslate2: {path} does not load: {reason}.")
