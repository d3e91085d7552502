"""Operators that multiply rows by weights, in float32 or in 8-bit integers."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

CONTRIB = "com.microsoft"  # onnxruntime's own operators
INT8_MAX = 127  # of 8-bit weights; without -128 they are symmetric around zero
LARGEST_PAIR = 128  # the sum of two weights of one sign: 128 * 255 < 2**15
# The name of the projection to the vocabulary, if it is not an embedding table.
KERNEL = "output/kernel"
DAMPING = 0.01  # the share of the mean of a diagonal that is added to it
# Rows that make up for the errors of all rows before them together, by one product.
ROUNDING_BLOCK = 32
# Columns that are rounded together, so that a vocabulary of any size takes little memory.
COLUMNS = 4096

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

    def multiply(
        self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (R, rows) by a matrix (rows, columns) and add a bias (columns,)."""
        kernel = self.constant(name, matrix)
        if bias is None:
            return self.op("MatMul", [x, kernel])
        return self.op("Gemm", [x, kernel, self.bias(name, bias)])

    def multiply_by_table(
        self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (R, D) by an embedding table (vocab_size, D) that also embeds tokens: x
        table^T + bias.
        """
        more = [] if bias is None else [self.constant("output/bias", bias)]
        return self.op("Gemm", [x, self.constant(name, table), *more], transB=1)

    def multiply_by_some_of_table(
        self,
        x: ir.Value,
        name: str,
        table: np.ndarray,
        ids: ir.Value,
        bias: np.ndarray | None = None,
    ) -> ir.Value:
        """Multiply rows (R, D) by those rows of a table (vocab_size, D) that belong to ids (n,),
        and add those of a bias: (R, n).

        `optimize` moves the operators that only read the ids out of a loop.

        Args:
            x: rows (R, D).
            name: the name of the table if it also embeds tokens, otherwise "output/kernel", the
                name of its transpose.
            table: (vocab_size, D).
            ids: (n,).
            bias: (vocab_size,).
        """
        chosen = self.op(
            "Gather", [self.constant(f"{name}_transposed" if name == KERNEL else name, table), ids]
        )
        more = (
            [] if bias is None else [self.op("Gather", [self.constant("output/bias", bias), ids])]
        )
        return self.op("Gemm", [x, chosen, *more], transB=1)

    def look_up(self, name: str, table: np.ndarray, ids: ir.Value) -> ir.Value:
        """Look up ids (A, M) in an embedding table (vocab_size, D): (A, M, D)."""
        return self.op("Gather", [self.constant(name, table), ids])

    def bias(self, name: str, bias: np.ndarray) -> ir.Value:
        """Return the bias of the weights of this name, with the name that it has in Keras."""
        return self.constant(
            f"{name.removesuffix('kernel')}bias" if name.endswith("/kernel") else f"{name}_bias",
            bias,
        )


class Int8MatMul(Float32MatMul):
    """Writes products of 8-bit integers, with one scale for each column of weights, and one range
    for the rows of each product.

    The range does not depend on the rows, so a row's product does not depend on the other rows of
    its batch. The sums are the same on every processor, because `rounded_columns` keeps them within
    what processors without VNNI can add.

    Args:
        op: see `Float32MatMul`.
        constant: see `Float32MatMul`.
        prefix: see `Float32MatMul`.
        rows: what is known of the rows, by the name of the weights in the whole model, see
            `calibration.observe_rows`. Numbers outside their range are cut.
        kept: parts of the names of weights that remain float32.
    """

    def __init__(
        self,
        op: WriteOperator,
        constant: GetConstant,
        prefix: str,
        rows: Mapping[str, RowStatistics],
        kept: Sequence[str] = (),
    ):
        super().__init__(op, constant, prefix)
        self.rows = rows
        self.kept = kept

    def multiply(
        self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (R, rows) by a matrix (rows, columns) and add a bias (columns,)."""
        if any(part in name for part in self.kept):
            return super().multiply(x, name, matrix, bias)
        rows, row_scale, row_zero = self._rounded(x, name)
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
        return self.op(
            "MatMulIntegerToFloat",
            inputs + ([] if bias is None else [self.bias(name, bias)]),
            CONTRIB,
        )

    def _rounded(self, x: ir.Value, name: str) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the rows of a product as uint8, their scale and their zero."""
        low, high, _ = self.rows[self.prefix + name]
        step, zero = row_rounding(low, high)
        producer = x.producer()
        # The smallest uint8 is 0 here: rounding cuts as Relu does.
        if low == 0 and producer and producer.op_type == "Relu":
            x = producer.inputs[0]
        row_scale, row_zero = (
            self.constant(f"{name}_row_scale", step),
            self.constant(f"{name}_row_zero", zero),
        )
        return self.op("QuantizeLinear", [x, row_scale, row_zero]), row_scale, row_zero

    def multiply_by_table(
        self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (R, D) by an embedding table (vocab_size, D). The operator requires a
        transposed copy of it.
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
        """Multiply rows (R, D) by those rows of a table (vocab_size, D) that belong to ids (n,),
        and add those of a bias: (R, n).
        """
        product = name if name == KERNEL else f"output/{name}"
        if any(part in product for part in self.kept):
            return super().multiply_by_some_of_table(x, name, table, ids, bias)
        rows, row_scale, row_zero = self._rounded(x, product)
        rounded, scale = rounded_columns(table.T, self.rows[self.prefix + product].moments)
        chosen = self.op("Gather", [self.constant(f"{product}_int8_transposed", rounded.T), ids])
        scales = self.op("Gather", [self.constant(f"{product}_scale", scale), ids])
        more = (
            []
            if bias is None
            else [None, self.op("Gather", [self.constant("output/bias", bias), ids])]
        )
        inputs = [
            rows,
            self.op("Transpose", [chosen], perm=[1, 0]),
            row_scale,
            scales,
            row_zero,
            *more,
        ]
        return self.op("MatMulIntegerToFloat", inputs, CONTRIB)

    def look_up(self, name: str, table: np.ndarray, ids: ir.Value) -> ir.Value:
        """Look up ids (A, M) in an embedding table (vocab_size, D): (A, M, D)."""
        scale = np.abs(table).max(axis=1, keepdims=True) / INT8_MAX
        rounded = np.round(table / np.where(scale > 0, scale, 1)).astype("int8")
        numbers = self.op("Gather", [self.constant(f"{name}_int8", rounded), ids])
        scales = self.op("Gather", [self.constant(f"{name}_scale", scale.astype("float32")), ids])
        return self.op("Mul", [self.op("Cast", [numbers], to=ir.DataType.FLOAT.value), scales])


def rounded_columns(matrix: np.ndarray, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix (rows, columns) as int8, and the float32 scales of its columns.

    Without VNNI, onnxruntime multiplies with the instruction `vpmaddubsw`. It adds the products of
    rows 2k and 2k + 1, each of a uint8 and an int8, in 16 bits, and cuts larger sums. The scale of
    a column is therefore so large that no sum of two weights of one sign exceeds `LARGEST_PAIR`.
    Weights of opposite signs have smaller sums than either alone.

    Later rows make up for the rounding of earlier ones, such that products with rows of these
    moments change least. These are the numbers of GPTQ (arXiv:2210.17323, algorithm 1), computed as
    the nearest plane of a lattice (arXiv:2507.18553): without an inverse matrix.

    Args:
        matrix: float32 (rows, columns).
        moments: see `RowStatistics`.
    """
    shares = _shares(moments)
    parts = np.split(matrix, range(COLUMNS, matrix.shape[1], COLUMNS), axis=1)
    rounded, scales = zip(*(_rounded_part(part, shares) for part in parts), strict=True)
    return np.concatenate(rounded, axis=1), np.concatenate(scales)


def _rounded_part(matrix: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return columns of a matrix (rows, columns) as int8, and their float32 scales; see
    `rounded_columns`.
    """
    import tensorflow as tf

    scale = _column_scales(matrix)
    given = matrix / np.where(scale > 0, scale, 1)
    rounded, errors = np.empty(given.shape, "int8"), np.empty_like(given)
    for first in range(0, len(given), ROUNDING_BLOCK):
        end = min(first + ROUNDING_BLOCK, len(given))
        # TensorFlow's product: the threads of NumPy's wait for each other in a loop, many times as
        # long where other programs run.
        wanted = (
            given[first:end] + tf.linalg.matmul(shares[first:end, :first], errors[:first]).numpy()
        )
        for row in range(first, end):
            # The other weight of the pair.
            before = rounded[row - 1].astype("float32") if row % 2 else np.zeros_like(scale)
            lowest = np.maximum(-INT8_MAX, -LARGEST_PAIR - np.minimum(before, 0))
            highest = np.minimum(INT8_MAX, LARGEST_PAIR - np.maximum(before, 0))
            rounded[row] = np.clip(np.round(wanted[row - first]), lowest, highest)
            errors[row] = given[row] - rounded[row]
            wanted[row + 1 - first :] += np.outer(shares[row + 1 : end, row], errors[row])
    return rounded, scale


def _column_scales(matrix: np.ndarray) -> np.ndarray:
    """Return the float32 scales of columns with which no weight exceeds `INT8_MAX`, and no pair
    `LARGEST_PAIR`.
    """
    signs = np.stack([np.maximum(matrix, 0), np.maximum(-matrix, 0)])  # (2, rows, columns)
    even = np.pad(signs, [(0, 0), (0, len(matrix) % 2), (0, 0)])
    pairs = (even[:, 0::2] + even[:, 1::2]).max(axis=(0, 1))
    scales: np.ndarray = np.maximum(signs.max(axis=(0, 1)) / INT8_MAX, pairs / LARGEST_PAIR)
    return scales


def _shares(moments: np.ndarray) -> np.ndarray:
    """Return which share of the error of each earlier row a row makes up for, float32 (rows, rows).

    With moments U^T U of a lower triangular U, products change by the length of U times the errors.
    Its entry of a row is 0 if the row's error is minus the sum of earlier errors times U's entries,
    divided by U's entry on the diagonal. The diagonal of the moments is increased so that there is
    a U.
    """
    import tensorflow as tf

    size = len(moments)
    damped = moments + np.eye(size) * (DAMPING * np.trace(moments) / size or 1.0)
    factor = tf.linalg.cholesky(damped[::-1, ::-1]).numpy()[::-1, ::-1].T
    return np.ascontiguousarray(factor / np.diag(factor)[:, None], "float32")


def row_rounding(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the float32 scale and the uint8 zero with which numbers from `low`, at most 0, to
    `high`, at least 0, become uint8.
    """
    scale = (high - low) / 255 or 1.0
    return np.array(scale, "float32"), np.array(round(-low / scale), "uint8")
