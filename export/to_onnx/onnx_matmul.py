"""Operators that multiply rows by weights, in float32 or in 8-bit integers."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

CONTRIB = "com.microsoft"  # onnxruntime's own operators
LARGEST = 127  # of 8-bit weights; without -128 they are symmetric around zero
LARGEST_PAIR = 128  # the sum of two weights of one sign: 128 * 255 < 2**15
DAMPING = 0.01  # the share of the mean of a diagonal that is added to it
BLOCK = 32  # rows whose errors change the rows behind them together, by one product
COLUMNS = 4096  # columns that are rounded together, so that a vocabulary of any size takes little memory

WriteOperator = Callable[..., ir.Value]
GetConstant = Callable[[str, np.ndarray], ir.Value]


class RowStatistics(NamedTuple):
    """What is known of the rows (R, rows) that a matrix (rows, columns) is multiplied by."""

    low: float  # the smallest number, at most 0
    high: float  # the largest number, at least 0
    moments: np.ndarray  # float64 (rows, rows), the transposed rows times the rows


class Float32MatMul:
    """Writes products in float32, as the model computes them.

    Args:
        op: function that writes an operator: (name, inputs, domain="", **attributes) -> output.
        constant: function that returns the graph's constant of a name: (name, array) -> value.
        prefix: begins the names of the weights in the whole model.
    """

    def __init__(self, op: WriteOperator, constant: GetConstant, prefix: str = ""):
        self.op = op
        self.constant = constant
        self.prefix = prefix

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
        prefix: see `Float32MatMul`.
        rows: what is known of the rows, by the name of the weights in the whole model, see `calibration.observe_rows`. Numbers outside
            their range are cut.
        kept: parts of the names of weights that remain float32.
    """

    def __init__(self, op: WriteOperator, constant: GetConstant, prefix: str, rows: Mapping[str, RowStatistics], kept: Sequence[str] = ()):
        super().__init__(op, constant, prefix)
        self.rows = rows
        self.kept = kept

    def multiply(self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None) -> ir.Value:
        """Multiply rows (R, rows) by a matrix (rows, columns) and add a bias (columns,)."""
        if any(part in name for part in self.kept):
            return super().multiply(x, name, matrix, bias)
        low, high, moments = self.rows[self.prefix + name]
        step, zero = row_rounding(low, high)
        producer = x.producer()
        if low == 0 and producer and producer.op_type == "Relu":  # the smallest uint8 is 0 here: rounding cuts as Relu does
            x = producer.inputs[0]
        row_scale, row_zero = self.constant(f"{name}_row_scale", step), self.constant(f"{name}_row_zero", zero)
        rounded, scale = rounded_columns(matrix, moments)
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
        rounded = np.round(table / np.where(scale > 0, scale, 1)).astype("int8")
        numbers = self.op("Gather", [self.constant(f"{name}_int8", rounded), ids])
        scales = self.op("Gather", [self.constant(f"{name}_scale", scale.astype("float32")), ids])
        return self.op("Mul", [self.op("Cast", [numbers], to=ir.DataType.FLOAT.value), scales])


def rounded_columns(matrix: np.ndarray, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix (rows, columns) as int8, and the float32 scales of its columns.

    Without VNNI, onnxruntime multiplies with the instruction `vpmaddubsw`. It adds the products of rows 2k and 2k + 1, each of a uint8 and
    an int8, in 16 bits, and cuts larger sums. The scale of a column is therefore so large that no sum of two weights of one sign
    exceeds `LARGEST_PAIR`. Weights of opposite signs have smaller sums than either alone.

    Later rows make up for the rounding of earlier ones, such that products with rows of these moments change least (GPTQ,
    arXiv:2210.17323, algorithm 1).

    Args:
        matrix: float32 (rows, columns).
        moments: see `RowStatistics`.
    """
    factor = _inverse_factor(moments)
    parts = np.split(matrix, range(COLUMNS, matrix.shape[1], COLUMNS), axis=1)
    rounded, scales = zip(*(_rounded_part(part, factor) for part in parts), strict=True)
    return np.concatenate(rounded, axis=1), np.concatenate(scales)


def _rounded_part(matrix: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return columns of a matrix (rows, columns) as int8, and their float32 scales; see `rounded_columns`."""
    left = matrix.astype("float64")  # the weights, less what earlier rows have made up for
    signs = np.stack([np.maximum(left, 0), np.maximum(-left, 0)])  # (2, rows, columns)
    even = np.pad(signs, [(0, 0), (0, len(left) % 2), (0, 0)])
    pairs = (even[:, 0::2] + even[:, 1::2]).max(axis=(0, 1))
    scale = np.maximum(signs.max(axis=(0, 1)) / LARGEST, pairs / LARGEST_PAIR)
    steps = np.where(scale > 0, scale, 1)
    rounded = np.zeros(left.shape, "int64")
    for first in range(0, len(left), BLOCK):
        end = min(first + BLOCK, len(left))
        errors = np.empty_like(left[first:end])
        for row in range(first, end):
            before = rounded[row - 1] if row % 2 else np.zeros_like(rounded[row])  # the other weight of the pair
            lowest = np.maximum(-LARGEST, -LARGEST_PAIR - np.minimum(before, 0))
            highest = np.minimum(LARGEST, LARGEST_PAIR - np.maximum(before, 0))
            rounded[row] = np.clip(np.round(left[row] / steps), lowest, highest)
            errors[row - first] = (left[row] - rounded[row] * steps) / factor[row, row]
            left[row + 1 : end] -= np.outer(factor[row, row + 1 : end], errors[row - first])
        left[end:] -= factor[first:end, end:].T @ errors
    return rounded.astype("int8"), scale.astype("float32")


def _inverse_factor(moments: np.ndarray) -> np.ndarray:
    """Return the upper triangular factor of the inverse of moments, whose diagonal is increased so that there is an inverse."""
    size = len(moments)
    damped = moments + np.eye(size) * (DAMPING * np.trace(moments) / size or 1.0)
    return np.linalg.cholesky(np.linalg.inv(damped)).T


def row_rounding(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the float32 scale and the uint8 zero with which numbers from `low`, at most 0, to `high`, at least 0, become uint8."""
    scale = (high - low) / 255 or 1.0
    return np.array(scale, "float32"), np.array(round(-low / scale), "uint8")
