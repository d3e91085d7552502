"""All weights of a folder of CTranslate2, by their names in a `Transformer`."""

import re
from collections.abc import Collection

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile
from tfk_transformer.importing.ctranslate2_folder.layers import (
    ATTENTION_PARTS,
    feed_forward_parts,
    layer_arrays,
    position_arrays,
    table_names,
)
from tfk_transformer.importing.ctranslate2_folder.tokens import Sides
from tfk_transformer.importing.hugging_face.bart_layers import Array, read_arrays
from tfk_transformer.importing.hugging_face.model_folder import Arrays
from tfk_transformer.pipelines.weights import check_sizes

POSITION_TABLE = re.compile(r"/position_encodings/|/relative_attention_bias$")


def read_weights(
    file: BinaryFile,
    arrays: Arrays,
    config: TransformerConfig,
    sides: Sides,
    silent: Collection[int],
) -> dict[str, np.ndarray]:
    """Return all weights of the model.

    Raises:
        ValueError: if the arrays of the file do not match the options.
    """
    check_sizes(config, arrays.shapes, arrays.path)
    source, target = sides.source.vocabulary, sides.target.vocabulary
    tables = table_names(file)
    source_rows, target_rows = (arrays.shapes[name][0] for name in tables[:2])

    def table_array(name: str, count: int, extra: int, rows: np.ndarray) -> Array:
        return Array(
            name,
            (count, config.model_dim),
            lambda table: np.pad(table, [(0, extra), (0, 0)])[rows],
        )

    expected = layer_arrays(file, arrays.shapes, config) | position_arrays(arrays.shapes, config)
    expected["source_embedding/embeddings"] = table_array(
        tables[0], source_rows, sides.source_extra, source.rows
    )
    if not config.shares_source:
        expected["target_embedding/embeddings"] = table_array(
            tables[1], target_rows, sides.target_extra, target.rows
        )
    if not config.ties_output:
        output = table_array(tables[2], target_rows, sides.target_extra, target.rows)
        expected["output/kernel"] = output._replace(convert=lambda table: output.convert(table).T)
    bias = Array(
        "decoder/projection/bias",
        (target_rows,),
        lambda values: np.pad(values, (0, sides.target_extra)),
    )
    # Tables of positions are read before, and other names of a shared table are equal to it.
    positions = [name for name in arrays.shapes if POSITION_TABLE.search(name)]
    texts = [name for name in arrays.shapes if "/" not in name]  # before version 6
    weights = read_arrays(
        arrays,
        expected,
        {*tables, *positions, *texts},
        target,
        bias,
        "CTranslate2: expected the arrays of the layers",
    )
    return {**_zero_biases(config), **weights}


def _zero_biases(config: TransformerConfig) -> dict[str, np.ndarray]:
    """Return zeros for all biases that a file may lack, by their names in a `Transformer`."""
    shapes: dict[str, tuple[int, ...]] = {}
    for stack, parts in ATTENTION_PARTS.items():
        for i in range(getattr(config, f"{stack}_layers")):
            layer = f"{stack}/layer_{i}"
            shapes |= {
                f"{layer}/{attention}/{role}_bias": (
                    (config.model_dim,)
                    if role == "output"
                    else (config.num_heads, 1, config.query_width)
                )
                for attention, _, _ in parts.values()
                for role in config.attention_bias
            }
            if config.ff_bias:
                shapes |= {
                    f"{layer}/feed_forward/{dense}/bias": size[:1]
                    for dense, (_, size) in feed_forward_parts(config, stack).items()
                }
    return {name: np.zeros(shape, "float32") for name, shape in shapes.items()}
