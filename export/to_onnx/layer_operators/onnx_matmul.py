"""Write the operators that multiply rows by weights, in float32 or in 8-bit integers.

Letters of shapes are those of `operator_writer`. A matrix has the shape (rows, columns), a table of
embeddings (vocab_size, D), and a bias (columns,) or (vocab_size,).
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from onnxscript import TapeBuilder

from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import (
    INT8_MAX,
    WeightRounding,
    row_rounding,
)

CONTRIB = "com.microsoft"  # onnxruntime's own operators
# Numbers of columns that are scaled by a separate operator in the decoder. It saves more time than
# it takes, except for many columns or many rows, such as the rows of the encoder.
SCALED_COLUMNS = range(500, 5000)
KERNEL = "output/kernel"  # the projection to the vocabulary, if it is not an embedding table

GetConstant = Callable[[str, np.ndarray | np.generic], ir.Value]


def int64_vector(constant: GetConstant, *values: int) -> ir.Value:
    """Return an int64 vector, for shapes and axes."""
    return constant("ints/" + "_".join(map(str, values)), np.array(values, "int64"))


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
        """Multiply rows (A, M, rows) by the matrix of this name, and add a bias."""
        product = self.op.MatMul(x, self.constant(name, matrix))
        return product if bias is None else self.op.Add(product, self.bias(name, bias))

    def multiply_by_table(
        self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (A, M, D) by a table that also embeds tokens: x table^T + bias."""
        biases = [] if bias is None else [self.constant("output/bias", bias)]
        return self._multiply_transposed(x, self.constant(name, table), biases, table.shape)

    def _multiply_transposed(
        self, x: ir.Value, table: ir.Value, biases: Sequence[ir.Value], sizes: tuple[int, int]
    ) -> ir.Value:
        """Multiply rows (A, M, D) by a transposed table (n, D) and add biases (n,).

        `sizes` are n and D; an n of -1 is inferred.
        """
        # Gemm reads the table transposed, without a copy, but multiplies only matrices.
        count, width = sizes
        rows = self.op.Reshape(x, int64_vector(self.constant, -1, width))
        products = self.op.Gemm(rows, table, *biases, transB=1)
        shape = self.op.Concat(self.op.Shape(x, end=2), int64_vector(self.constant, count), axis=0)
        return self.op.Reshape(products, shape)

    def multiply_by_some_of_table(
        self,
        x: ir.Value,
        name: str,
        table: np.ndarray,
        ids: ir.Value,
        bias: np.ndarray | None = None,
    ) -> ir.Value:
        """Multiply rows (A, M, D) by the rows of a table that belong to ids (n,), and add their
        bias: (A, M, n).

        The name is that of the table if it also embeds tokens, otherwise `KERNEL`, the name of its
        transpose. `optimize` moves the operators that only read the ids out of a loop.
        """
        table_name = f"{name}_transposed" if name == KERNEL else name
        selected = self.op.Gather(self.constant(table_name, table), ids)
        biases = []
        if bias is not None:
            biases.append(self.op.Gather(self.constant("output/bias", bias), ids))
        return self._multiply_transposed(x, selected, biases, (-1, table.shape[1]))

    def look_up(self, name: str, table: np.ndarray, ids: ir.Value, factor: float) -> ir.Value:
        """Look up ids (A, M) in a table: (A, M, D), times a factor."""
        rows = self.op.Gather(self.constant(name, table), ids)
        if factor == 1:
            return rows
        return self.op.Mul(rows, self.constant("embedding_scale", np.float32(factor)))

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
    the range that processors without VNNI can add. Numbers outside the range are clipped.

    Args:
        op: see `Float32MatMul`.
        constant: see `Float32MatMul`.
        prefix: see `Float32MatMul`.
        rounding: rounds the weights.
    """

    def __init__(
        self, op: TapeBuilder, constant: GetConstant, prefix: str, rounding: WeightRounding
    ):
        super().__init__(op, constant, prefix)
        self.rounding = rounding

    def multiply(
        self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """See `Float32MatMul.multiply`."""
        if self.rounding.is_float32(name):
            return super().multiply(x, name, matrix, bias)
        rounded, scale = self.rounding.rounded(self.prefix + name, matrix)
        return self._multiply(x, name, self.constant(f"{name}_int8", rounded), scale, bias)

    def multiply_by_table(
        self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """See `Float32MatMul.multiply_by_table`.

        The operator requires the transposed table. It is not in the file: runtimes transpose the
        table when they load it.
        """
        product = f"output/{name}"
        if self.rounding.is_float32(product):
            return super().multiply_by_table(x, name, table, bias)
        rounded, scale = self._rounded_table(product, table)
        weights = self.op.Transpose(self.constant(f"{name}_int8", rounded), perm=[1, 0])
        return self._multiply(x, product, weights, scale, bias)

    def multiply_by_some_of_table(
        self,
        x: ir.Value,
        name: str,
        table: np.ndarray,
        ids: ir.Value,
        bias: np.ndarray | None = None,
    ) -> ir.Value:
        """See `Float32MatMul.multiply_by_some_of_table`."""
        product = name if name == KERNEL else f"output/{name}"
        if self.rounding.is_float32(product):
            return super().multiply_by_some_of_table(x, name, table, ids, bias)
        rounded, scale = self._rounded_table(product, table)
        rows, _, row_zero = self._round_rows(x, product)
        table_name = f"{KERNEL}_int8_transposed" if name == KERNEL else f"{name}_int8"
        selected = self.op.Gather(self.constant(table_name, rounded), ids)
        scale = self._product_scale(product, scale)
        scales = self.op.Gather(self.constant(f"{product}_scale", scale), ids)
        inputs = [rows, self.op.Transpose(selected, perm=[1, 0]), row_zero, scales]
        if bias is not None:
            scaled_bias = self.constant(f"{product}_scaled_bias", bias / scale)
            inputs.append(self.op.Gather(scaled_bias, ids))
        return self._multiply_and_scale(*inputs)

    def look_up(self, name: str, table: np.ndarray, ids: ir.Value, factor: float) -> ir.Value:
        """See `Float32MatMul.look_up`.

        A table that the output also multiplies by is rounded for the product, and is in the file
        once.
        """
        product = f"output/{name}"
        is_multiplied = self.prefix + product in self.rounding.rows
        if is_multiplied and self.rounding.is_float32(product):
            return super().look_up(name, table, ids, factor)
        if is_multiplied:
            rounded, scale = self._rounded_table(product, table)
        else:
            scale = np.abs(table).max(axis=1) / INT8_MAX
            rounded = np.round(table / np.where(scale > 0, scale, 1)[:, None]).astype("int8")
        numbers = self.op.Gather(self.constant(f"{name}_int8", rounded), ids)
        scale = (scale * factor).astype("float32")[:, None]
        scales = self.op.Gather(self.constant(f"{name}_scale", scale), ids)
        return self.op.Mul(self.op.Cast(numbers, to=ir.DataType.FLOAT.value), scales)

    def _multiply(
        self, x: ir.Value, name: str, weights: ir.Value, scale: np.ndarray, bias: np.ndarray | None
    ) -> ir.Value:
        """Multiply rows (A, M, rows) by int8 weights (rows, columns) with scales (columns,)."""
        rows, row_scale, row_zero = self._round_rows(x, name)
        inputs = [rows, weights]
        if len(scale) not in SCALED_COLUMNS or name.startswith("encoder/"):
            inputs += [row_scale, self.constant(f"{name}_scale", scale), row_zero]
            if bias is not None:
                inputs += [None, self.bias(name, bias)]
            return self.op.MatMulIntegerToFloat(*inputs, _domain=CONTRIB)
        scale = self._product_scale(name, scale)
        inputs += [row_zero, self.constant(f"{name}_scale", scale)]
        if bias is not None:
            inputs.append(self.constant(f"{name}_scaled_bias", bias / scale))
        return self._multiply_and_scale(*inputs)

    def _product_scale(self, name: str, scale: np.ndarray) -> np.ndarray:
        """Return the scales of the columns of a product of integers, without zeros."""
        step, _ = row_rounding(*self.rounding.rows[self.prefix + name][:2])
        return np.where(scale > 0, scale * step, 1).astype("float32")

    def _multiply_and_scale(
        self,
        rows: ir.Value,
        weights: ir.Value,
        row_zero: ir.Value,
        scales: ir.Value,
        scaled_bias: ir.Value | None = None,
    ) -> ir.Value:
        """Multiply integers, add the bias divided by the scales, and multiply by the scales.

        The operator copies a vector of scales whenever it runs. With many columns, this takes
        longer than another operator.
        """
        one = self.constant("one", np.float32(1))
        inputs = [rows, weights, one, one, row_zero]
        if scaled_bias is not None:
            inputs += [None, scaled_bias]  # None: the zero points of the weights are 0.
        return self.op.Mul(self.op.MatMulIntegerToFloat(*inputs, _domain=CONTRIB), scales)

    def _round_rows(self, x: ir.Value, name: str) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the rows of a product as uint8, their scale and their zero point."""
        low, high, _ = self.rounding.rows[self.prefix + name]
        step, zero = row_rounding(low, high)
        producer = x.producer()
        # The smallest uint8 is 0 here: rounding clips negative numbers as Relu does.
        if low == 0 and producer and producer.op_type == "Relu":
            x = producer.inputs[0]
        row_scale = self.constant(f"{name}_row_scale", step)
        row_zero = self.constant(f"{name}_row_zero", zero)
        return self.op.QuantizeLinear(x, row_scale, row_zero), row_scale, row_zero

    def _rounded_table(self, product: str, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a table (vocab_size, D), whose transpose a product multiplies by, as int8, and the
        scales of its rows (vocab_size,).
        """
        rounded, scale = self.rounding.rounded(self.prefix + product, table.T)
        return rounded.T, scale
