"""Write the operators of the decoder: a step of a search, a full pass, and logits."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from tfk_transformer.export.to_onnx.layer_operators.onnx_attention import StandardAttention
from tfk_transformer.export.to_onnx.layer_operators.onnx_matmul import KERNEL
from tfk_transformer.export.to_onnx.layer_operators.onnx_ssru import SSRUWriter
from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OperatorWriter
from tfk_transformer.export.to_onnx.layer_operators.prefix_operators import (
    add_prefix,
    drop_first,
    last_beams,
    step_inputs,
)
from tfk_transformer.layers.masks import HIDDEN

Mixer: TypeAlias = StandardAttention | SSRUWriter  # what combines target positions


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
    tokens, positions, lineage = step_inputs(writer, tokens, position, lineage)
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

    x, weights = _decode(writer, attention, x, memory, attend_itself)
    if config.target_prefix:
        x = last_beams(writer, x, beams)
    logits = _logits(writer, x, *candidates)
    mean_weights = _mean_over_heads(writer, weights[-1] if memory else None, beams)  # (A, N, P+S)
    if config.target_prefix:
        mean_weights = last_beams(writer, mean_weights, beams)
    attended_from = drop_first(writer, mean_weights, len(config.source_additions), axis=2)
    return [logits, attended_from, *next_cache]


def write_decode(
    writer: OperatorWriter, attention: type[StandardAttention], target: ir.Value, *memory: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Decode` node: a full pass over the target, and its attention
    weights.
    """
    op = writer.op
    target = add_prefix(writer, "target", target)  # (B, P+T)
    length = op.Shape(target, start=1)
    hidden = writer.constant("hidden", np.float32(HIDDEN))
    hidden = op.Expand(hidden, op.Concat(length, length, axis=0))
    causal = op.Trilu(hidden, writer.constant("one_above", np.int64(1)), upper=1)
    positions = None if writer.is_relative else writer.first_positions("target", target)
    x = writer.embed("target", target, positions)
    masks = writer.full_pass_masks("decoder", target, causal)
    self_weights: list[ir.Value] = []

    def attend_itself(layer: int, attend: Mixer, rows: ir.Value) -> ir.Value:
        attended, weights = attend.to_itself(rows, masks[layer])
        self_weights.append(weights)
        return attended

    output, source_weights = _decode(writer, attention, x, memory, attend_itself)
    attended_from = [
        drop_first(writer, weights, len(writer.config.source_additions), axis=3)
        for weights in source_weights or self_weights
    ]
    prefix_length = len(writer.config.target_prefix)
    return [
        drop_first(writer, output, prefix_length, axis=1),
        *(drop_first(writer, weights, prefix_length, axis=2) for weights in attended_from),
    ]


def write_logits(
    writer: OperatorWriter, attention: type[StandardAttention], output: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Logits` node: from decoder output (B, T, D) to logits (B, T, V)."""
    return [_logits(writer, output)]


def _decode(
    writer: OperatorWriter,
    attention: type[StandardAttention],
    x: ir.Value,
    memory: Sequence[ir.Value],
    attend_itself: Callable[[int, Mixer, ir.Value], ir.Value],
) -> tuple[ir.Value, list[ir.Value]]:
    """Write the decoder's layers over embedded rows (A, N, D).

    Args:
        writer: writer of the operators.
        attention: writes attention.
        x: the rows.
        memory: outputs of the `Read` node; empty for a model without an encoder.
        attend_itself: writes the self-attention or the SSRU of a layer over normalized rows.

    Returns:
        The decoder's output (A, N, D), and each layer's attention weights to the source,
        (A, H, N, S).
    """
    source_weights: list[ir.Value] = []
    for layer in range(writer.config.decoder_layers):
        path = f"decoder/layer_{layer}"
        norm = f"{path}/self_residual/norm"
        mixer: Mixer
        if writer.config.decoder_mixer == "ssru":
            mixer = SSRUWriter(writer, f"{path}/ssru")
        else:
            mixer = attention(writer, f"{path}/self_attention")
        attended = attend_itself(layer, mixer, writer.enter(x, norm))
        x = writer.leave(x, attended, norm)
        if memory:
            norm = f"{path}/cross_residual/norm"
            cross_attention = attention(writer, f"{path}/cross_attention")
            attended, weights = cross_attention.to_source(
                writer.enter(x, norm), memory[2 * layer : 2 * layer + 2], memory[-1]
            )
            x = writer.leave(x, attended, norm)
            source_weights.append(weights)
        x = writer.feed_forward(x, path)
    return writer.finish(x, "decoder"), source_weights


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
    num_beams = writer.slice(beams, writer.ints(1), writer.ints(2), axis=0)  # (1,): M
    keys = op.Div(writer.range(count), num_beams)
    if length:
        keys = op.Add(keys, writer.ints(length))
        keys = op.Concat(writer.ints(*range(length)), keys, axis=0)
    return writer.biased_masks("decoder", lineage, queries, keys)


def _mean_over_heads(writer: OperatorWriter, weights: ir.Value | None, shape: ir.Value) -> ir.Value:
    """Return the attention (A, M, S), or (A, M, 0) if the model has no encoder."""
    if weights is not None:
        return writer.op.ReduceMean(weights, writer.ints(1), keepdims=0)
    nothing = writer.constant("nothing", np.float32(0))
    return writer.op.Expand(nothing, writer.op.Concat(shape, writer.ints(0), axis=0))


def _logits(writer: OperatorWriter, x: ir.Value, candidates: ir.Value | None = None) -> ir.Value:
    """Return logits (A, M, V), or only the logits (A, M, n) of candidates (n,)."""
    bias = writer.weights.get("output/bias")
    kernel = writer.weights.get(KERNEL)
    if kernel is not None and candidates is None:
        return writer.matmul.multiply(x, KERNEL, kernel, bias)
    name = writer.table("target") if kernel is None else KERNEL
    table = writer.weights[name] if kernel is None else kernel.T
    if candidates is None:
        return writer.matmul.multiply_by_table(x, name, table, bias)
    return writer.matmul.multiply_by_some_of_table(x, name, table, candidates, bias)
