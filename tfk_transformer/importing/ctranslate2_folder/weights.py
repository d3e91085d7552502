"""The weights of a `TransformerSpec` of CTranslate2, by their names in a `Transformer`.

The names are those of python/ctranslate2/specs/transformer_spec.py.
"""

import itertools
import operator
import re
from collections.abc import Sequence
from functools import partial

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.arrays import Arrays, Shapes
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile
from tfk_transformer.importing.vocabulary import Vocabulary
from tfk_transformer.importing.weights import (
    NORM,
    STACKS,
    Array,
    layer_arrays,
    norm_arrays,
    read_arrays,
    table_arrays,
)
from tfk_transformer.pipelines.weights import check_sizes

OUTPUT_BIAS = "decoder/projection/bias"
SCALE_OUTPUTS = "scale_outputs"  # a factor of the decoder's output, after its norm
# The number of the product that projects each role. Roles with one number share an array.
ATTENTION_PRODUCTS = {
    "self_attention": {"query": 0, "key": 0, "value": 0, "output": 1},
    "attention": {"query": 0, "key": 1, "value": 1, "output": 2},
}
FEED_FORWARD_PRODUCTS = {"inner": "linear_0", "outer": "linear_1", "linear": "linear_0_noact"}
STORED_POSITIONS = tuple(f"{stack}/position_encodings/encodings" for stack in STACKS)
RELATIVE_BIAS = "self_attention/relative_attention_bias"
POSITION_TABLE = re.compile(r"/position_encodings/|/relative_attention_bias$")


def table_names(file: BinaryFile) -> tuple[str, str, str]:
    """Return the names of the embeddings of source and target, and of the output projection."""
    single = "encoder/embeddings/weight"
    source = single if single in file.variables else "encoder/embeddings_0/weight"
    return source, "decoder/embeddings/weight", "decoder/projection/weight"


def count_layers(shapes: Shapes, stack: str) -> int:
    """Return the number of layers of a stack."""
    layers = (f"{stack}/layer_{i}/ffn/linear_0/weight" for i in itertools.count())
    return sum(1 for _ in itertools.takewhile(shapes.__contains__, layers))


def read_weights(
    file: BinaryFile, config: TransformerConfig, source: Vocabulary, target: Vocabulary
) -> dict[str, np.ndarray]:
    """Return all weights of the model. Biases that the file lacks are zeros."""
    check_sizes(config, file.shapes, file.path)
    layers = _all_layers(file, config)
    lacking = {
        name: array
        for name, array in layers.items()
        if name.endswith("bias") and array.name not in file.shapes
    }
    expected = {name: array for name, array in layers.items() if name not in lacking}
    expected |= _position_arrays(file.shapes, config)
    tables = table_names(file)
    rows = [file.shapes[name][0] for name in tables[:2]]
    expected |= table_arrays(config, tables, rows, source, target)
    # Tables of positions are read before, and other names of a shared table are equal to it.
    positions = [name for name in file.shapes if POSITION_TABLE.search(name)]
    texts = [name for name in file.shapes if "/" not in name]  # before version 6
    weights = read_arrays(
        Arrays(file.path, file.shapes, file.read),
        expected,
        {*tables, *positions, *texts},
        target,
        Array(OUTPUT_BIAS, (rows[1],)),
        file.expectation,
    )
    # The biases that all layers have: of some roles of attentions, and of feed-forward blocks.
    with_bias = {*(f"{role}_bias" for role in config.attention_bias), *["bias"] * config.ff_bias}
    zeros = {
        name: array.convert(np.zeros(array.shape, "float32"))
        for name, array in lacking.items()
        if name.rpartition("/")[2] in with_bias
    }
    return {**zeros, **weights}


def _all_layers(file: BinaryFile, config: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of layers and norms, with the factors that a file has for some of them."""
    default_scale = config.query_width**-0.5
    arrays = all_arrays(config)
    for name, array in arrays.items():
        scale_name = f"{array.name.rpartition('/linear_')[0]}/queries_scale"
        if name.endswith(("/query", "/query_bias")) and scale_name in file.variables:
            # Another factor of queries than 1 / sqrt(K).
            factor = file.number(scale_name, 1) / default_scale
        elif "/final_norm/" in name:
            factor = file.number(f"{name.partition('/')[0]}/{SCALE_OUTPUTS}", 1)
        else:
            continue
        arrays[name] = array.prepared(partial(np.multiply, np.float32(factor)))
    return arrays


def all_arrays(config: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of all layers and norms by their names in a `Transformer`."""
    norm_names = NORM[:1] if config.has_rms_norm else NORM
    attentions, others = _layer_names(config, norm_names)
    arrays: dict[str, Array] = {}
    for side, stack in zip(("source", "target"), STACKS, strict=True):
        for i in range(getattr(config, f"{stack}_layers")):
            arrays |= layer_arrays(config, stack, i, f"{stack}/layer_{i}/", attentions, others)
        norms = {}
        if has_final_norm(config, stack):
            norms[f"{stack}/final_norm"] = f"{stack}/layer_norm"
        if config.embedding_norm:
            norms[f"{side}_positions/norm"] = f"{stack}/layernorm_embedding"
        for ours, theirs in norms.items():
            arrays |= norm_arrays(config, ours, *(f"{theirs}/{name}" for name in norm_names))
    return arrays


def has_final_norm(config: TransformerConfig, stack: str) -> bool:
    """Return whether a stack has a norm after its last layer."""
    final_norm = getattr(config, f"{stack}_final_norm")
    return config.normalizes_input if final_norm is None else bool(final_norm)


def _layer_names(
    config: TransformerConfig, norm_names: Sequence[str]
) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return the names of attentions and the other names of a layer for `layer_arrays`."""
    attentions = [
        {
            **{
                f"{role}{suffix}": f"{name}/linear_{number}/{part}"
                for role, number in products.items()
                for suffix, part in (("", "weight"), ("_bias", "bias"))
            },
            **{weight: f"{name}/layer_norm/{weight}" for weight in norm_names},
        }
        for name, products in ATTENTION_PRODUCTS.items()
    ]
    feed_forward = {
        f"feed_forward/{ours}/{weight}": f"ffn/{theirs}/{part}"
        for ours, theirs in FEED_FORWARD_PRODUCTS.items()
        for weight, part in (("kernel", "weight"), ("bias", "bias"))
        if ours != "linear" or config.ff_gated
    }
    norms = {f"ff_residual/norm/{weight}": f"ffn/layer_norm/{weight}" for weight in norm_names}
    return attentions, {**feed_forward, **norms}


def _position_arrays(shapes: Shapes, config: TransformerConfig) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    if config.has_learned_positions:
        added = (config.source_additions, config.target_prefix)
        sides = zip(("source", "target"), STORED_POSITIONS, added, strict=True)
        for side, name, ids in sides:
            used = operator.itemgetter(slice(config.max_length + len(ids)))
            arrays[f"{side}_positions/table"] = Array(name, shapes[name], used)
    by_layer = config.has_biases_by_layer
    for stack in STACKS if config.positions.startswith("relative") else ():
        # The first layer's table may be that of all.
        for i in range(getattr(config, f"{stack}_layers") if by_layer else 1):
            name = f"{stack}/layer_{i}/{RELATIVE_BIAS}"
            ours = f"{stack}/relative_positions{f'_{i}' if by_layer else ''}/table"
            arrays[ours] = Array(name, (config.position_buckets, config.num_heads))
    return arrays
