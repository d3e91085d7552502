"""Insert the model's layers into converted searches, as few operators.

tf2onnx converts a layer to about 150 operators. Therefore a search is converted with single nodes in the places of the encoder and
the decoding step (see `placeholder_model`). This module replaces these nodes by operators that it writes from the configuration and
the weights: about 30 operators for each layer.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import onnx_ir as ir

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import PAD_ID
from tfk_transformer.export.to_onnx.conversion import DOMAIN, READ
from tfk_transformer.export.to_onnx.onnx_attention import ReproducibleAttention, StandardAttention
from tfk_transformer.export.to_onnx.onnx_matmul import CONTRIB, KERNEL, Float32MatMul, Int8MatMul, RowStatistics
from tfk_transformer.export.to_onnx.operator_writer import OperatorWriter
from tfk_transformer.layers.masks import HIDDEN
from tfk_transformer.models.base import TokenModel


class Profile(NamedTuple):
    """The classes that write the operators of the layers."""

    attention: type[StandardAttention]
    matmul: Callable[..., Float32MatMul]


PORTABLE = Profile(StandardAttention, Float32MatMul)  # standard operators only


def int8_profile(rows: Mapping[str, RowStatistics], kept: Sequence[str] = ()) -> Profile:
    """Return the profile "int8": weights of 8 bits, except those whose names contain one of `kept`, which remain float32.

    Args:
        rows: what is known of the rows of each product, by the name of the weights in the whole model, see `calibration.observe_rows`.
        kept: parts of the names of weights.
    """
    return Profile(ReproducibleAttention, functools.partial(Int8MatMul, rows=rows, kept=kept))


def insert_layers(converted: ir.Model, model: TokenModel, profile: Profile) -> None:
    """Replace the nodes that represent a model's layers by the operators of the layers.

    Args:
        converted: a search over a `PlaceholderModel` of the model; it is changed.
        model: the model with the weights.
        profile: `PORTABLE`, or a result of `int8_profile`.
    """
    members = [
        (prefix, member.config, {name: np.asarray(weight) for name, weight in member.named_weights.items()})
        for prefix, member in model.named_members().items()
    ]
    write: Callable[..., list[ir.Value]]
    options: LayerOptions
    for node in [node for node in converted.graph.all_nodes() if node.domain == DOMAIN]:
        kind, number = node.op_type.split("_")
        prefix, config, weights = members[int(number)]
        write, options = (write_read, config) if kind == READ else (write_step, config.decoder_options())
        writer = OperatorWriter(converted.graph, config, options, weights, profile.matmul, prefix)
        outputs = write(writer, profile.attention, *node.inputs)
        ir.convenience.replace_nodes_and_values(node.graph, node, [node], writer.nodes, node.outputs, outputs)
    converted.opset_imports.pop(DOMAIN, None)
    if any(node.domain == CONTRIB for node in converted.graph.all_nodes()):
        converted.opset_imports[CONTRIB] = 1


def write_read(writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value) -> list[ir.Value]:
    """Write the operators of a `Read` node: from source ids (B, S) to the memory of each decoder layer, and the source's mask."""
    op, config = writer.op, cast(TransformerConfig, writer.config)  # a model without an encoder has no such node
    source = _prefixed(writer, "source", source)
    shape, length = op("Shape", [source]), op("Shape", [source], start=1)
    padding = op("Cast", [op("Equal", [source, writer.constant("pad", np.int32(PAD_ID))])], to=ir.DataType.FLOAT.value)
    mask = op("Unsqueeze", [op("Mul", [padding, writer.constant("hidden", np.float32(HIDDEN))]), writer.ints(1, 2)])
    positions = op("Slice", [writer.positions("source"), writer.ints(0), length, writer.ints(0)])
    x = writer.embed("source", source, positions)
    for layer in range(config.encoder_layers):
        path, norm = f"encoder/layer_{layer}", f"encoder/layer_{layer}/attention_residual/norm"
        attended = attention(writer, f"{path}/attention", shape).to_itself(writer.enter(x, norm), mask)
        x = writer.feed_forward(writer.leave(x, attended, norm), path)
    memory = writer.finish(x, "encoder")
    readers = [attention(writer, f"decoder/layer_{layer}/cross_attention", shape) for layer in range(config.decoder_layers)]
    return [*(value for reader in readers for value in reader.project_source(memory)), mask]


def write_step(
    writer: OperatorWriter, attention: type[StandardAttention], ids: ir.Value, lineage: ir.Value, *rest: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Step` node: the logits of the next token of each open hypothesis, attention, and the longer cache."""
    layers, op = writer.config.decoder_layers, writer.op
    end = 2 * layers if writer.config.architecture == "decoder" else 4 * layers + 1
    cache, memory, candidates = rest[: 2 * layers], rest[2 * layers : end], rest[end:]
    beams = op("Shape", [ids], end=2)  # A, M
    tokens, places, lineage = _read_by_step(writer, ids, lineage)
    shape = op("Shape", [tokens]) if writer.config.target_prefix else beams  # A, N
    x = writer.embed("target", tokens, op("Gather", [writer.positions("target"), places]))
    grown: list[ir.Value] = []
    visible: ir.Value | None = None  # the attention weights of the last layer
    for layer in range(layers):
        path, pair, norm = f"decoder/layer_{layer}", slice(2 * layer, 2 * layer + 2), f"decoder/layer_{layer}/self_residual/norm"
        attend = attention(writer, f"{path}/self_attention", shape)
        attended, pair_grown = attend.to_past(writer.enter(x, norm), cache[pair], lineage)
        x, grown = writer.leave(x, attended, norm), grown + pair_grown
        if memory:
            reader = attention(writer, f"{path}/cross_attention", shape)
            x, visible = _read_source(writer, reader, path, x, memory[pair], memory[-1], visibly=layer == layers - 1)
        x = writer.feed_forward(x, path)
    logits = _logits(writer, writer.finish(_last_rows(writer, x, shape, beams), "decoder"), *candidates)
    return [
        op("Reshape", [logits, op("Concat", [beams, writer.ints(-1 if candidates else writer.config.target_vocab_size)], axis=0)]),
        _without_prefixes(writer, _mean_over_heads(writer, visible, beams), beams),
        *grown,
    ]


def _read_source(
    writer: OperatorWriter, attend: StandardAttention, path: str, x: ir.Value, memory: Sequence[ir.Value], mask: ir.Value, visibly: bool
) -> tuple[ir.Value, ir.Value | None]:
    """Return rows (R, D) and, if `visibly`, the attention weights (A, H, M, S), which the coverage penalty requires."""
    norm = f"{path}/cross_residual/norm"
    weights: ir.Value | None = None
    query = writer.enter(x, norm)
    if visibly:
        attended, weights = attend.to_source_visibly(query, memory, mask)
    else:
        attended = attend.to_source(query, memory, mask)
    return writer.leave(x, attended, norm), weights


def _mean_over_heads(writer: OperatorWriter, weights: ir.Value | None, shape: ir.Value) -> ir.Value:
    """Return the attention (A, M, S), or (A, M, 0) if the model has no encoder."""
    if weights is not None:
        return writer.op("ReduceMean", [weights, writer.ints(1)], keepdims=0)
    return writer.op("Expand", [writer.constant("nothing", np.float32(0)), writer.op("Concat", [shape, writer.ints(0)], axis=0)])


def _logits(writer: OperatorWriter, x: ir.Value, candidates: ir.Value | None = None) -> ir.Value:
    """Return the logits (R, V) of the whole vocabulary, or those (R, n) of candidates (n,)."""
    bias, kernel = writer.weights.get("output/bias"), writer.weights.get(KERNEL)
    if kernel is not None and candidates is None:
        return writer.matmul.multiply(x, KERNEL, kernel, bias)
    name = writer.table("target") if kernel is None else KERNEL
    table = writer.weights[name] if kernel is None else kernel.T
    if candidates is None:
        return writer.matmul.multiply_by_table(x, name, table, bias)
    return writer.matmul.multiply_by_some_of_table(x, name, table, candidates, bias)


# The tokens that a model puts before every source and every target, see `models.prefixes`. A model without such tokens has none of these
# operators. N is the number of tokens that a step reads for each sentence: the prefix's P and the beams' M at first, later only M.


def _prefixed(writer: OperatorWriter, side: str, ids: ir.Value) -> ir.Value:
    """Put the prefix of a side before ids (B, T): (B, P+T)."""
    return writer.op("Concat", [_of_each_row(writer, side, ids), ids], axis=1) if _prefix(writer, side) else ids


def _read_by_step(writer: OperatorWriter, ids: ir.Value, lineage: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return what a step reads: ids (A, N), their positions (1,) or (N,), and the lineage mask (A, 1, N, P+T*M).

    Args:
        writer: writer of the operators.
        ids: (A, M, T), all tokens so far.
        lineage: additive mask (A, 1, M, T*M).
    """
    op, given = writer.op, len(writer.config.target_prefix)
    last, length = op("Gather", [ids, writer.constant("last", np.int64(-1))], axis=2), op("Shape", [ids], start=2)
    if not given:
        return last, op("Sub", [length, writer.ints(1)]), lineage
    first = op("Cast", [op("Equal", [length, writer.ints(1)])], to=ir.DataType.INT64.value)
    new = op("Mul", [first, writer.ints(given)])  # (1,): N - M
    tokens = op("Concat", [_slice(writer, _of_each_row(writer, "target", last), new, 1), last], axis=1)
    own = op("Expand", [op("Add", [length, writer.ints(given - 1)]), op("Shape", [last], start=1)])  # (M,)
    places = op("Concat", [_slice(writer, writer.ints(*range(given)), new, 0), own], axis=0)
    return tokens, places, _mask(writer, lineage, new)


def _mask(writer: OperatorWriter, lineage: ir.Value, new: ir.Value) -> ir.Value:
    """Return the lineage mask with rows for the tokens of the prefix that a step reads, and visible columns for the whole prefix."""
    op, given = writer.op, len(writer.config.target_prefix)
    causal = np.triu(np.full((1, 1, given, given), HIDDEN, "float32"), 1)
    before = op("Expand", [writer.constant("prefix_visible", np.float32(0)), _shape_with(writer, lineage, given)])
    seen = op("Concat", [before, lineage], axis=3)  # (A, 1, M, P+T*M)
    sizes = [op("Shape", [lineage], end=2), new, op("Shape", [lineage], start=3)]
    hidden = op("Expand", [writer.constant("hidden", np.float32(HIDDEN)), op("Concat", sizes, axis=0)])  # (A, 1, N - M, T*M)
    sizes = [op("Shape", [lineage], end=2), new, writer.ints(given)]
    rows = op("Expand", [_slice(writer, writer.constant("prefix_causal", causal), new, 2), op("Concat", sizes, axis=0)])
    return op("Concat", [op("Concat", [rows, hidden], axis=3), seen], axis=2)


def _last_rows(writer: OperatorWriter, x: ir.Value, shape: ir.Value, beams: ir.Value) -> ir.Value:
    """Return those of rows (A*N, D) that belong to beams: (A*M, D).

    Args:
        writer: writer of the operators.
        x: the rows.
        shape: int64 [A, N].
        beams: int64 [A, M].
    """
    if not writer.config.target_prefix:
        return x
    op, width = writer.op, writer.config.model_dim
    by_sentence = op("Reshape", [x, op("Concat", [shape, writer.ints(width)], axis=0)])
    return op("Reshape", [_last(writer, by_sentence, beams), writer.ints(-1, width)])


def _without_prefixes(writer: OperatorWriter, attention: ir.Value, beams: ir.Value) -> ir.Value:
    """Leave the prefixes out of attention (A, N, P+S): (A, M, S)."""
    if writer.config.target_prefix:
        attention = _last(writer, attention, beams)
    if given := len(writer.config.source_prefix):
        attention = writer.op("Slice", [attention, writer.ints(given), writer.ints(np.iinfo("int64").max), writer.ints(2)])
    return attention


def _last(writer: OperatorWriter, x: ir.Value, beams: ir.Value) -> ir.Value:
    """Return the last M places of (A, N, …)."""
    count = writer.op("Slice", [beams, writer.ints(1), writer.ints(2), writer.ints(0)])  # (1,): M
    return writer.op("Slice", [x, writer.op("Neg", [count]), writer.ints(np.iinfo("int64").max), writer.ints(1)])


def _of_each_row(writer: OperatorWriter, side: str, ids: ir.Value) -> ir.Value:
    """Return the prefix of a side for each row of ids (B, T): (B, P)."""
    prefix = np.array([_prefix(writer, side)], "int32")
    return writer.op("Expand", [writer.constant(f"{side}_prefix", prefix), _shape_with(writer, ids, prefix.size)])


def _prefix(writer: OperatorWriter, side: str) -> tuple[int, ...]:
    return writer.config.source_prefix if side == "source" else writer.config.target_prefix


def _shape_with(writer: OperatorWriter, x: ir.Value, last: int) -> ir.Value:
    """Return the shape of a value with another last size."""
    return writer.op("Concat", [writer.op("Shape", [x], end=-1), writer.ints(last)], axis=0)


def _slice(writer: OperatorWriter, x: ir.Value, end: ir.Value, axis: int) -> ir.Value:
    """Return the first `end` (1,) places of an axis."""
    return writer.op("Slice", [x, writer.ints(0), end, writer.ints(axis)])
