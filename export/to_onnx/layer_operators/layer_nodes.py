"""Insert a model's layers into the graphs of its search and scoring.

tf2onnx converts a layer to about 150 operators. The templates have a single node instead of all
layers, see `scripts/template_building.py`. This module writes about 30 operators for each layer.

N is the number of tokens that a step reads for each sentence: P + M in the first step, for the
prefix and the beams, and M in later steps. A model without a prefix has P = 0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from tfk_transformer.config.model_options import ClassifierConfig, TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.export.to_onnx import conversion
from tfk_transformer.export.to_onnx.conversion import DOMAIN, MEMBER
from tfk_transformer.export.to_onnx.layer_operators import mixers
from tfk_transformer.export.to_onnx.layer_operators.onnx_matmul import CONTRIB, KERNEL
from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OPEN_END, OperatorWriter
from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import WeightRounding
from tfk_transformer.inference.signatures import cache_shapes, memory_shapes
from tfk_transformer.layers.masks import HIDDEN

Mixer: TypeAlias = mixers.StandardAttention | mixers.SSRUWriter  # what combines target positions


def insert_layers(
    outer: ir.Model, members: Mapping[str, Any], rounding: WeightRounding | None = None
) -> None:
    """Replace the nodes of `expansion.expand` that represent layers by the operators of the layers.

    The members are built models by the prefix of their weights in the whole model. Without a
    `rounding`, the operators are standard, and the weights float32.
    """
    weights = {
        prefix: {name: np.asarray(weight) for name, weight in member.named_weights.items()}
        for prefix, member in members.items()
    }
    prefixes = list(members)

    def writer_of(node: ir.Node) -> OperatorWriter:
        prefix = prefixes[node.attributes[MEMBER].as_int()]
        config = members[prefix].config
        encodes = node.op_type in (conversion.READ, conversion.CLASSIFY_OPERATOR)
        options = config if encodes else config.decoder_options()
        return OperatorWriter(outer.graph, config, options, weights[prefix], rounding, prefix)

    for node in [node for node in outer.graph.all_nodes() if node.domain == DOMAIN]:
        # All members read the same source.
        if rounding and node.op_type == conversion.READ and node.attributes[MEMBER].as_int() == 0:
            _pad_source(writer_of(node), node.inputs[0])
        writer = writer_of(node)
        outputs = WRITE[node.op_type](writer, *node.inputs)
        ir.convenience.replace_nodes_and_values(
            node.graph, node, [node], writer.op.nodes, node.outputs, outputs
        )
    outer.opset_imports.pop(DOMAIN, None)
    if any(node.domain == CONTRIB for node in outer.graph.all_nodes()):
        outer.opset_imports[CONTRIB] = 1


def _pad_source(writer: OperatorWriter, source: Value) -> None:
    """Pad source ids (B, S) so that S plus the number of the model's additions is a multiple.

    The sums over a source are then the same in every batch; see `ReproducibleAttention`.
    """
    op = writer.op
    readers = list(source.uses())
    count = op.Add(op.Shape(source, start=1), writer.ints(len(writer.config.source_additions)))
    missing = op.Mod(op.Neg(count), writer.ints(writer.source_multiple))
    padded = op.Pad(source, op.Concat(writer.ints(0, 0, 0), missing, axis=0))
    for node, index in readers:
        node.replace_input_with(index, padded)
    producer = source.producer()
    if producer is None:
        writer.graph.insert_before(writer.graph[0], op.nodes)
    else:
        writer.graph.insert_after(producer, op.nodes)


def write_read(writer: OperatorWriter, source: Value) -> list[Value]:
    """Write the memory of each decoder layer, and the source's mask, from source ids (B, S)."""
    config = cast(TransformerConfig, writer.config)  # only models with an encoder have this node
    encoded, packed, mask = _encode(writer, writer.add_prefix("source", source))
    memory: list[Value] = []
    for layer in range(config.decoder_layers):
        path = f"decoder/layer_{layer}/cross_attention"
        reader = mixers.attention(writer, path, packed=packed)
        heads = reader.heads(encoded, reader.context_roles)
        memory += [heads[0], heads[-1]]
    return [*memory, mask]


def _write_classify(writer: OperatorWriter, source: Value) -> list[Value]:
    """Write logits (B, C) from ids (B, S); see `EncoderClassifier.call`."""
    op = writer.op
    encoded, packed, _ = _encode(writer, source)
    encoded = packed.unpack(encoded)
    is_real = op.Not(op.Equal(source, writer.constant("pad", np.int32(PAD_ID))))
    real = op.Cast(is_real, to=ir.DataType.FLOAT.value)  # (B, S)
    count = op.ReduceSum(real, writer.ints(1), keepdims=1)
    count = op.Max(count, writer.constant("one", np.float32(1)))
    shares = op.Unsqueeze(op.Div(real, count), writer.ints(2))  # (B, S, 1)
    mean = op.ReduceSum(op.Mul(encoded, shares), writer.ints(1), keepdims=0)  # (B, D)
    head = (writer.weights["head/kernel"], writer.weights["head/bias"])
    return [writer.matmul.multiply(mean, "head/kernel", *head)]


def _encode(writer: OperatorWriter, source: Value) -> tuple[Value, mixers.PackedRows, Value]:
    """Write rows (N, D) without padding, and the additive mask (B, 1, 1, S), from ids (B, S).

    The ids have the model's prefix.
    """
    op = writer.op
    config = cast(TransformerConfig | ClassifierConfig, writer.config)
    is_hidden = op.Equal(source, writer.constant("pad", np.int32(PAD_ID)))
    if isinstance(config, TransformerConfig) and not config.source_end:
        is_hidden = op.Or(is_hidden, op.Equal(source, writer.constant("end", np.int32(END_ID))))
    hidden = op.Cast(is_hidden, to=ir.DataType.FLOAT.value)
    hidden = op.Mul(hidden, writer.constant("hidden", np.float32(HIDDEN)))
    mask = op.Unsqueeze(hidden, writer.ints(1, 2))
    is_relative = config.has_relative_positions
    positions = None if is_relative else _source_positions(writer, source, is_hidden)
    packed = mixers.PackedRows(writer, is_hidden)
    x = packed.pack(writer.embed("source", source, positions))
    masks = writer.full_pass_masks("encoder", source, mask)
    for layer in range(config.encoder_layers):
        path = f"encoder/layer_{layer}"
        norm = f"{path}/attention_residual/norm"
        self_attention = mixers.attention(writer, f"{path}/attention", packed=packed)
        attended, _ = self_attention.to_itself(writer.enter(x, norm), masks[layer])
        x = writer.feed_forward(writer.leave(x, attended, norm), path)
    return writer.finish(x, "encoder"), packed, mask


def _source_positions(writer: OperatorWriter, ids: Value, is_hidden: Value) -> Value:
    """Return positions (S, D), or (B, S, D) as in `models.transformer.positions_with_suffix`."""
    suffix = len(getattr(writer.config, "source_suffix", ()))  # a classifier has none
    if not suffix:
        return writer.first_positions("source", ids)
    op = writer.op
    visible = op.Cast(op.Not(is_hidden), to=ir.DataType.INT64.value)
    count = op.ReduceSum(visible, writer.ints(1), keepdims=1)  # (B, 1)
    after = op.Add(count, writer.ints(*range(-suffix, 0)))
    length = op.Sub(op.Shape(ids, start=1), writer.ints(suffix))
    others = op.Expand(writer.range(length), op.Concat(op.Shape(ids, end=1), length, axis=0))
    return op.Gather(writer.positions("source"), op.Concat(after, others, axis=1))


def write_step(
    writer: OperatorWriter, tokens: Value, position: Value, lineage: Value | None, *rest: Value
) -> list[Value]:
    """Write the logits of each hypothesis' next token, the attention, and the longer cache.

    A lineage of None is correct for M = 1. `rest` is the cache, then the memory of a model with an
    encoder, then the candidates, if any.
    """
    op = writer.op
    config = writer.config
    parts = 1 if config.has_ssru else 2  # values of a layer's cache
    memory_start = len(cache_shapes(config))
    memory_end = memory_start + len(memory_shapes(config))
    memory = rest[memory_start:memory_end]
    beams = op.Shape(tokens)  # A, M
    positions = position
    one_query = lineage is None and not config.target_prefix
    if lineage is None and (config.target_prefix or writer.relative_tables("decoder")):
        rows = writer.slice(beams, writer.ints(0), writer.ints(1), axis=0)
        columns = op.Add(op.Cast(position, to=ir.DataType.INT64.value), writer.ints(1))
        sizes = op.Concat(rows, writer.ints(1, 1), columns, axis=0)
        lineage = op.Expand(writer.constant("visible", np.float32(0)), sizes)
    if config.target_prefix:
        tokens, positions, lineage = _with_prefix(writer, tokens, position, lineage)
    encoding = None
    if not config.has_relative_positions:
        encoding = op.Gather(writer.positions("target"), positions)
    x = writer.embed("target", tokens, encoding)
    masks = _biased_step_masks(writer, positions, beams, lineage)
    next_cache: list[Value] = []

    def attend_itself(layer: int, attend: Mixer, rows: Value) -> Value:
        past = rest[parts * layer : parts * (layer + 1)]
        attended, longer = attend.to_past(rows, past, masks[layer])
        next_cache.extend(longer)
        return attended

    x, weights = _decode(writer, x, memory, attend_itself, one_query)
    logits = _write_logits(writer, _last_beams(writer, x, beams), *rest[memory_end:])
    if memory:
        mean_weights = op.ReduceMean(weights[-1], writer.ints(1), keepdims=0)  # (A, N, P+S)
    else:
        nothing = writer.constant("nothing", np.float32(0))
        mean_weights = op.Expand(nothing, op.Concat(beams, writer.ints(0), axis=0))  # (A, M, 0)
    mean_weights = _last_beams(writer, mean_weights, beams)
    attended_from = writer.drop_first(mean_weights, len(config.source_additions), axis=2)
    return [logits, attended_from, *next_cache]


def _write_greedy_step(
    writer: OperatorWriter, token: Value, position: Value, *rest: Value
) -> list[Value]:
    writer.matmul.is_greedy = True
    return write_step(writer, token, position, None, *rest)


def _with_prefix(
    writer: OperatorWriter, last: Value, position: Value, lineage: Value
) -> tuple[Value, Value, Value]:
    """Put the prefix before a first step: ids (A, N), positions (N,), mask (A, 1, N, P+T*M)."""
    op = writer.op
    length = len(writer.config.target_prefix)
    position = op.Cast(position, to=ir.DataType.INT64.value)
    is_first = op.Equal(position, writer.constant("start", np.int64(0)))
    is_first = op.Cast(is_first, to=ir.DataType.INT64.value)
    new = op.Mul(is_first, writer.ints(length))  # (1,): N - M
    prefix = writer.slice(writer.repeat_prefix("target", last), writer.ints(0), new, axis=1)
    tokens = op.Concat(prefix, last, axis=1)
    beam_position = op.Add(position, writer.ints(length))
    beam_positions = op.Expand(beam_position, op.Shape(last, start=1))  # (M,)
    prefix_positions = writer.slice(writer.ints(*range(length)), writer.ints(0), new, axis=0)
    positions = op.Concat(prefix_positions, beam_positions, axis=0)
    # The mask: visible columns for the whole prefix, and rows for its new tokens.
    visible = writer.constant("prefix_visible", np.float32(0))
    visible = writer.expand_last(visible, lineage, length)
    beam_rows = op.Concat(visible, lineage, axis=3)  # (A, 1, M, P+T*M)
    sizes = [op.Shape(lineage, end=2), new, op.Shape(lineage, start=3)]
    hidden = writer.constant("hidden", np.float32(HIDDEN))
    hidden = op.Expand(hidden, op.Concat(*sizes, axis=0))  # (A, 1, N - M, T*M)
    sizes = [op.Shape(lineage, end=2), new, writer.ints(length)]
    causal = np.triu(np.full((1, 1, length, length), HIDDEN, "float32"), 1)
    causal_rows = writer.constant("prefix_causal", causal)
    causal_rows = writer.slice(causal_rows, writer.ints(0), new, axis=2)
    causal_rows = op.Expand(causal_rows, op.Concat(*sizes, axis=0))
    prefix_rows = op.Concat(causal_rows, hidden, axis=3)  # (A, 1, N - M, P+T*M)
    return tokens, positions, op.Concat(prefix_rows, beam_rows, axis=2)


def _last_beams(writer: OperatorWriter, x: Value, beams: Value) -> Value:
    """Return the last M of the N elements of (A, N, …); `beams` are int64 [A, M]."""
    if not writer.config.target_prefix:
        return x
    count = writer.slice(beams, writer.ints(1), writer.ints(2), axis=0)  # (1,): M
    return writer.slice(x, writer.op.Neg(count), writer.ints(OPEN_END), axis=1)


def _write_decode(writer: OperatorWriter, target: Value, *memory: Value) -> list[Value]:
    """Write a full pass over the target, and its attention weights."""
    op = writer.op
    target = writer.add_prefix("target", target)  # (B, P+T)
    length = op.Shape(target, start=1)
    hidden = writer.constant("hidden", np.float32(HIDDEN))
    hidden = op.Expand(hidden, op.Concat(length, length, axis=0))
    causal = op.Trilu(hidden, writer.constant("one_above", np.int64(1)), upper=1)
    is_relative = writer.config.has_relative_positions
    positions = None if is_relative else writer.first_positions("target", target)
    x = writer.embed("target", target, positions)
    masks = writer.full_pass_masks("decoder", target, causal)
    self_weights: list[Value] = []

    def attend_itself(layer: int, attend: Mixer, rows: Value) -> Value:
        attended, weights = attend.to_itself(rows, masks[layer])
        self_weights.append(weights)
        return attended

    output, source_weights = _decode(writer, x, memory, attend_itself)
    attended_from = [
        writer.drop_first(weights, len(writer.config.source_additions), axis=3)
        for weights in source_weights or self_weights
    ]
    prefix_length = len(writer.config.target_prefix)
    return [
        writer.drop_first(output, prefix_length, axis=1),
        *(writer.drop_first(weights, prefix_length, axis=2) for weights in attended_from),
    ]


def _decode(
    writer: OperatorWriter,
    x: Value,
    memory: Sequence[Value],
    attend_itself: Callable[[int, Mixer, Value], Value],
    one_query: bool = False,
) -> tuple[Value, list[Value]]:
    """Write the decoder's layers over embedded rows (A, N, D), with the mixers of `attend_itself`.

    With `one_query`, N is 1. Return its output (A, N, D), and each layer's attention weights to the
    source (A, H, N, S).
    """
    source_weights: list[Value] = []
    for layer in range(writer.config.decoder_layers):
        path = f"decoder/layer_{layer}"
        norm = f"{path}/self_residual/norm"
        mixer: Mixer
        if writer.config.has_ssru:
            mixer = mixers.SSRUWriter(writer, f"{path}/ssru")
        else:
            mixer = mixers.attention(writer, f"{path}/self_attention", one_query)
        attended = attend_itself(layer, mixer, writer.enter(x, norm))
        x = writer.leave(x, attended, norm)
        if memory:
            norm = f"{path}/cross_residual/norm"
            cross_attention = mixers.attention(writer, f"{path}/cross_attention", one_query)
            attended, weights = cross_attention.to_source(
                writer.enter(x, norm), memory[2 * layer : 2 * layer + 2], memory[-1]
            )
            x = writer.leave(x, attended, norm)
            source_weights.append(weights)
        x = writer.feed_forward(x, path)
    return writer.finish(x, "decoder"), source_weights


def _biased_step_masks(
    writer: OperatorWriter, position: Value, beams: Value, lineage: Value | None
) -> list[Value | None]:
    """Return each layer's mask for a step, from positions () or (N,) and a mask (A, 1, N, P+T*M).

    `beams` are int64 [A, M].
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
    num_beams = writer.slice(beams, writer.ints(1), writer.ints(2), axis=0)  # (1,): M
    keys = op.Div(writer.range(count), num_beams)
    if length:
        keys = op.Add(keys, writer.ints(length))
        keys = op.Concat(writer.ints(*range(length)), keys, axis=0)
    return writer.biased_masks("decoder", lineage, queries, keys)


def _write_logits(writer: OperatorWriter, x: Value, candidates: Value | None = None) -> Value:
    """Write logits (A, M, V), or only the logits (A, M, n) of candidates (n,)."""
    bias = writer.weights.get("output/bias")
    kernel = writer.weights.get(KERNEL)
    if kernel is not None and candidates is None:
        return writer.matmul.multiply(x, KERNEL, kernel, bias)
    name = writer.table("target") if kernel is None else KERNEL
    table = writer.weights[name] if kernel is None else kernel.T
    return writer.matmul.multiply_by_table(x, name, table, bias, candidates)


WRITE: dict[str, Callable[..., list[Value]]] = {
    conversion.READ: write_read,
    conversion.STEP: write_step,
    conversion.GREEDY_STEP: _write_greedy_step,
    conversion.DECODE: _write_decode,
    conversion.LOGITS: lambda writer, output: [_write_logits(writer, output)],
    conversion.CLASSIFY_OPERATOR: _write_classify,
}
