"""Operators that multiply rows by weights, in float32 or in 8-bit integers."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

CONTRIB = "com.microsoft"  # onnxruntime's own operators
LARGEST = 127  # of 8-bit weights; without -128 they are symmetric around zero

WriteOperator = Callable[..., ir.Value]
GetConstant = Callable[[str, np.ndarray], ir.Value]


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
    """Writes products with weights of 8 bits, with one scale for each column. Rows are rounded to 8 bits at run time.

    Args:
        op: see `Float32MatMul`.
        constant: see `Float32MatMul`.
        kept: parts of the names of weights that remain float32.
    """

    def __init__(self, op: WriteOperator, constant: GetConstant, kept: Sequence[str] = ()):
        super().__init__(op, constant)
        self.kept = kept

    def multiply(self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None) -> ir.Value:
        """Multiply rows (R, rows) by a matrix (rows, columns) and add a bias (columns,)."""
        if any(part in name for part in self.kept):
            return super().multiply(x, name, matrix, bias)
        rounded, scale = _rounded(matrix, axis=0)
        zeros = self.constant(f"zeros/{scale.size}", np.zeros(scale.size, "int8"))
        inputs = [x, self.constant(f"{name}_int8", rounded), self.constant(f"{name}_scale", scale), zeros]
        return self.op("DynamicQuantizeMatMul", inputs + ([] if bias is None else [self.bias(name, bias)]), CONTRIB)

    def multiply_by_table(self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None) -> ir.Value:
        """Multiply rows (R, D) by an embedding table (vocab_size, D). The operator requires a transposed copy of it."""
        return self.multiply(x, f"output/{name}", table.T, bias)

    def look_up(self, name: str, table: np.ndarray, ids: ir.Value) -> ir.Value:
        """Look up ids (A, M) in an embedding table (vocab_size, D): (A, M, D)."""
        rounded, scale = _rounded(table, axis=1)
        rows = self.op("Cast", [self.op("Gather", [self.constant(f"{name}_int8", rounded), ids])], to=ir.DataType.FLOAT.value)
        return self.op("Mul", [rows, self.op("Gather", [self.constant(f"{name}_scale", scale[:, None]), ids])])


def _rounded(array: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an array as int8, and float32 scales. Numbers along `axis` share a scale."""
    scale = np.abs(array).max(axis, keepdims=True) / LARGEST
    rounded = np.round(array / np.where(scale > 0, scale, 1)).astype("int8")
    return rounded, scale.astype("float32").reshape(-1)
