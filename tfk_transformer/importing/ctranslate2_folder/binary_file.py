"""`model.bin` of CTranslate2: named arrays, some of which are quantized.

The format is from `Model::load` in CTranslate2's src/models/model.cc and from
python/ctranslate2/specs/model_spec.py. All numbers are little-endian.
"""

import os
import re
from pathlib import Path
from typing import NoReturn

import numpy as np

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.arrays import HeaderReader, StoredArray

VERSIONS = range(1, 7)
# Version 1 has no specification, and the names of OpenNMT-tf. These patterns are replaced in this
# order, as in `map_v1_variable_name` of src/models/transformer.cc.
FIRST_SPEC = ("TransformerBase", 2)  # with the names below
FIRST_NAMES = {
    "transformer/": "",
    ":0": "",
    "w_embs": "embeddings/weight",
    "kernel": "weight",
    "LayerNorm": "layer_norm",
    "dense": "projection",
    "conv1d_": "linear_",
    "conv1d": "linear_0",
    "masked_multi_head": "self_attention",
    "(encoder.*)multi_head": r"\1self_attention",
    "multi_head": "attention",
}
DTYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # by type number
OLD_DTYPES = {4: "float32", 2: "int16", 1: "int8"}  # by item size, before version 4
QUANTIZED = ("int8", "int16")
SCALE = "_scale"  # suffix of the array with which a quantized array was multiplied
OLD_INT16_SCALE = np.float32(1000)  # of the first versions, which did not store it


class BinaryFile:
    """The header of a file: the specification of the model, and its arrays by name."""

    expectation = "CTranslate2: expected the arrays of the layers"  # in messages

    def __init__(self, path: Path, spec: str, revision: int, variables: dict[str, StoredArray]):
        self.path = path
        self.spec = spec  # the name of the class of models
        self.revision = revision  # of the names of this class
        self.variables = variables
        # Of all arrays other than scalars and scales.
        self.shapes = {
            name: variable.shape
            for name, variable in variables.items()
            if variable.shape and not name.endswith(SCALE)
        }

    def refuse(self, reason: str) -> NoReturn:
        """Raise the error for a file that cannot be read."""
        raise load_error(self.path, reason)

    def number(self, name: str, default: float) -> float:
        """Return the value of a scalar, or a default if the file does not have it."""
        if name not in self.variables:
            return default
        values = self.variables[name].read(self.path)
        if values.shape or not np.isfinite(values):
            self.refuse(f"expected a finite number as '{name}', got the shape {values.shape}")
        return float(values)

    def text(self, name: str, default: str) -> str:
        """Return a text, whose bytes are an array, or a default if the file does not have it."""
        if name not in self.variables or self.variables[name].dtype != "int8":
            return default
        content = self.variables[name].read(self.path).astype("int8").tobytes()
        return content.decode(errors="replace")

    def read(self, name: str) -> np.ndarray:
        """Return an array as float32, dequantized."""
        variable = self.variables[name]
        if variable.dtype == "int32":
            self.refuse(f"expected an array of floats as '{name}', got int32")
        values = variable.read(self.path)
        return values * self._factors(name) if variable.dtype in QUANTIZED else values

    def _factors(self, name: str) -> np.ndarray:
        """Return the factor of a quantized array (), or the factors of its rows (R, 1, …)."""
        dtype, shape, _ = self.variables[name]
        scale_name = name + SCALE
        if scale_name not in self.variables and dtype == "int16":
            return np.asarray(np.float32(1) / OLD_INT16_SCALE)
        if scale_name not in self.variables:
            self.refuse(f"expected the scale of '{name}' as '{scale_name}'")
        scale = self.variables[scale_name].read(self.path)
        if scale.shape not in ((), (1,), shape[:1]) or not (np.isfinite(scale) & (scale > 0)).all():
            self.refuse(
                f"expected a positive scale for each of the {shape[0]:,} rows as '{scale_name}', "
                f"got the shape {scale.shape} or another value"
            )
        factors = np.float32(1) / scale
        return factors.reshape(-1, *[1] * (len(shape) - 1)) if scale.size > 1 else factors


def open_binary(path: Path) -> BinaryFile:
    """Read the header of a file. The values of arrays are not read."""
    with path.open("rb") as file:
        reader = HeaderReader(path, file, load_error)
        if (version := reader.number(4)) not in VERSIONS:
            reader.refuse(
                f"expected binary version {VERSIONS[0]} to {VERSIONS[-1]}, got {version:,}; check "
                "that it is a file of CTranslate2, or convert the model again"
            )
        spec, revision = (_text(reader), reader.number(4)) if version > 1 else FIRST_SPEC
        variables = dict(_variable(reader, version) for _ in range(reader.count(4)))
        if version == 1:
            variables = {_current_name(name): array for name, array in variables.items()}
        aliases = {}
        for _ in range(reader.count(4, "aliases") if version >= 3 else 0):
            alias = _text(reader)
            aliases[alias] = _text(reader)
    if missing := [name for name in aliases.values() if name not in variables]:
        reader.refuse(f"expected an array '{shorten(missing[0])}', of which another is one")
    for alias, name in aliases.items():
        for suffix in ("", SCALE):
            if name + suffix in variables:
                variables.setdefault(alias + suffix, variables[name + suffix])
    return BinaryFile(path, spec, revision, variables)


def _current_name(name: str) -> str:
    """Return the name of an array of version 1 in later versions."""
    for pattern, current in FIRST_NAMES.items():
        name = re.sub(pattern, current, name, count=1)
    return name


def _text(reader: HeaderReader) -> str:
    """Return the next text, after its length of two bytes, which counts a zero byte at its end."""
    return reader.take(reader.number(2))[:-1].decode(errors="replace")


def _variable(reader: HeaderReader, version: int) -> tuple[str, StoredArray]:
    name = _text(reader)
    shape = tuple(reader.number(4) for _ in range(reader.number(1)))
    number = reader.number(1)
    dtypes = dict(enumerate(DTYPES)) if version >= 4 else OLD_DTYPES
    if number not in dtypes:
        reader.refuse(f"'{shorten(name)}' has the unknown type {number}")
    size = reader.number(4)
    variable = StoredArray(dtypes[number], shape, reader.file.tell())
    size *= 1 if version >= 4 else variable.width
    if size != variable.size or variable.offset + size > reader.size:
        reader.refuse_size(name, variable, variable.size, size)
    reader.file.seek(size, os.SEEK_CUR)
    return name, variable


def load_error(path: Path, reason: str) -> ValueError:
    """Return the error for a file that cannot be read."""
    return ValueError(f"CTranslate2: {path} does not load: {reason}.")
