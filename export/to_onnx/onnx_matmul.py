"""Operators that multiply rows by weights, in float32 or in 8-bit integers."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

CONTRIB = "com.microsoft"  # onnxruntime's own operators
LARGEST = 127  # of 8-bit weights; without -128 they are symmetric around zero
LARGEST_PAIR = 128  # the sum of two weights of one sign: 128 * 255 < 2**15

WriteOperator = Callable[..., ir.Value]
GetConstant = Callable[[str, np.ndarray], ir.Value]
Ranges: TypeAlias = Mapping[str, tuple[float, float]]  # of the rows that are multiplied by weights, by the name of the weights


class Float32MatMul:
    """Writes products in float32, as the model computes them.

    Args:
        op: function that writes an operator: (name, inputs, domain="", **attributes) -> output.
        constant: function that returns the graph's constant of a name: (name, array) -> value.
    """

    def __init__(self, op: WriteOperator, constant: GetConstant):
        self.op = op
        self.constant = constant

    def multiply(self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None) -> ir.Value:
        """Multiply rows (R, rows) by a matrix (rows, columns) and add a bias (columns,)."""
        kernel = self.constant(name, matrix)
        if bias is None:
            return self.op("MatMul", [x, kernel])
        return self.op("Gemm", [x, kernel, self.bias(name, bias)])

    def multiply_by_table(self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None) -> ir.Value:
        """Multiply rows (R, D) by an embedding table (vocab_size, D) that also embeds tokens: x table^T + bias."""
        more = [] if bias is None else [self.constant("output/bias", bias)]
        return self.op("Gemm", [x, self.constant(name, table), *more], transB=1)

    def look_up(self, name: str, table: np.ndarray, ids: ir.Value) -> ir.Value:
        """Look up ids (A, M) in an embedding table (vocab_size, D): (A, M, D)."""
        return self.op("Gather", [self.constant(name, table), ids])

    def bias(self, name: str, bias: np.ndarray) -> ir.Value:
        """Return the bias of the weights of this name, with the name that it has in Keras."""
        return self.constant(f"{name.removesuffix('kernel')}bias" if name.endswith("/kernel") else f"{name}_bias", bias)


class Int8MatMul(Float32MatMul):
    """Writes products of 8-bit integers, with one scale for each column of weights, and one range for the rows of each product.

    The range does not depend on the rows, so a row's product does not depend on the other rows of its batch. The sums are the same
    on every processor, because `rounded_columns` keeps them within what processors without VNNI can add.

    Args:
        op: see `Float32MatMul`.
        constant: see `Float32MatMul`.
        ranges: the range of the rows of each product, see `calibration.measure_ranges`. Numbers outside are cut.
        kept: parts of the names of weights that remain float32.
    """

    def __init__(self, op: WriteOperator, constant: GetConstant, ranges: Ranges, kept: Sequence[str] = ()):
        super().__init__(op, constant)
        self.ranges = ranges
        self.kept = kept

    def multiply(self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None) -> ir.Value:
        """Multiply rows (R, rows) by a matrix (rows, columns) and add a bias (columns,)."""
        if any(part in name for part in self.kept):
            return super().multiply(x, name, matrix, bias)
        low, high = self.ranges[name]
        step, zero = row_rounding(low, high)
        producer = x.producer()
        if low == 0 and producer and producer.op_type == "Relu":  # the smallest uint8 is 0 here: rounding cuts as Relu does
            x = producer.inputs[0]
        row_scale, row_zero = self.constant(f"{name}_row_scale", step), self.constant(f"{name}_row_zero", zero)
        rounded, scale = rounded_columns(matrix)
        zeros = self.constant(f"zeros/{scale.size}", np.zeros(scale.size, "int8"))
        rows = self.op("QuantizeLinear", [x, row_scale, row_zero])
        inputs = [rows, self.constant(f"{name}_int8", rounded), row_scale, self.constant(f"{name}_scale", scale), row_zero, zeros]
        return self.op("MatMulIntegerToFloat", inputs + ([] if bias is None else [self.bias(name, bias)]), CONTRIB)

    def multiply_by_table(self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None) -> ir.Value:
        """Multiply rows (R, D) by an embedding table (vocab_size, D). The operator requires a transposed copy of it."""
        return self.multiply(x, f"output/{name}", table.T, bias)

    def look_up(self, name: str, table: np.ndarray, ids: ir.Value) -> ir.Value:
        """Look up ids (A, M) in an embedding table (vocab_size, D): (A, M, D)."""
        scale = np.abs(table).max(axis=1, keepdims=True) / LARGEST
        rounded = self.op("Gather", [self.constant(f"{name}_int8", _divided(table, scale)), ids])
        scales = self.op("Gather", [self.constant(f"{name}_scale", scale.astype("float32")), ids])
        return self.op("Mul", [self.op("Cast", [rounded], to=ir.DataType.FLOAT.value), scales])


def rounded_columns(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix (rows, columns) as int8, and the float32 scales of its columns.

    Without VNNI, onnxruntime multiplies with the instruction `vpmaddubsw`. It adds the products of rows 2k and 2k + 1, each of a uint8 and
    an int8, in 16 bits, and cuts larger sums. The scale of a column is therefore so large that no sum of two weights of one sign
    exceeds `LARGEST_PAIR`. Weights of opposite signs have smaller sums than either alone.
    """
    signs = np.stack([np.maximum(matrix, 0), np.maximum(-matrix, 0)])  # (2, rows, columns)
    even = np.pad(signs, [(0, 0), (0, matrix.shape[0] % 2), (0, 0)])
    pairs = (even[:, 0::2] + even[:, 1::2]).max(axis=(0, 1))
    # Two numbers whose sum is less than 128 are rounded to numbers whose sum is at most 128.
    scale = np.maximum(signs.max(axis=(0, 1)) / LARGEST, pairs / (LARGEST_PAIR - 0.01))
    return _divided(matrix, scale), scale.astype("float32")


def row_rounding(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the float32 scale and the uint8 zero with which numbers from `low`, at most 0, to `high`, at least 0, become uint8."""
    scale = (high - low) / 255 or 1.0
    return np.array(scale, "float32"), np.array(round(-low / scale), "uint8")


def _divided(array: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.round(array / np.where(scale > 0, scale, 1)).astype("int8")
