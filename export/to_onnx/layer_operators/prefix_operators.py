"""Write the operators for the tokens that a model puts before every source and every target.

See `models.prefixes`. A model without prefixes has none of these operators. N is the number of
tokens that a step reads for each sentence: P + M in the first step, for the prefix and the beams,
and M in later steps.
"""

import numpy as np
import onnx_ir as ir

from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OPEN_END, OperatorWriter
from tfk_transformer.layers.masks import HIDDEN


def add_prefix(writer: OperatorWriter, side: str, ids: ir.Value) -> ir.Value:
    """Put the prefix of a side before ids (B, T): (B, P+T)."""
    if not _prefix(writer, side):
        return ids
    return writer.op.Concat(_repeat_prefix(writer, side, ids), ids, axis=1)


def step_inputs(
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
    prefix = writer.slice(_repeat_prefix(writer, "target", last), writer.ints(0), new, axis=1)
    tokens = op.Concat(prefix, last, axis=1)
    beam_position = op.Add(position, writer.ints(length))
    beam_positions = op.Expand(beam_position, op.Shape(last, start=1))  # (M,)
    prefix_positions = writer.slice(writer.ints(*range(length)), writer.ints(0), new, axis=0)
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
    causal_rows = writer.slice(causal_rows, writer.ints(0), new, axis=2)
    causal_rows = op.Expand(causal_rows, op.Concat(*sizes, axis=0))
    prefix_rows = op.Concat(causal_rows, hidden, axis=3)  # (A, 1, N - M, P+T*M)
    return op.Concat(prefix_rows, beam_rows, axis=2)


def drop_first(writer: OperatorWriter, x: ir.Value, count: int, axis: int) -> ir.Value:
    """Return a value without the first `count` elements of an axis."""
    if not count:
        return x
    return writer.slice(x, writer.ints(count), writer.ints(OPEN_END), axis)


def last_beams(writer: OperatorWriter, x: ir.Value, beams: ir.Value) -> ir.Value:
    """Return the last M of the N elements of (A, N, …)."""
    count = writer.slice(beams, writer.ints(1), writer.ints(2), axis=0)  # (1,): M
    return writer.slice(x, writer.op.Neg(count), writer.ints(OPEN_END), axis=1)


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
