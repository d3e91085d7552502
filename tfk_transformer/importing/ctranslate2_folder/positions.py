"""The options of the positions of a `TransformerSpec` of CTranslate2."""

import itertools
from typing import Any

import numpy as np

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile, load_error
from tfk_transformer.importing.ctranslate2_folder.layers import STACKS, count_layers
from tfk_transformer.importing.hugging_face.model_folder import Arrays
from tfk_transformer.layers.position_encoding import position_table
from tfk_transformer.pipelines.weights import MAX_POSITION_NUMBERS

MAX_INPUT_LENGTH = 1024  # `Translator.translate_batch` cuts longer sources
# CTranslate2 computes as many positions as a text has. The first one has the number 1.
COMPUTED_POSITIONS = {"positions": "sinusoidal_halves", "position_offset": 1}
RELATIVE_BIAS = "self_attention/relative_attention_bias"
MAX_DISTANCE = "self_attention/relative_attention_max_distance"
# Offsets of fairseq's sinusoids, of which the first row belongs to padding, and of most others.
POSITION_OFFSETS = (0, 1, 2)
POSITION_TOLERANCE = 1e-3  # of sinusoids in float16, or computed in float32 for far positions


def position_options(file: BinaryFile, arrays: Arrays, width: int) -> dict[str, Any]:
    """Return the options of positions: relative, computed, stored sinusoids or learned ones.

    Raises:
        ValueError: if only one of the stacks has a table, or the tables have unlike widths.
    """
    if any(name.endswith(RELATIVE_BIAS) for name in arrays.shapes):
        return _relative_positions(file, arrays)
    names = [f"{stack}/position_encodings/encodings" for stack in STACKS]
    tables = [arrays.shapes[name] for name in names if name in arrays.shapes]
    if not tables:
        return {**COMPUTED_POSITIONS, "max_length": MAX_INPUT_LENGTH}
    lengths = [shape[0] for shape in tables]
    if [shape[1:] for shape in tables] != [(width,)] * 2 or min(lengths) < 2:
        raise load_error(
            file.path,
            f"expected tables of positions of width {width:,} as {' and '.join(names)}, got "
            f"{', '.join(map(str, tables))}",
        )
    length = min(lengths)
    options = {"max_length": length}
    if max(lengths) * width <= MAX_POSITION_NUMBERS:
        stored = [arrays.read(name)[:length] for name in names]
        candidates = itertools.product(
            ("sinusoidal", "sinusoidal_halves", "sinusoidal_paper_halves"), POSITION_OFFSETS
        )
        for encoding, offset in candidates:
            table = position_table(encoding, length, width, offset)
            if all(
                np.allclose(values, table, rtol=0, atol=POSITION_TOLERANCE) for values in stored
            ):
                return {**options, "positions": encoding, "position_offset": offset}
    return {**options, "positions": "learned"}


def _relative_positions(file: BinaryFile, arrays: Arrays) -> dict[str, Any]:
    """Return the options of positions that are biases of self-attention.

    Raises:
        ValueError: if a layer has no table, or tables of unlike sizes or distances.
    """
    layers = {
        stack: [f"{stack}/layer_{i}" for i in range(count_layers(arrays.shapes, stack))]
        for stack in STACKS
    }
    sizes = {
        (
            arrays.shapes.get(f"{layer}/{RELATIVE_BIAS}", ()),
            file.number(f"{layer}/{MAX_DISTANCE}", 0),
        )
        for layer in itertools.chain(*layers.values())
    }
    shape, distance = min(sizes)
    if len(sizes) > 1 or len(shape) != 2 or distance < 2:
        raise load_error(
            file.path,
            f"expected a table for each layer as '{RELATIVE_BIAS}', of one shape, with one number "
            f"as '{MAX_DISTANCE}', got {shorten(str(sorted(sizes)))}",
        )

    def same(names: list[str]) -> bool:
        first, *others = (arrays.read(f"{name}/{RELATIVE_BIAS}") for name in names)
        return all(np.array_equal(first, table) for table in others)

    return {
        "positions": "relative" if all(map(same, layers.values())) else "relative_by_layer",
        "position_buckets": shape[0],
        "position_max_distance": int(distance),
        "max_length": MAX_INPUT_LENGTH,
    }
