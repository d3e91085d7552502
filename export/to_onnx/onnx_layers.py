"""Insert the model's layers into graphs around them, as few operators.

tf2onnx converts a layer to about 150 operators. Therefore the templates of search and scoring have
single nodes in the places of the layers (see `templates`). This module replaces these nodes by
operators that it writes from the configuration and the weights: about 30 standard operators for
each layer.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import onnx_ir as ir

from tfk_transformer.config.model_options import ClassifierConfig, TransformerConfig
from tfk_transformer.constants import PAD_ID
from tfk_transformer.export.to_onnx.conversion import (
    CLASSIFY_OPERATOR,
    DECODE,
    DOMAIN,
    LOGITS,
    READ,
    STEP,
)
from tfk_transformer.export.to_onnx.onnx_attention import ReproducibleAttention, StandardAttention
from tfk_transformer.export.to_onnx.onnx_matmul import (
    CONTRIB,
    KERNEL,
    Float32MatMul,
    Int8MatMul,
    RowStatistics,
)
from tfk_transformer.export.to_onnx.operator_writer import OperatorWriter
from tfk_transformer.layers.masks import HIDDEN
from tfk_transformer.models.base import ConfiguredModel, TokenModel
from tfk_transformer.models.classifier import Classifier


class Profile(NamedTuple):
    """The classes that write the operators of the layers."""

    attention: type[StandardAttention]
    matmul: Callable[..., Float32MatMul]


PORTABLE = Profile(StandardAttention, Float32MatMul)  # standard operators only


def int8_profile(rows: Mapping[str, RowStatistics], kept: Sequence[str] = ()) -> Profile:
    """Return the profile "int8": weights of 8 bits, except those whose names contain one of `kept`,
    which remain float32.

    Args:
        rows: what is known of the rows of each product, by the name of the weights in the whole
            model, see `calibration.observe_rows`.
        kept: parts of the names of weights.
    """
    return Profile(ReproducibleAttention, functools.partial(Int8MatMul, rows=rows, kept=kept))


def insert_layers(around: ir.Model, model: ConfiguredModel, profile: Profile) -> None:
    """Replace the nodes that represent a model's layers by the operators of the layers.

    Args:
        around: a graph around the model's layers, such as a result of `templates.expansion.expand`;
            it is changed. The operator of a node ends with the number of the member, as in Read_0.
        model: the model with the weights.
        profile: `PORTABLE`, or a result of `int8_profile`.
    """
    named: dict[str, Any] = (
        {"": model} if isinstance(model, Classifier) else cast(TokenModel, model).named_members()
    )
    members = [
        (
            prefix,
            member.config,
            {name: np.asarray(weight) for name, weight in member.named_weights.items()},
        )
        for prefix, member in named.items()
    ]
    for node in [node for node in around.graph.all_nodes() if node.domain == DOMAIN]:
        layers, number = node.op_type.split("_")
        prefix, config, weights = members[int(number)]
        options = config if layers in (READ, CLASSIFY_OPERATOR) else config.decoder_options()
        writer = OperatorWriter(around.graph, config, options, weights, profile.matmul, prefix)
        outputs = WRITE[layers](writer, profile.attention, *node.inputs)
        ir.convenience.replace_nodes_and_values(
            node.graph, node, [node], writer.nodes, node.outputs, outputs
        )
    around.opset_imports.pop(DOMAIN, None)
    if any(node.domain == CONTRIB for node in around.graph.all_nodes()):
        around.opset_imports[CONTRIB] = 1


def write_read(
    writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Read` node: from source ids (B, S) to the memory of each decoder
    layer, and the source's mask.
    """
    config = cast(TransformerConfig, writer.config)  # a model without an encoder has no such node
    source = _prefixed(writer, "source", source)
    shape = writer.op("Shape", [source])
    encoded, mask = _encode(writer, attention, source, shape)
    readers = [
        attention(writer, f"decoder/layer_{layer}/cross_attention", shape)
        for layer in range(config.decoder_layers)
    ]
    return [*(value for reader in readers for value in reader.project_source(encoded)), mask]


def write_classify(
    writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Classify` node: from ids (B, S) to logits (B, C), see
    `Classifier.call`.
    """
    op, shape = writer.op, writer.op("Shape", [source])
    encoded, _ = _encode(writer, attention, source, shape)
    # (B, S, D)
    rows = op(
        "Reshape", [encoded, op("Concat", [shape, writer.ints(writer.config.model_dim)], axis=0)]
    )
    is_real = op("Not", [op("Equal", [source, writer.constant("pad", np.int32(PAD_ID))])])
    real = op("Cast", [is_real], to=ir.DataType.FLOAT.value)  # (B, S)
    count = op(
        "Max",
        [
            op("ReduceSum", [real, writer.ints(1)], keepdims=1),
            writer.constant("one", np.float32(1)),
        ],
    )
    shares = op("Unsqueeze", [op("Div", [real, count]), writer.ints(2)])  # (B, S, 1)
    mean = op("ReduceSum", [op("Mul", [rows, shares]), writer.ints(1)], keepdims=0)  # (B, D)
    return [
        writer.matmul.multiply(
            mean, "head/kernel", writer.weights["head/kernel"], writer.weights["head/bias"]
        )
    ]


def _encode(
    writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value, shape: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Write the encoder: from ids (B, S), with the prefix, and their shape to rows (B*S, D) and the
    additive mask (B, 1, 1, S).
    """
    op, config = writer.op, cast(TransformerConfig | ClassifierConfig, writer.config)
    padding = op(
        "Cast",
        [op("Equal", [source, writer.constant("pad", np.int32(PAD_ID))])],
        to=ir.DataType.FLOAT.value,
    )
    mask = op(
        "Unsqueeze",
        [op("Mul", [padding, writer.constant("hidden", np.float32(HIDDEN))]), writer.ints(1, 2)],
    )
    x = writer.embed("source", source, _first_positions(writer, "source", source))
    for layer in range(config.encoder_layers):
        path, norm = f"encoder/layer_{layer}", f"encoder/layer_{layer}/attention_residual/norm"
        attended, _ = attention(writer, f"{path}/attention", shape).to_itself(
            writer.enter(x, norm), mask
        )
        x = writer.feed_forward(writer.leave(x, attended, norm), path)
    return writer.finish(x, "encoder"), mask


def _first_positions(writer: OperatorWriter, side: str, ids: ir.Value) -> ir.Value:
    """Return the positions (T, D) of ids (B, T)."""
    length = writer.op("Shape", [ids], start=1)
    return writer.op("Slice", [writer.positions(side), writer.ints(0), length, writer.ints(0)])


def write_step(
    writer: OperatorWriter,
    attention: type[StandardAttention],
    tokens: ir.Value,
    position: ir.Value,
    lineage: ir.Value,
    *rest: ir.Value,
) -> list[ir.Value]:
    """Write the operators of a `Step` node: the logits of the next token of each open hypothesis,
    attention, and the longer cache.
    """
    layers, op = writer.config.decoder_layers, writer.op
    end = 2 * layers if writer.config.architecture == "decoder" else 4 * layers + 1
    cache, memory, candidates = rest[: 2 * layers], rest[2 * layers : end], rest[end:]
    beams = op("Shape", [tokens])  # A, M
    tokens, positions, lineage = _read_by_step(writer, tokens, position, lineage)
    shape = op("Shape", [tokens]) if writer.config.target_prefix else beams  # A, N
    x = writer.embed("target", tokens, op("Gather", [writer.positions("target"), positions]))
    grown: list[ir.Value] = []

    def attend_itself(layer: int, attend: StandardAttention, rows: ir.Value) -> ir.Value:
        attended, pair = attend.to_past(rows, cache[2 * layer : 2 * layer + 2], lineage)
        grown.extend(pair)
        return attended

    x, weights = _decode(writer, attention, x, shape, memory, attend_itself)
    logits = _logits(writer, _last_rows(writer, x, shape, beams), *candidates)
    return [
        op(
            "Reshape",
            [
                logits,
                op(
                    "Concat",
                    [beams, writer.ints(-1 if candidates else writer.config.target_vocab_size)],
                    axis=0,
                ),
            ],
        ),
        _without_prefixes(
            writer, _mean_over_heads(writer, weights[-1] if memory else None, beams), beams
        ),
        *grown,
    ]


def write_decode(
    writer: OperatorWriter, attention: type[StandardAttention], target: ir.Value, *memory: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Decode` node: a full pass over the target, and its attention
    weights.
    """
    op, config = writer.op, writer.config
    target = _prefixed(writer, "target", target)  # (B, P+T)
    shape, length = op("Shape", [target]), op("Shape", [target], start=1)
    hidden = op(
        "Expand",
        [writer.constant("hidden", np.float32(HIDDEN)), op("Concat", [length, length], axis=0)],
    )
    causal = op("Trilu", [hidden, writer.constant("one_above", np.int64(1))], upper=1)
    x = writer.embed("target", target, _first_positions(writer, "target", target))
    own_weights: list[ir.Value] = []

    def attend_itself(layer: int, attend: StandardAttention, rows: ir.Value) -> ir.Value:
        attended, weights = attend.to_itself(rows, causal)
        own_weights.append(weights)
        return attended

    x, weights = _decode(writer, attention, x, shape, memory, attend_itself)
    output = op("Reshape", [x, op("Concat", [shape, writer.ints(config.model_dim)], axis=0)])
    visible = [
        _drop_first(writer, part, len(config.source_prefix), axis=3)
        for part in weights or own_weights
    ]
    first = len(config.target_prefix)
    return [
        _drop_first(writer, output, first, axis=1),
        *(_drop_first(writer, part, first, axis=2) for part in visible),
    ]


def write_logits(
    writer: OperatorWriter, attention: type[StandardAttention], output: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Logits` node: from the decoder's output (B, T, D) to logits (B, T,
    V).
    """
    op, shape = writer.op, writer.op("Shape", [output], end=2)
    logits = _logits(writer, op("Reshape", [output, writer.ints(-1, writer.config.model_dim)]))
    return [
        op(
            "Reshape",
            [logits, op("Concat", [shape, writer.ints(writer.config.target_vocab_size)], axis=0)],
        )
    ]


WRITE: dict[str, Callable[..., list[ir.Value]]] = {
    READ: write_read,
    STEP: write_step,
    DECODE: write_decode,
    LOGITS: write_logits,
    CLASSIFY_OPERATOR: write_classify,
}


def _decode(
    writer: OperatorWriter,
    attention: type[StandardAttention],
    x: ir.Value,
    shape: ir.Value,
    memory: Sequence[ir.Value],
    attend_itself: Callable[[int, StandardAttention, ir.Value], ir.Value],
) -> tuple[ir.Value, list[ir.Value]]:
    """Write the decoder's layers over embedded rows (R, D).

    Args:
        writer: writer of the operators.
        attention: writes attention.
        x: the rows.
        shape: int64 [A, N], of the rows.
        memory: outputs of the `Read` node; none for a model without an encoder.
        attend_itself: writes the self-attention of a layer over normalized rows.

    Returns:
        The decoder's output (R, D), and each layer's attention weights to the source (A, H, N, S).
    """
    source_weights: list[ir.Value] = []
    for layer in range(writer.config.decoder_layers):
        path = f"decoder/layer_{layer}"
        attended = attend_itself(
            layer,
            attention(writer, f"{path}/self_attention", shape),
            writer.enter(x, f"{path}/self_residual/norm"),
        )
        x = writer.leave(x, attended, f"{path}/self_residual/norm")
        if memory:
            reader, norm = (
                attention(writer, f"{path}/cross_attention", shape),
                f"{path}/cross_residual/norm",
            )
            attended, weights = reader.to_source(
                writer.enter(x, norm), memory[2 * layer : 2 * layer + 2], memory[-1]
            )
            x = writer.leave(x, attended, norm)
            source_weights.append(weights)
        x = writer.feed_forward(x, path)
    return writer.finish(x, "decoder"), source_weights


def _mean_over_heads(writer: OperatorWriter, weights: ir.Value | None, shape: ir.Value) -> ir.Value:
    """Return the attention (A, M, S), or (A, M, 0) if the model has no encoder."""
    if weights is not None:
        return writer.op("ReduceMean", [weights, writer.ints(1)], keepdims=0)
    return writer.op(
        "Expand",
        [
            writer.constant("nothing", np.float32(0)),
            writer.op("Concat", [shape, writer.ints(0)], axis=0),
        ],
    )


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


# The tokens that a model puts before every source and every target, see `models.prefixes`. A model
# without such tokens has none of these operators. N is the number of tokens that a step reads for
# each sentence: the prefix's P and the beams' M at first, later only M.


def _prefixed(writer: OperatorWriter, side: str, ids: ir.Value) -> ir.Value:
    """Put the prefix of a side before ids (B, T): (B, P+T)."""
    return (
        writer.op("Concat", [_of_each_row(writer, side, ids), ids], axis=1)
        if _prefix(writer, side)
        else ids
    )


def _read_by_step(
    writer: OperatorWriter, last: ir.Value, position: ir.Value, lineage: ir.Value
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return what a step reads: ids (A, N), their position () or positions (N,), and the lineage
    mask (A, 1, N, P+T*M).

    Args:
        writer: writer of the operators.
        last: ids (A, M), the last token of each beam.
        position: int32 (), that of these tokens.
        lineage: additive mask (A, 1, M, T*M).
    """
    op, prefix = writer.op, len(writer.config.target_prefix)
    if not prefix:
        return last, position, lineage
    position = op("Cast", [position], to=ir.DataType.INT64.value)
    first = op(
        "Cast",
        [op("Equal", [position, writer.constant("start", np.int64(0))])],
        to=ir.DataType.INT64.value,
    )
    new = op("Mul", [first, writer.ints(prefix)])  # (1,): N - M
    tokens = op(
        "Concat", [_slice(writer, _of_each_row(writer, "target", last), new, 1), last], axis=1
    )
    # (M,)
    own = op("Expand", [op("Add", [position, writer.ints(prefix)]), op("Shape", [last], start=1)])
    positions = op("Concat", [_slice(writer, writer.ints(*range(prefix)), new, 0), own], axis=0)
    return tokens, positions, _mask(writer, lineage, new)


def _mask(writer: OperatorWriter, lineage: ir.Value, new: ir.Value) -> ir.Value:
    """Return the lineage mask with rows for the tokens of the prefix that a step reads, and visible
    columns for the whole prefix.
    """
    op, given = writer.op, len(writer.config.target_prefix)
    causal = np.triu(np.full((1, 1, given, given), HIDDEN, "float32"), 1)
    before = op(
        "Expand",
        [writer.constant("prefix_visible", np.float32(0)), _shape_with(writer, lineage, given)],
    )
    seen = op("Concat", [before, lineage], axis=3)  # (A, 1, M, P+T*M)
    sizes = [op("Shape", [lineage], end=2), new, op("Shape", [lineage], start=3)]
    # (A, 1, N - M, T*M)
    hidden = op(
        "Expand", [writer.constant("hidden", np.float32(HIDDEN)), op("Concat", sizes, axis=0)]
    )
    sizes = [op("Shape", [lineage], end=2), new, writer.ints(given)]
    rows = op(
        "Expand",
        [
            _slice(writer, writer.constant("prefix_causal", causal), new, 2),
            op("Concat", sizes, axis=0),
        ],
    )
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
    return _drop_first(writer, attention, len(writer.config.source_prefix), axis=2)


def _drop_first(writer: OperatorWriter, x: ir.Value, count: int, axis: int) -> ir.Value:
    """Return a value without the first `count` places of an axis."""
    if not count:
        return x
    return writer.op(
        "Slice", [x, writer.ints(count), writer.ints(np.iinfo("int64").max), writer.ints(axis)]
    )


def _last(writer: OperatorWriter, x: ir.Value, beams: ir.Value) -> ir.Value:
    """Return the last M places of (A, N, …)."""
    count = writer.op("Slice", [beams, writer.ints(1), writer.ints(2), writer.ints(0)])  # (1,): M
    return writer.op(
        "Slice", [x, writer.op("Neg", [count]), writer.ints(np.iinfo("int64").max), writer.ints(1)]
    )


def _of_each_row(writer: OperatorWriter, side: str, ids: ir.Value) -> ir.Value:
    """Return the prefix of a side for each row of ids (B, T): (B, P)."""
    prefix = np.array([_prefix(writer, side)], "int32")
    return writer.op(
        "Expand", [writer.constant(f"{side}_prefix", prefix), _shape_with(writer, ids, prefix.size)]
    )


def _prefix(writer: OperatorWriter, side: str) -> tuple[int, ...]:
    return writer.config.source_prefix if side == "source" else writer.config.target_prefix


def _shape_with(writer: OperatorWriter, x: ir.Value, last: int) -> ir.Value:
    """Return the shape of a value with another last size."""
    return writer.op("Concat", [writer.op("Shape", [x], end=-1), writer.ints(last)], axis=0)


def _slice(writer: OperatorWriter, x: ir.Value, end: ir.Value, axis: int) -> ir.Value:
    """Return the first `end` (1,) places of an axis."""
    return writer.op("Slice", [x, writer.ints(0), end, writer.ints(axis)])
