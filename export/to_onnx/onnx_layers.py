"""Insert a model's layers into the graphs of its search and scoring.

tf2onnx converts a layer to about 150 operators. Therefore the templates of search and scoring have
a single node instead of the layers (see `templates`). This module replaces these nodes by operators
that it writes from the configuration and the weights, about 30 standard operators for each layer.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import onnx_ir as ir

from tfk_transformer.config.model_options import ClassifierConfig, TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID
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
from tfk_transformer.export.to_onnx.onnx_ssru import SSRUWriter
from tfk_transformer.export.to_onnx.operator_writer import OperatorWriter
from tfk_transformer.layers.masks import HIDDEN
from tfk_transformer.models.classifier import Classifier
from tfk_transformer.models.configured_model import ConfiguredModel
from tfk_transformer.models.token_model import TokenModel

OPEN_END = np.iinfo("int64").max  # the end of a slice to the last element
Mixer: TypeAlias = StandardAttention | SSRUWriter  # what combines target positions


class Profile(NamedTuple):
    """The classes that write the operators of the layers."""

    attention: type[StandardAttention]
    matmul: Callable[..., Float32MatMul]


PORTABLE = Profile(StandardAttention, Float32MatMul)  # standard operators only


def int8_profile(rows: Mapping[str, RowStatistics], float32_names: Sequence[str] = ()) -> Profile:
    """Return the profile "int8", which rounds weights to 8 bits.

    Args:
        rows: statistics of the rows of each product, by the name of the weights in the whole
            model; see `calibration.observe_rows`.
        float32_names: parts of the names of weights that remain float32.
    """
    matmul = functools.partial(Int8MatMul, rows=rows, float32_names=float32_names)
    return Profile(ReproducibleAttention, matmul)


def insert_layers(outer: ir.Model, model: ConfiguredModel, profile: Profile) -> None:
    """Replace the nodes that represent a model's layers by the operators of the layers.

    Args:
        outer: a graph with nodes for the model's layers, such as a result of
            `templates.expansion.expand`; it is changed. The operator of a node ends with the number
            of the member, as in Read_0.
        model: the model with the weights.
        profile: `PORTABLE`, or a result of `int8_profile`.
    """
    named_members: dict[str, Any] = {"": model}
    if not isinstance(model, Classifier):
        named_members = cast(TokenModel, model).named_members()
    members = list(named_members.items())
    member_weights = [
        {name: np.asarray(weight) for name, weight in member.named_weights.items()}
        for _, member in members
    ]
    for node in [node for node in outer.graph.all_nodes() if node.domain == DOMAIN]:
        layers, number = node.op_type.split("_")
        prefix, member = members[int(number)]
        config = member.config
        options = config if layers in (READ, CLASSIFY_OPERATOR) else config.decoder_options()
        weights = member_weights[int(number)]
        writer = OperatorWriter(outer.graph, config, options, weights, profile.matmul, prefix)
        outputs = WRITE[layers](writer, profile.attention, *node.inputs)
        ir.convenience.replace_nodes_and_values(
            node.graph, node, [node], writer.op.nodes, node.outputs, outputs
        )
    outer.opset_imports.pop(DOMAIN, None)
    if any(node.domain == CONTRIB for node in outer.graph.all_nodes()):
        outer.opset_imports[CONTRIB] = 1


def write_read(
    writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Read` node.

    They compute the memory of each decoder layer and the source's mask from source ids (B, S).
    """
    config = cast(TransformerConfig, writer.config)  # only models with an encoder have this node
    source = _add_prefix(writer, "source", source)
    shape = writer.op.Shape(source)
    encoded, mask = _encode(writer, attention, source, shape)
    memory: list[ir.Value] = []
    for layer in range(config.decoder_layers):
        reader = attention(writer, f"decoder/layer_{layer}/cross_attention", shape)
        memory += reader.project_source(encoded)
    return [*memory, mask]


def write_classify(
    writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Classify` node: from ids (B, S) to logits (B, C); see
    `Classifier.call`.
    """
    op = writer.op
    shape = op.Shape(source)
    encoded, _ = _encode(writer, attention, source, shape)
    rows = _split_rows(writer, encoded, shape, writer.config.model_dim)  # (B, S, D)
    is_real = op.Not(op.Equal(source, writer.constant("pad", np.int32(PAD_ID))))
    real = op.Cast(is_real, to=ir.DataType.FLOAT.value)  # (B, S)
    count = op.ReduceSum(real, writer.ints(1), keepdims=1)
    count = op.Max(count, writer.constant("one", np.float32(1)))
    shares = op.Unsqueeze(op.Div(real, count), writer.ints(2))  # (B, S, 1)
    mean = op.ReduceSum(op.Mul(rows, shares), writer.ints(1), keepdims=0)  # (B, D)
    head = (writer.weights["head/kernel"], writer.weights["head/bias"])
    return [writer.matmul.multiply(mean, "head/kernel", *head)]


def _encode(
    writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value, shape: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Write the encoder.

    Args:
        writer: writer of the operators.
        attention: writes attention.
        source: ids (B, S), with the prefix.
        shape: int64 [B, S].

    Returns:
        Rows (B*S, D), and the additive mask (B, 1, 1, S).
    """
    op = writer.op
    config = cast(TransformerConfig | ClassifierConfig, writer.config)
    is_hidden = op.Equal(source, writer.constant("pad", np.int32(PAD_ID)))
    if isinstance(config, TransformerConfig) and not config.source_end:
        is_hidden = op.Or(is_hidden, op.Equal(source, writer.constant("end", np.int32(END_ID))))
    hidden = op.Cast(is_hidden, to=ir.DataType.FLOAT.value)
    hidden = op.Mul(hidden, writer.constant("hidden", np.float32(HIDDEN)))
    mask = op.Unsqueeze(hidden, writer.ints(1, 2))
    positions = None if writer.is_relative else _source_positions(writer, source, is_hidden)
    x = writer.embed("source", source, positions)
    masks = _full_pass_masks(writer, "encoder", source, mask)
    for layer in range(config.encoder_layers):
        path = f"encoder/layer_{layer}"
        norm = f"{path}/attention_residual/norm"
        self_attention = attention(writer, f"{path}/attention", shape)
        attended, _ = self_attention.to_itself(writer.enter(x, norm), masks[layer])
        x = writer.feed_forward(writer.leave(x, attended, norm), path)
    return writer.finish(x, "encoder"), mask


def _source_positions(writer: OperatorWriter, ids: ir.Value, is_hidden: ir.Value) -> ir.Value:
    """Return the positions of a source's ids (B, S) with its additions: (S, D), or (B, S, D) for a
    model with a suffix; see `models.prefixes.positions_with_suffix`.
    """
    suffix = len(getattr(writer.config, "source_suffix", ()))  # a classifier has none
    if not suffix:
        return _first_positions(writer, "source", ids)
    op = writer.op
    visible = op.Cast(op.Not(is_hidden), to=ir.DataType.INT64.value)
    count = op.ReduceSum(visible, writer.ints(1), keepdims=1)  # (B, 1)
    after = op.Add(count, writer.ints(*range(-suffix, 0)))
    length = op.Sub(op.Shape(ids, start=1), writer.ints(suffix))
    first = writer.constant("start", np.int64(0))
    others = op.Range(first, op.Squeeze(length), writer.constant("one_step", np.int64(1)))
    others = op.Expand(others, op.Concat(op.Shape(ids, end=1), length, axis=0))
    return op.Gather(writer.positions("source"), op.Concat(after, others, axis=1))


def _first_positions(writer: OperatorWriter, side: str, ids: ir.Value) -> ir.Value:
    """Return the positions (T, D) of ids (B, T)."""
    length = writer.op.Shape(ids, start=1)
    return _slice(writer, writer.positions(side), writer.ints(0), length, axis=0)


def _full_pass_masks(
    writer: OperatorWriter, stack: str, ids: ir.Value, mask: ir.Value
) -> list[ir.Value]:
    """Return each layer's mask for the self-attention of a full pass over ids (B, T)."""
    if not writer.relative_tables(stack):
        return [mask] * getattr(writer.config, f"{stack}_layers")
    positions = _range(writer, writer.op.Shape(ids, start=1))
    return writer.biased_masks(stack, mask, positions, positions)


def _biased_step_masks(
    writer: OperatorWriter, position: ir.Value, beams: ir.Value, lineage: ir.Value
) -> list[ir.Value]:
    """Return each layer's mask for the self-attention of a step.

    Args:
        writer: writer of the operators.
        position: integers () or (N,), the positions of the new tokens.
        beams: int64 [A, M].
        lineage: additive mask (A, 1, N, P+T*M).
    """
    if not writer.relative_tables("decoder"):
        return [lineage] * writer.config.decoder_layers
    op = writer.op
    queries = op.Reshape(op.Cast(position, to=ir.DataType.INT64.value), writer.ints(-1))
    length = len(writer.config.target_prefix)
    count = op.Shape(lineage, start=3)
    if length:
        count = op.Sub(count, writer.ints(length))
    # A cache has M keys for each position after the prefix.
    num_beams = _slice(writer, beams, writer.ints(1), writer.ints(2), axis=0)  # (1,): M
    keys = op.Div(_range(writer, count), num_beams)
    if length:
        keys = op.Add(keys, writer.ints(length))
        keys = op.Concat(writer.ints(*range(length)), keys, axis=0)
    return writer.biased_masks("decoder", lineage, queries, keys)


def _range(writer: OperatorWriter, count: ir.Value) -> ir.Value:
    """Return int64 (n,), the numbers from 0 to n - 1, for n as (1,)."""
    first = writer.constant("start", np.int64(0))
    step = writer.constant("one_step", np.int64(1))
    return writer.op.Range(first, writer.op.Squeeze(count), step)


def write_step(
    writer: OperatorWriter,
    attention: type[StandardAttention],
    tokens: ir.Value,
    position: ir.Value,
    lineage: ir.Value,
    *rest: ir.Value,
) -> list[ir.Value]:
    """Write the operators of a `Step` node.

    They compute the logits of the next token of each open hypothesis, the attention, and the longer
    cache.
    """
    config = writer.config
    layers = config.decoder_layers
    parts = 1 if config.decoder_mixer == "ssru" else 2  # values of a layer's cache
    memory_end = (parts + 2) * layers + 1
    if config.architecture == "decoder":
        memory_end = parts * layers
    cache = rest[: parts * layers]
    memory = rest[parts * layers : memory_end]
    candidates = rest[memory_end:]
    beams = writer.op.Shape(tokens)  # A, M
    tokens, positions, lineage = _step_inputs(writer, tokens, position, lineage)
    shape = writer.op.Shape(tokens) if config.target_prefix else beams  # A, N
    encoding = None
    if not writer.is_relative:
        encoding = writer.op.Gather(writer.positions("target"), positions)
    x = writer.embed("target", tokens, encoding)
    masks = _biased_step_masks(writer, positions, beams, lineage)
    next_cache: list[ir.Value] = []

    def attend_itself(layer: int, attend: Mixer, rows: ir.Value) -> ir.Value:
        past = cache[parts * layer : parts * (layer + 1)]
        attended, longer = attend.to_past(rows, past, masks[layer])
        next_cache.extend(longer)
        return attended

    x, weights = _decode(writer, attention, x, shape, memory, attend_itself)
    logits = _logits(writer, _beam_rows(writer, x, shape, beams), *candidates)
    logits = _split_rows(writer, logits, beams, -1 if candidates else config.target_vocab_size)
    mean_weights = _mean_over_heads(writer, weights[-1] if memory else None, beams)  # (A, N, P+S)
    if config.target_prefix:
        mean_weights = _last_beams(writer, mean_weights, beams)
    attended_from = _drop_first(writer, mean_weights, len(config.source_additions), axis=2)
    return [logits, attended_from, *next_cache]


def write_decode(
    writer: OperatorWriter, attention: type[StandardAttention], target: ir.Value, *memory: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Decode` node: a full pass over the target, and its attention
    weights.
    """
    op = writer.op
    target = _add_prefix(writer, "target", target)  # (B, P+T)
    shape = op.Shape(target)
    length = op.Shape(target, start=1)
    hidden = writer.constant("hidden", np.float32(HIDDEN))
    hidden = op.Expand(hidden, op.Concat(length, length, axis=0))
    causal = op.Trilu(hidden, writer.constant("one_above", np.int64(1)), upper=1)
    positions = None if writer.is_relative else _first_positions(writer, "target", target)
    x = writer.embed("target", target, positions)
    masks = _full_pass_masks(writer, "decoder", target, causal)
    self_weights: list[ir.Value] = []

    def attend_itself(layer: int, attend: Mixer, rows: ir.Value) -> ir.Value:
        attended, weights = attend.to_itself(rows, masks[layer])
        self_weights.append(weights)
        return attended

    x, source_weights = _decode(writer, attention, x, shape, memory, attend_itself)
    output = _split_rows(writer, x, shape, writer.config.model_dim)
    attended_from = [
        _drop_first(writer, weights, len(writer.config.source_additions), axis=3)
        for weights in source_weights or self_weights
    ]
    prefix_length = len(writer.config.target_prefix)
    return [
        _drop_first(writer, output, prefix_length, axis=1),
        *(_drop_first(writer, weights, prefix_length, axis=2) for weights in attended_from),
    ]


def write_logits(
    writer: OperatorWriter, attention: type[StandardAttention], output: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Logits` node: from decoder output (B, T, D) to logits (B, T, V)."""
    shape = writer.op.Shape(output, end=2)
    rows = writer.op.Reshape(output, writer.ints(-1, writer.config.model_dim))
    return [_split_rows(writer, _logits(writer, rows), shape, writer.config.target_vocab_size)]


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
    attend_itself: Callable[[int, Mixer, ir.Value], ir.Value],
) -> tuple[ir.Value, list[ir.Value]]:
    """Write the decoder's layers over embedded rows (R, D).

    Args:
        writer: writer of the operators.
        attention: writes attention.
        x: the rows.
        shape: int64 [A, N], where A*N is the number of rows.
        memory: outputs of the `Read` node; empty for a model without an encoder.
        attend_itself: writes the self-attention or the SSRU of a layer over normalized rows.

    Returns:
        The decoder's output (R, D), and each layer's attention weights to the source (A, H, N, S).
    """
    source_weights: list[ir.Value] = []
    for layer in range(writer.config.decoder_layers):
        path = f"decoder/layer_{layer}"
        norm = f"{path}/self_residual/norm"
        mixer: Mixer
        if writer.config.decoder_mixer == "ssru":
            mixer = SSRUWriter(writer, f"{path}/ssru", shape)
        else:
            mixer = attention(writer, f"{path}/self_attention", shape)
        attended = attend_itself(layer, mixer, writer.enter(x, norm))
        x = writer.leave(x, attended, norm)
        if memory:
            norm = f"{path}/cross_residual/norm"
            cross_attention = attention(writer, f"{path}/cross_attention", shape)
            attended, weights = cross_attention.to_source(
                writer.enter(x, norm), memory[2 * layer : 2 * layer + 2], memory[-1]
            )
            x = writer.leave(x, attended, norm)
            source_weights.append(weights)
        x = writer.feed_forward(x, path)
    return writer.finish(x, "decoder"), source_weights


def _mean_over_heads(writer: OperatorWriter, weights: ir.Value | None, shape: ir.Value) -> ir.Value:
    """Return the attention (A, M, S), or (A, M, 0) if the model has no encoder."""
    if weights is not None:
        return writer.op.ReduceMean(weights, writer.ints(1), keepdims=0)
    nothing = writer.constant("nothing", np.float32(0))
    return writer.op.Expand(nothing, writer.op.Concat(shape, writer.ints(0), axis=0))


def _logits(writer: OperatorWriter, x: ir.Value, candidates: ir.Value | None = None) -> ir.Value:
    """Return logits (R, V), or only the logits (R, n) of candidates (n,)."""
    bias = writer.weights.get("output/bias")
    kernel = writer.weights.get(KERNEL)
    if kernel is not None and candidates is None:
        return writer.matmul.multiply(x, KERNEL, kernel, bias)
    name = writer.table("target") if kernel is None else KERNEL
    table = writer.weights[name] if kernel is None else kernel.T
    if candidates is None:
        return writer.matmul.multiply_by_table(x, name, table, bias)
    return writer.matmul.multiply_by_some_of_table(x, name, table, candidates, bias)


def _split_rows(writer: OperatorWriter, rows: ir.Value, shape: ir.Value, width: int) -> ir.Value:
    """Reshape rows (A*N, width) to (A, N, width); `shape` is int64 [A, N]."""
    return writer.op.Reshape(rows, writer.op.Concat(shape, writer.ints(width), axis=0))


# The functions below write the operators for the tokens that a model puts before every source and
# every target; see `models.prefixes`. A model without prefixes has none of these operators. N is
# the number of tokens that a step reads for each sentence: P + M in the first step, for the prefix
# and the beams, and M in later steps.


def _add_prefix(writer: OperatorWriter, side: str, ids: ir.Value) -> ir.Value:
    """Put the prefix of a side before ids (B, T): (B, P+T)."""
    if not _prefix(writer, side):
        return ids
    return writer.op.Concat(_repeat_prefix(writer, side, ids), ids, axis=1)


def _step_inputs(
    writer: OperatorWriter, last: ir.Value, position: ir.Value, lineage: ir.Value
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the inputs of a step, which include the prefix in the first step.

    Args:
        writer: writer of the operators.
        last: ids (A, M), the last token of each beam.
        position: int32 (), the position of these tokens.
        lineage: additive mask (A, 1, M, T*M).

    Returns:
        Ids (A, N), their position () or positions (N,), and the lineage mask (A, 1, N, P+T*M).
    """
    op = writer.op
    length = len(writer.config.target_prefix)
    if not length:
        return last, position, lineage
    position = op.Cast(position, to=ir.DataType.INT64.value)
    is_first = op.Equal(position, writer.constant("start", np.int64(0)))
    is_first = op.Cast(is_first, to=ir.DataType.INT64.value)
    new = op.Mul(is_first, writer.ints(length))  # (1,): N - M
    prefix = _slice(writer, _repeat_prefix(writer, "target", last), writer.ints(0), new, axis=1)
    tokens = op.Concat(prefix, last, axis=1)
    beam_position = op.Add(position, writer.ints(length))
    beam_positions = op.Expand(beam_position, op.Shape(last, start=1))  # (M,)
    prefix_positions = _slice(writer, writer.ints(*range(length)), writer.ints(0), new, axis=0)
    positions = op.Concat(prefix_positions, beam_positions, axis=0)
    return tokens, positions, _step_mask(writer, lineage, new)


def _step_mask(writer: OperatorWriter, lineage: ir.Value, new: ir.Value) -> ir.Value:
    """Return the lineage mask with rows for the tokens of the prefix that a step reads, and visible
    columns for the whole prefix.
    """
    op = writer.op
    length = len(writer.config.target_prefix)
    visible = writer.constant("prefix_visible", np.float32(0))
    visible = op.Expand(visible, _shape_with(writer, lineage, length))
    beam_rows = op.Concat(visible, lineage, axis=3)  # (A, 1, M, P+T*M)
    sizes = [op.Shape(lineage, end=2), new, op.Shape(lineage, start=3)]
    hidden = writer.constant("hidden", np.float32(HIDDEN))
    hidden = op.Expand(hidden, op.Concat(*sizes, axis=0))  # (A, 1, N - M, T*M)
    sizes = [op.Shape(lineage, end=2), new, writer.ints(length)]
    causal = np.triu(np.full((1, 1, length, length), HIDDEN, "float32"), 1)
    causal_rows = writer.constant("prefix_causal", causal)
    causal_rows = _slice(writer, causal_rows, writer.ints(0), new, axis=2)
    causal_rows = op.Expand(causal_rows, op.Concat(*sizes, axis=0))
    prefix_rows = op.Concat(causal_rows, hidden, axis=3)  # (A, 1, N - M, P+T*M)
    return op.Concat(prefix_rows, beam_rows, axis=2)


def _beam_rows(writer: OperatorWriter, x: ir.Value, shape: ir.Value, beams: ir.Value) -> ir.Value:
    """Return the rows of the beams (A*M, D) from the rows of all tokens (A*N, D).

    Args:
        writer: writer of the operators.
        x: the rows.
        shape: int64 [A, N].
        beams: int64 [A, M].
    """
    if not writer.config.target_prefix:
        return x
    width = writer.config.model_dim
    beam_rows = _last_beams(writer, _split_rows(writer, x, shape, width), beams)
    return writer.op.Reshape(beam_rows, writer.ints(-1, width))


def _drop_first(writer: OperatorWriter, x: ir.Value, count: int, axis: int) -> ir.Value:
    """Return a value without the first `count` elements of an axis."""
    if not count:
        return x
    return _slice(writer, x, writer.ints(count), writer.ints(OPEN_END), axis)


def _last_beams(writer: OperatorWriter, x: ir.Value, beams: ir.Value) -> ir.Value:
    """Return the last M of the N elements of (A, N, …)."""
    count = _slice(writer, beams, writer.ints(1), writer.ints(2), axis=0)  # (1,): M
    return _slice(writer, x, writer.op.Neg(count), writer.ints(OPEN_END), axis=1)


def _repeat_prefix(writer: OperatorWriter, side: str, ids: ir.Value) -> ir.Value:
    """Return the prefix of a side for each row of ids (B, T): (B, P)."""
    array = np.array([_prefix(writer, side)], "int32")
    prefix = writer.constant(f"{side}_prefix", array)
    return writer.op.Expand(prefix, _shape_with(writer, ids, array.size))


def _prefix(writer: OperatorWriter, side: str) -> tuple[int, ...]:
    return writer.config.source_additions if side == "source" else writer.config.target_prefix


def _shape_with(writer: OperatorWriter, x: ir.Value, last: int) -> ir.Value:
    """Return the shape of a value with `last` as the size of its last axis."""
    return writer.op.Concat(writer.op.Shape(x, end=-1), writer.ints(last), axis=0)


def _slice(
    writer: OperatorWriter, x: ir.Value, start: ir.Value, end: ir.Value, axis: int
) -> ir.Value:
    """Return the elements of an axis from `start` (1,) to `end` (1,)."""
    return writer.op.Slice(x, start, end, writer.ints(axis))
