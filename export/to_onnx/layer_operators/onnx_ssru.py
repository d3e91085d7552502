"""Write SSRUs as ONNX operators; see `tfk_transformer.layers.ssru`."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnxscript import TapeBuilder

from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OperatorWriter


class SSRUWriter:
    """Writes the SSRU of a decoder layer with standard operators.

    It has the methods of `StandardAttention` that self-attention uses. `operator_writer` explains
    the letters of shapes.

    Args:
        writer: writer of the operators.
        path: common part of the names of the SSRU's weights, such as "decoder/layer_0/ssru".
    """

    def __init__(self, writer: OperatorWriter, path: str):
        self.writer = writer
        self.path = path
        self.width = writer.options.model_dim

    def to_past(
        self, x: ir.Value, past: Sequence[ir.Value], lineage: ir.Value
    ) -> tuple[ir.Value, list[ir.Value]]:
        """Map rows (A, M, D) to rows, and return the next states (A, 1, M, D); see `SSRU.step`."""
        op = self.writer.op
        ints = self.writer.ints
        beams = op.Shape(x, start=1, end=2)  # (1,): M
        # The columns of the previous position. The first step has none: a product of no columns.
        columns = op.Slice(lineage, op.Mul(beams, ints(-2)), op.Neg(beams), ints(3))
        visible = op.Equal(columns, self.writer.constant("visible", np.float32(0)))
        previous = op.MatMul(op.Cast(visible, to=ir.DataType.FLOAT.value), *past)
        forget, update = self._gates(x)
        kept = op.Mul(forget, op.Squeeze(previous, ints(1)))
        rows = op.Add(kept, update)
        return op.Relu(rows), [op.Unsqueeze(rows, ints(1))]

    def to_itself(self, x: ir.Value, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Map rows (B, T, D) to rows, and return attention weights without heads (B, 0, T, T).

        The mask is not needed, since an SSRU reads earlier positions only.
        """
        op = self.writer.op
        ints = self.writer.ints
        sentences = op.Shape(x, end=1)
        zero = self.writer.constant("visible", np.float32(0))
        first = op.Expand(zero, op.Concat(sentences, ints(self.width), axis=0))
        _, states = op.Scan(
            first,
            *self._gates(x),
            body=_recurrence(),
            num_scan_inputs=2,
            scan_input_axes=[1, 1],
            scan_output_axes=[1],
            _outputs=2,
        )
        length = op.Shape(x, start=1, end=2)
        no_heads = op.Expand(zero, op.Concat(sentences, ints(0), length, length, axis=0))
        return op.Relu(states), no_heads

    def _gates(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return f and (1 - f) * (x W), rows (A, M, D), from one product."""
        op = self.writer.op
        names = ("kernel", "forget_kernel")
        matrix = np.concatenate([self.writer.weights[f"{self.path}/{n}"] for n in names], axis=1)
        bias = np.pad(self.writer.weights[f"{self.path}/forget_bias"], (self.width, 0))
        projected = self.writer.matmul.multiply(x, f"{self.path}/{'_'.join(names)}", matrix, bias)
        sizes = self.writer.ints(self.width, self.width)
        linear, forget = op.Split(projected, sizes, axis=-1, _outputs=2)
        forget = op.Sigmoid(forget)
        rest = op.Sub(self.writer.constant("one", np.float32(1)), forget)
        return forget, op.Mul(rest, linear)


def _recurrence() -> ir.Graph:
    """Return the body of a Scan: from the state c, f and u (B, D) to f * c + u, twice."""
    op = TapeBuilder()
    inputs = [ir.val(name, ir.DataType.FLOAT, [None, None]) for name in ("c", "f", "u")]
    state, forget, update = inputs
    next_state = op.Add(op.Mul(forget, state), update)
    outputs = [next_state, op.Identity(next_state)]
    for value in outputs:
        value.dtype = ir.DataType.FLOAT
    return ir.Graph(inputs, outputs, nodes=op.nodes, name="recurrence")
