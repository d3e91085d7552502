"""Write the operators that multiply rows by weights, in float32 or in 8-bit integers."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnxscript import TapeBuilder

from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import (
    INT8_MAX,
    RowStatistics,
    rounded_columns,
    row_rounding,
)

CONTRIB = "com.microsoft"  # onnxruntime's own operators
KERNEL = "output/kernel"  # the projection to the vocabulary, if it is not an embedding table

GetConstant = Callable[[str, np.ndarray], ir.Value]


class Float32MatMul:
    """Writes products in float32, as the model computes them.

    Args:
        op: writes operators.
        constant: function that returns the graph's constant of a name: (name, array) -> value.
        prefix: the prefix of the names of the weights in the whole model.
    """

    def __init__(self, op: TapeBuilder, constant: GetConstant, prefix: str = ""):
        self.op = op
        self.constant = constant
        self.prefix = prefix

    def multiply(
        self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (R, rows) by a matrix (rows, columns) and add a bias (columns,)."""
        kernel = self.constant(name, matrix)
        if bias is None:
            return self.op.MatMul(x, kernel)
        return self.op.Gemm(x, kernel, self.bias(name, bias))

    def multiply_by_table(
        self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (R, D) by an embedding table (vocab_size, D) that also embeds tokens.

        The product is x table^T + bias.
        """
        biases = [] if bias is None else [self.constant("output/bias", bias)]
        return self.op.Gemm(x, self.constant(name, table), *biases, transB=1)

    def multiply_by_some_of_table(
        self,
        x: ir.Value,
        name: str,
        table: np.ndarray,
        ids: ir.Value,
        bias: np.ndarray | None = None,
    ) -> ir.Value:
        """Multiply rows (R, D) by the rows of a table that belong to ids (n,), and add the bias.

        `optimize` moves the operators that only read the ids out of a loop.

        Args:
            x: rows (R, D).
            name: the name of the table if it also embeds tokens, otherwise "output/kernel", the
                name of its transpose.
            table: (vocab_size, D).
            ids: (n,).
            bias: (vocab_size,).

        Returns:
            The products (R, n).
        """
        table_name = f"{name}_transposed" if name == KERNEL else name
        selected = self.op.Gather(self.constant(table_name, table), ids)
        biases = []
        if bias is not None:
            biases.append(self.op.Gather(self.constant("output/bias", bias), ids))
        return self.op.Gemm(x, selected, *biases, transB=1)

    def look_up(self, name: str, table: np.ndarray, ids: ir.Value) -> ir.Value:
        """Look up ids (A, M) in an embedding table (vocab_size, D): (A, M, D)."""
        return self.op.Gather(self.constant(name, table), ids)

    def bias(self, name: str, bias: np.ndarray) -> ir.Value:
        """Return the bias of the weights of this name, with the name that it has in Keras."""
        if name.endswith("/kernel"):
            return self.constant(f"{name.removesuffix('kernel')}bias", bias)
        return self.constant(f"{name}_bias", bias)


class Int8MatMul(Float32MatMul):
    """Writes products of 8-bit integers, with one scale for each column of weights, and one range
    for the rows of each product.

    The range does not depend on the rows, so a row's product does not depend on the other rows of
    its batch. The sums are the same on every processor, because `rounded_columns` keeps them within
    the range that processors without VNNI can add.

    Args:
        op: see `Float32MatMul`.
        constant: see `Float32MatMul`.
        prefix: see `Float32MatMul`.
        rows: statistics of the rows, by the name of the weights in the whole model; see
            `calibration.observe_rows`. Numbers outside their range are clipped.
        float32_names: parts of the names of weights that remain float32.
    """

    def __init__(
        self,
        op: TapeBuilder,
        constant: GetConstant,
        prefix: str,
        rows: Mapping[str, RowStatistics],
        float32_names: Sequence[str] = (),
    ):
        super().__init__(op, constant, prefix)
        self.rows = rows
        self.float32_names = float32_names

    def multiply(
        self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (R, rows) by a matrix (rows, columns) and add a bias (columns,)."""
        if any(part in name for part in self.float32_names):
            return super().multiply(x, name, matrix, bias)
        rows, row_scale, row_zero = self._round_rows(x, name)
        rounded, scale = rounded_columns(matrix, self.rows[self.prefix + name].moments)
        zeros = self.constant(f"zeros/{scale.size}", np.zeros(scale.size, "int8"))
        inputs = [
            rows,
            self.constant(f"{name}_int8", rounded),
            row_scale,
            self.constant(f"{name}_scale", scale),
            row_zero,
            zeros,
        ]
        if bias is not None:
            inputs.append(self.bias(name, bias))
        return self.op.MatMulIntegerToFloat(*inputs, _domain=CONTRIB)

    def _round_rows(self, x: ir.Value, name: str) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the rows of a product as uint8, their scale and their zero point."""
        low, high, _ = self.rows[self.prefix + name]
        step, zero = row_rounding(low, high)
        producer = x.producer()
        # The smallest uint8 is 0 here: rounding clips negative numbers as Relu does.
        if low == 0 and producer and producer.op_type == "Relu":
            x = producer.inputs[0]
        row_scale = self.constant(f"{name}_row_scale", step)
        row_zero = self.constant(f"{name}_row_zero", zero)
        return self.op.QuantizeLinear(x, row_scale, row_zero), row_scale, row_zero

    def multiply_by_table(
        self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (R, D) by an embedding table (vocab_size, D).

        The operator requires a transposed copy of the table.
        """
        return self.multiply(x, f"output/{name}", table.T, bias)

    def multiply_by_some_of_table(
        self,
        x: ir.Value,
        name: str,
        table: np.ndarray,
        ids: ir.Value,
        bias: np.ndarray | None = None,
    ) -> ir.Value:
        """Multiply rows (R, D) by the rows of a table that belong to ids (n,), and add the bias;
        see `Float32MatMul`.
        """
        product = name if name == KERNEL else f"output/{name}"
        if any(part in product for part in self.float32_names):
            return super().multiply_by_some_of_table(x, name, table, ids, bias)
        rows, row_scale, row_zero = self._round_rows(x, product)
        rounded, scale = rounded_columns(table.T, self.rows[self.prefix + product].moments)
        selected = self.op.Gather(self.constant(f"{product}_int8_transposed", rounded.T), ids)
        scales = self.op.Gather(self.constant(f"{product}_scale", scale), ids)
        biases: list[ir.Value | None] = []
        if bias is not None:
            # None: the zero points of the weights are 0.
            biases = [None, self.op.Gather(self.constant("output/bias", bias), ids)]
        weights = self.op.Transpose(selected, perm=[1, 0])
        inputs = [rows, weights, row_scale, scales, row_zero, *biases]
        return self.op.MatMulIntegerToFloat(*inputs, _domain=CONTRIB)

    def look_up(self, name: str, table: np.ndarray, ids: ir.Value) -> ir.Value:
        """Look up ids (A, M) in an embedding table (vocab_size, D): (A, M, D)."""
        scale = np.abs(table).max(axis=1, keepdims=True) / INT8_MAX
        rounded = np.round(table / np.where(scale > 0, scale, 1)).astype("int8")
        numbers = self.op.Gather(self.constant(f"{name}_int8", rounded), ids)
        scales = self.op.Gather(self.constant(f"{name}_scale", scale.astype("float32")), ids)
        return self.op.Mul(self.op.Cast(numbers, to=ir.DataType.FLOAT.value), scales)
