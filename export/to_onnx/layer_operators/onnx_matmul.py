"""Write the operators that multiply rows by weights, in float32 or in 8-bit integers.

Letters of shapes are those of `operator_writer`. A matrix has the shape (rows, columns), a table of
embeddings (vocab_size, D), and a bias (columns,) or (vocab_size,).
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir import Value
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
SCALED_GREEDY_COLUMNS = range(500, 10_000)  # in greedy search, which has a row for each sentence
Bias: TypeAlias = np.ndarray | None
KERNEL = "output/kernel"  # the projection to the vocabulary, if it is not an embedding table


class GraphWriter:
    """Writes operators, `op.Add(x, y)`, and the constants of the main graph.

    `op.nodes` are the operators written so far. `optimize` later moves constants that only one loop
    body reads into that body. The names of an ensemble member's constants have a prefix.
    """

    def __init__(self, graph: ir.Graph, prefix: str):
        self.graph = graph
        self.prefix = prefix
        # Not a `GraphBuilder`, which describes every node in metadata.
        self.op = TapeBuilder()

    def constant(self, name: str, array: np.ndarray | np.generic) -> Value:
        """Return the main graph's constant of this name with the prefix; create it if necessary."""
        name = self.prefix + name
        if name not in self.graph.initializers:
            tensor = ir.tensor(np.asarray(array, order="C"), name=name)
            self.graph.register_initializer(Value(name=name, const_value=tensor))
        return self.graph.initializers[name]

    def ints(self, *values: int) -> Value:
        """Return an int64 vector, for shapes and axes."""
        return self.constant("ints/" + "_".join(map(str, values)), np.array(values, "int64"))


class Float32MatMul:
    """Writes products in float32, as the model computes them.

    `rows` are the multiplied rows by the name of the weights, for `calibration`. `is_greedy` says
    that the products are of a step of greedy search.
    """

    def __init__(self, writer: GraphWriter):
        self.rows: dict[str, Value] = {}
        self.is_greedy = False
        self.op = writer.op
        self.constant = writer.constant
        self.ints = writer.ints
        self.prefix = writer.prefix

    def multiply(self, x: Value, name: str, matrix: np.ndarray, bias: Bias = None) -> Value:
        """Multiply rows (A, M, rows) by the matrix of this name, and add a bias."""
        self.rows[name] = x
        product = self.op.MatMul(x, self.constant(name, matrix))
        return product if bias is None else self.op.Add(product, self.bias(name, bias))

    def multiply_by_table(
        self, x: Value, name: str, table: np.ndarray, bias: Bias = None, ids: Value | None = None
    ) -> Value:
        """Multiply rows (A, M, D) by a transposed table, or only by its rows of ids (n,).

        The name is `KERNEL`, the name of the table's transpose, unless the table also embeds
        tokens. `optimize` moves the operators that only read the ids out of a loop.
        """
        self.rows[f"output/{name}"] = x
        weights = self.constant(f"{name}_transposed" if name == KERNEL else name, table)
        if ids is not None:
            weights = self.op.Gather(weights, ids)
        biases: Sequence[Value] = ()
        if bias is not None:
            value = self.constant("output/bias", bias)
            biases = [value if ids is None else self.op.Gather(value, ids)]
        # Gemm reads the table transposed, without a copy, but multiplies only matrices.
        rows = self.op.Reshape(x, self.ints(-1, table.shape[1]))
        products = self.op.Gemm(rows, weights, *biases, transB=1)
        columns = self.ints(len(table) if ids is None else -1)
        return self.op.Reshape(products, self.op.Concat(self.op.Shape(x, end=2), columns, axis=0))

    def look_up(self, name: str, table: np.ndarray, ids: Value, factor: float) -> Value:
        """Look up ids (A, M) in a table: (A, M, D), times a factor."""
        rows = self.op.Gather(self.constant(name, table), ids)
        if factor == 1:
            return rows
        return self.op.Mul(rows, self.constant("embedding_scale", np.float32(factor)))

    def bias(self, name: str, bias: np.ndarray) -> Value:
        """Return the bias of the weights of this name, with the name that it has in Keras."""
        if name.endswith("/kernel"):
            return self.constant(f"{name.removesuffix('kernel')}bias", bias)
        return self.constant(f"{name}_bias", bias)


class Int8MatMul(Float32MatMul):
    """Writes products of 8-bit integers, with one scale for each column of weights.

    All rows of a product have one range, so that a row's product does not depend on other rows. The
    sums are the same on every processor, because `rounded_columns` keeps them within the range
    that processors without VNNI can add. Numbers outside the range are clipped.
    """

    def __init__(self, writer: GraphWriter, rounding: WeightRounding):
        super().__init__(writer)
        self.rounding = rounding

    def multiply(self, x: Value, name: str, matrix: np.ndarray, bias: Bias = None) -> Value:
        """See `Float32MatMul.multiply`."""
        if self.rounding.is_float32(name):
            return super().multiply(x, name, matrix, bias)
        rounded, scale = self.rounding.rounded(self.prefix + name, matrix)
        return self._multiply(x, name, self.constant(f"{name}_int8", rounded), scale, bias)

    def multiply_by_table(
        self, x: Value, name: str, table: np.ndarray, bias: Bias = None, ids: Value | None = None
    ) -> Value:
        """See `Float32MatMul.multiply_by_table`."""
        product = name if name == KERNEL else f"output/{name}"
        if self.rounding.is_float32(product):
            return super().multiply_by_table(x, name, table, bias, ids)
        rounded, scale = self.rounding.rounded(self.prefix + product, table.T)
        if ids is None:
            # Runtimes transpose the table when they load it; the transpose is not in the file.
            weights = self.op.Transpose(self.constant(f"{name}_int8", rounded.T), perm=[1, 0])
            return self._multiply(x, product, weights, scale, bias)
        rows, row_scale, row_zero = self._round_rows(x, product)
        table_name = f"{KERNEL}_int8_transposed" if name == KERNEL else f"{name}_int8"
        selected = self.op.Gather(self.constant(table_name, rounded.T), ids)
        scales = self.op.Gather(self.constant(f"{product}_scale", scale), ids)
        scales = self.op.Mul(scales, row_scale)
        inputs = [rows, self.op.Transpose(selected, perm=[1, 0]), row_zero, scales]
        if bias is not None:
            scaled = bias / self._product_scale(product, scale)
            inputs.append(self.op.Gather(self.constant(f"{product}_scaled_bias", scaled), ids))
        return self._multiply_and_scale(*inputs)

    def look_up(self, name: str, table: np.ndarray, ids: Value, factor: float) -> Value:
        """See `Float32MatMul.look_up`."""
        # A table that the output also multiplies by is rounded for the product, and is in the file
        # once.
        product = f"output/{name}"
        is_multiplied = self.prefix + product in self.rounding.rows
        if is_multiplied and self.rounding.is_float32(product):
            return super().look_up(name, table, ids, factor)
        if is_multiplied:
            rounded, scale = self.rounding.rounded(self.prefix + product, table.T)
        else:
            scale = np.abs(table).max(axis=1) / INT8_MAX
            scale = np.where(scale > 0, scale, 1)
            rounded = np.round(table.T / scale).astype("int8")
        numbers = self.op.Gather(self.constant(f"{name}_int8", rounded.T), ids)
        # Runtimes compute the scales of all tokens when they load them.
        scales = self.constant(f"{product if is_multiplied else name}_scale", scale)
        scales = self.op.Unsqueeze(scales, self.ints(1))
        if factor != 1:
            scales = self.op.Mul(scales, self.constant("embedding_scale", np.float32(factor)))
        scales = self.op.Gather(scales, ids)
        return self.op.Mul(self.op.Cast(numbers, to=ir.DataType.FLOAT.value), scales)

    def _multiply(
        self, x: Value, name: str, weights: Value, scale: np.ndarray, bias: Bias
    ) -> Value:
        """Multiply rows (A, M, rows) by int8 weights (rows, columns) with scales (columns,)."""
        rows, row_scale, row_zero = self._round_rows(x, name)
        # A scaled bias has another last bit, and both loops of a search must give the same scores.
        is_greedy = self.is_greedy and bias is None
        scaled_columns = SCALED_GREEDY_COLUMNS if is_greedy else SCALED_COLUMNS
        if len(scale) not in scaled_columns or name.startswith("encoder/"):
            inputs = [rows, weights, row_scale, self.constant(f"{name}_scale", scale), row_zero]
            if bias is not None:
                inputs += [None, self.bias(name, bias)]
            return self.op.MatMulIntegerToFloat(*inputs, _domain=CONTRIB)
        scale = self._product_scale(name, scale)
        inputs = [rows, weights, row_zero, self.constant(f"{name}_product_scale", scale)]
        if bias is not None:
            inputs.append(self.constant(f"{name}_scaled_bias", bias / scale))
        return self._multiply_and_scale(*inputs)

    def _product_scale(self, name: str, scale: np.ndarray) -> np.ndarray:
        """Return the scales of the columns of a product of integers."""
        step, _ = row_rounding(*self.rounding.rows[self.prefix + name][:2])
        return scale * step

    def _multiply_and_scale(
        self, rows: Value, weights: Value, row_zero: Value, scales: Value, *scaled_bias: Value
    ) -> Value:
        """Multiply integers, add the bias divided by the scales, and multiply by the scales."""
        # The operator copies a vector of scales whenever it runs. With many columns, this takes
        # longer than another operator.
        one = self.constant("one", np.float32(1))
        # None: the zero points of the weights are 0.
        inputs = [rows, weights, one, one, row_zero, *((None, *scaled_bias) if scaled_bias else ())]
        return self.op.Mul(self.op.MatMulIntegerToFloat(*inputs, _domain=CONTRIB), scales)

    def _round_rows(self, x: Value, name: str) -> tuple[Value, Value, Value]:
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
