"""The arrays of a `TransformerSpec` of CTranslate2, by their names in a `Transformer`.

The names are those of python/ctranslate2/specs/transformer_spec.py.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile
from tfk_transformer.importing.hugging_face.bart_layers import Array
from tfk_transformer.importing.hugging_face.model_folder import Shapes

STACKS = ("encoder", "decoder")
SCALE_OUTPUTS = "scale_outputs"  # a factor of the decoder's output, after its norm
Products: TypeAlias = tuple[tuple[str, ...], ...]
SELF_PRODUCTS: Products = (("query", "key", "value"),)
CROSS_PRODUCTS: Products = (("query",), ("key", "value"))
# The attention sublayers of a layer by CTranslate2's name: this library's names of the attention
# and of the residual connection, and the roles that each product of inputs projects.
ATTENTION_PARTS: dict[str, dict[str, tuple[str, str, Products]]] = {
    "encoder": {"self_attention": ("attention", "attention_residual", SELF_PRODUCTS)},
    "decoder": {
        "self_attention": ("self_attention", "self_residual", SELF_PRODUCTS),
        "attention": ("cross_attention", "cross_residual", CROSS_PRODUCTS),
    },
}


def table_names(file: BinaryFile) -> tuple[str, str, str]:
    """Return the names of the embeddings of source and target, and of the output projection."""
    single = "encoder/embeddings/weight"
    source = single if single in file.variables else "encoder/embeddings_0/weight"
    return source, "decoder/embeddings/weight", "decoder/projection/weight"


def count_layers(shapes: Shapes, stack: str) -> int:
    """Return the number of layers of a stack."""
    layers = (f"{stack}/layer_{i}/ffn/linear_0/weight" for i in itertools.count())
    return sum(1 for _ in itertools.takewhile(shapes.__contains__, layers))


def layer_arrays(file: BinaryFile, shapes: Shapes, config: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of layers, norms and learned positions by their names in a `Transformer`.

    Biases that a file lacks are left out.
    """
    arrays: dict[str, Array] = {}
    for stack in STACKS:
        for i in range(getattr(config, f"{stack}_layers")):
            arrays |= dict(_layer(file, shapes, config, stack, f"{stack}/layer_{i}"))
        if f"{stack}/layer_norm/gamma" in shapes:
            scale = np.float32(file.number(f"{stack}/{SCALE_OUTPUTS}", 1))
            arrays |= dict(_norm(config, f"{stack}/final_norm", f"{stack}/layer_norm", scale))
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        if config.embedding_norm:
            norm = f"{side}_positions/norm"
            arrays |= dict(_norm(config, norm, f"{stack}/layernorm_embedding"))
    return arrays


def position_arrays(shapes: Shapes, config: TransformerConfig) -> dict[str, Array]:
    """Return the tables of learned and relative positions by their names in a `Transformer`."""
    arrays: dict[str, Array] = {}
    if config.positions.startswith("relative"):
        for stack in STACKS:
            arrays |= dict(_relative_positions(config, stack))
    if config.positions != "learned":
        return arrays
    prefixes = (config.source_additions, config.target_prefix)
    for side, stack, prefix in zip(("source", "target"), STACKS, prefixes, strict=True):
        name = f"{stack}/position_encodings/encodings"
        length = config.max_length + len(prefix)
        arrays[f"{side}_positions/table"] = Array(name, shapes[name], _first_rows(length))
    return arrays


def _relative_positions(config: TransformerConfig, stack: str) -> Iterator[tuple[str, Array]]:
    """Yield the table of each layer, or the first layer's if it is that of all."""
    layers = getattr(config, f"{stack}_layers") if config.positions == "relative_by_layer" else 1
    for i in range(layers):
        name = f"{stack}/layer_{i}/self_attention/relative_attention_bias"
        suffix = f"_{i}" if config.positions == "relative_by_layer" else ""
        shape = (config.position_buckets, config.num_heads)
        yield f"{stack}/relative_positions{suffix}/table", Array(name, shape)


def _first_rows(length: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda table: table[:length]


def _layer(
    file: BinaryFile, shapes: Shapes, config: TransformerConfig, stack: str, layer: str
) -> Iterator[tuple[str, Array]]:
    width = config.model_dim
    for name, (attention, residual, products) in ATTENTION_PARTS[stack].items():
        theirs = f"{layer}/{name}"
        ours = f"{layer}/{attention}"
        for number, roles in enumerate(products):
            linear = f"{theirs}/linear_{number}"
            yield from _projections(file, shapes, config, ours, linear, roles)
        heads = config.num_heads * config.query_width
        linear = f"{theirs}/linear_{len(products)}"
        yield f"{ours}/output", Array(f"{linear}/weight", (width, heads), np.transpose)
        if f"{linear}/bias" in shapes:
            yield f"{ours}/output_bias", Array(f"{linear}/bias", (width,))
        yield from _norm(config, f"{layer}/{residual}/norm", f"{theirs}/layer_norm")
    for name, (theirs, shape) in feed_forward_parts(config, stack).items():
        linear = f"{layer}/ffn/{theirs}"
        dense = f"{layer}/feed_forward/{name}"
        yield f"{dense}/kernel", Array(f"{linear}/weight", shape, np.transpose)
        if f"{linear}/bias" in shapes:
            yield f"{dense}/bias", Array(f"{linear}/bias", shape[:1])
    yield from _norm(config, f"{layer}/ff_residual/norm", f"{layer}/ffn/layer_norm")


def feed_forward_parts(
    config: TransformerConfig, stack: str
) -> dict[str, tuple[str, tuple[int, int]]]:
    """Return the products of a feed-forward block: CTranslate2's name, and the shape (out, in)."""
    width = config.decoder_options().ff_width if stack == "decoder" else config.ff_width
    inner = (width, config.model_dim)
    parts = {"inner": ("linear_0", inner), "outer": ("linear_1", inner[::-1])}
    return parts | ({"linear": ("linear_0_noact", inner)} if config.ff_gated else {})


def _projections(
    file: BinaryFile,
    shapes: Shapes,
    config: TransformerConfig,
    ours: str,
    linear: str,
    roles: tuple[str, ...],
) -> Iterator[tuple[str, Array]]:
    """Yield the projections of roles, whose rows follow each other in one array."""
    heads = (config.num_heads, config.query_width)  # H, K
    size = math.prod(heads)
    scale_name = f"{linear.rpartition('/')[0]}/queries_scale"
    default = heads[1] ** -0.5
    scale = np.float32(file.number(scale_name, default) / default)

    def convert(index: int, role: str) -> Callable[[np.ndarray], np.ndarray]:
        rows = slice(index * size, (index + 1) * size)
        factor = scale if role == "query" and scale_name in file.variables else np.float32(1)
        # (H*K, D) -> (H, D, K), and (H*K,) -> (H, 1, K)
        return lambda array: factor * array[rows].reshape(*heads, -1).transpose(0, 2, 1)

    for index, role in enumerate(roles):
        shape = (len(roles) * size, config.model_dim)
        yield f"{ours}/{role}", Array(f"{linear}/weight", shape, convert(index, role))
        if f"{linear}/bias" in shapes:
            yield f"{ours}/{role}_bias", Array(f"{linear}/bias", shape[:1], convert(index, role))


def _norm(
    config: TransformerConfig, ours: str, theirs: str, scale: np.float32 | None = None
) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of a norm, multiplied by a scale of its output."""
    for name in ("gamma",) if config.norm_type == "rms" else ("gamma", "beta"):
        array = Array(f"{theirs}/{name}", (config.model_dim,))
        if scale is not None:
            array = array._replace(convert=lambda values: scale * values)
        yield f"{ours}/{name}", array
