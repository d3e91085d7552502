"""Write the operators that multiply rows by weights, in float32 or in 8-bit integers."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from onnxscript import TapeBuilder

CONTRIB = "com.microsoft"  # onnxruntime's own operators
INT8_MAX = 127  # the largest 8-bit weight; without -128, weights are symmetric around zero
LARGEST_PAIR = 128  # the sum of two weights of one sign: 128 * 255 < 2**15
KERNEL = "output/kernel"  # the projection to the vocabulary, if it is not an embedding table
DAMPING = 0.01  # the share of a diagonal's mean that is added to the diagonal
ROUNDING_BLOCK = 32  # rows that compensate the errors of all earlier rows in one product
COLUMNS = 4096  # columns that are rounded together, to limit the memory for large vocabularies

GetConstant = Callable[[str, np.ndarray], ir.Value]


class RowStatistics(NamedTuple):
    """Statistics of the rows (R, rows) that a matrix (rows, columns) is multiplied by."""

    low: float  # the smallest number, at most 0
    high: float  # the largest number, at least 0
    moments: np.ndarray  # float64 (rows, rows), the transposed rows times the rows


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


def rounded_columns(matrix: np.ndarray, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix (rows, columns) as int8, and the float32 scales of its columns.

    Without VNNI, onnxruntime multiplies with the instruction `vpmaddubsw`. It adds the products of
    rows 2k and 2k + 1, each of a uint8 and an int8, in 16 bits, and clips larger sums. The scale of
    a column is therefore so large that no sum of two weights of the same sign exceeds
    `LARGEST_PAIR`. The sum of two weights of opposite signs is smaller than the larger weight.

    Later rows compensate the rounding errors of earlier rows, which minimizes the change of
    products with rows of these moments. The result equals the result of GPTQ (arXiv:2210.17323,
    algorithm 1), computed as the nearest plane of a lattice (arXiv:2507.18553), without an inverse
    matrix.

    Args:
        matrix: float32 (rows, columns).
        moments: see `RowStatistics`.
    """
    shares = _error_shares(moments)
    parts = np.split(matrix, range(COLUMNS, matrix.shape[1], COLUMNS), axis=1)
    rounded, scales = zip(*(_round_part(part, shares) for part in parts), strict=True)
    return np.concatenate(rounded, axis=1), np.concatenate(scales)


def _round_part(matrix: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return columns of a matrix (rows, columns) as int8, and their float32 scales; see
    `rounded_columns`.
    """
    import tensorflow as tf

    scale = _column_scales(matrix)
    scaled = matrix / np.where(scale > 0, scale, 1)
    rounded = np.empty(scaled.shape, "int8")
    errors = np.empty_like(scaled)
    for first in range(0, len(scaled), ROUNDING_BLOCK):
        end = min(first + ROUNDING_BLOCK, len(scaled))
        # TensorFlow computes the product. NumPy's threads wait for each other in busy loops, which
        # takes many times as long while other programs run.
        compensation = tf.linalg.matmul(shares[first:end, :first], errors[:first]).numpy()
        target = scaled[first:end] + compensation
        for row in range(first, end):
            # The other weight of the pair of rows.
            before = rounded[row - 1].astype("float32") if row % 2 else np.zeros_like(scale)
            lowest = np.maximum(-INT8_MAX, -LARGEST_PAIR - np.minimum(before, 0))
            highest = np.minimum(INT8_MAX, LARGEST_PAIR - np.maximum(before, 0))
            rounded[row] = np.clip(np.round(target[row - first]), lowest, highest)
            errors[row] = scaled[row] - rounded[row]
            target[row + 1 - first :] += np.outer(shares[row + 1 : end, row], errors[row])
    return rounded, scale


def _column_scales(matrix: np.ndarray) -> np.ndarray:
    """Return the float32 scales of the columns.

    With these scales, no weight exceeds `INT8_MAX` and no pair of weights exceeds `LARGEST_PAIR`.
    """
    signs = np.stack([np.maximum(matrix, 0), np.maximum(-matrix, 0)])  # (2, rows, columns)
    even = np.pad(signs, [(0, 0), (0, len(matrix) % 2), (0, 0)])
    pairs = (even[:, 0::2] + even[:, 1::2]).max(axis=(0, 1))
    return np.maximum(signs.max(axis=(0, 1)) / INT8_MAX, pairs / LARGEST_PAIR)


def _error_shares(moments: np.ndarray) -> np.ndarray:
    """Return the share of each earlier row's error that a row compensates, float32 (rows, rows).

    The moments are U^T U with a lower triangular U. If e are the errors of all rows, products
    change by the length of the vector U e. Entry i of this vector is 0 if e[i] is minus the sum of
    U[i, j] / U[i, i] * e[j] over the earlier rows j. The diagonal of the moments is increased so
    that U exists.
    """
    import tensorflow as tf

    size = len(moments)
    damped = moments + np.eye(size) * (DAMPING * np.trace(moments) / size or 1.0)
    factor = tf.linalg.cholesky(damped[::-1, ::-1]).numpy()[::-1, ::-1].T
    return np.ascontiguousarray(factor / np.diag(factor)[:, None], "float32")


def row_rounding(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the float32 scale and the uint8 zero point that map numbers to uint8.

    Args:
        low: the smallest number, at most 0.
        high: the largest number, at least 0.
    """
    scale = (high - low) / 255 or 1.0
    return np.array(scale, "float32"), np.array(round(-low / scale), "uint8")
