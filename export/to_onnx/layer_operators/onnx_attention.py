"""Write attention as ONNX operators."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OperatorWriter


class StandardAttention:
    """Writes attention with standard operators.

    `operator_writer` explains the letters of shapes.

    Args:
        writer: writer of the operators.
        path: common part of the names of the attention's weights, such as
            "decoder/layer_0/self_attention".
        shape: int64 value [A, M], or [B, S] in the encoder.
    """

    def __init__(self, writer: OperatorWriter, path: str, shape: ir.Value):
        self.writer = writer
        self.path = path
        self.shape = shape
        self.options = writer.options
        self.context_roles = ["value"] if self.options.keys_are_values else ["key", "value"]

    def to_itself(self, x: ir.Value, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Attend from rows (B*S, D) to themselves.

        The mask (B or 1, 1, 1 or S, S) is additive. Return rows, and weights (B, H, S, S).
        """
        query, *context = self.heads(x, ["query", *self.context_roles])
        attended, weights = self.attend(query, context[0], context[-1], mask)
        return self.join(attended), weights

    def to_past(
        self, x: ir.Value, past: Sequence[ir.Value], lineage: ir.Value
    ) -> tuple[ir.Value, list[ir.Value]]:
        """Attend from rows (R, D) to earlier positions and themselves; see `DecoderLayer.step`.

        Return rows, and the longer KV cache.
        """
        query, *context = self.heads(x, ["query", *self.context_roles])
        pairs = zip(past, (context[0], context[-1]), strict=True)
        key, value = (self.writer.op.Concat(*pair, axis=2) for pair in pairs)
        return self.join(self.attend(query, key, value, lineage)[0]), [key, value]

    def to_source(
        self, x: ir.Value, memory: Sequence[ir.Value], mask: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """Attend from rows (R, D) to keys (A, H, S, K) and values (A, H, S, V).

        The mask (A, 1, 1, S) is additive. Return rows, and attention weights (A, H, M, S).
        """
        (query,) = self.heads(x, ["query"])
        attended, weights = self.attend(query, memory[0], memory[1], mask)
        return self.join(attended), weights

    def project_source(self, encoded: ir.Value) -> list[ir.Value]:
        """Project the encoder's output, rows (B*S, D), to the memory.

        Return keys (B, H, S, K) and values (B, H, S, V).
        """
        heads = self.heads(encoded, self.context_roles)
        return [heads[0], heads[-1]]

    def attend(
        self, query: ir.Value, key: ir.Value, value: ir.Value, mask: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """Return the heads' outputs (A, M, H, V), and attention weights (A, H, M, S)."""
        op = self.writer.op
        # The scores need no scale: the weights of queries are scaled.
        scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))
        weights = self.softmax(op.Add(scores, mask))
        return op.Transpose(op.MatMul(weights, value), perm=[0, 2, 1, 3]), weights

    def softmax(self, scores: ir.Value) -> ir.Value:
        """Return the attention weights, the softmax of scores (A, H, M, S)."""
        return self.writer.op.Softmax(scores, axis=-1)

    def project(self, x: ir.Value, roles: Sequence[str]) -> ir.Value:
        """Multiply rows (R, D) by the concatenated weights of "query", "key" or "value"."""
        matrix = np.concatenate([self._matrix(role) for role in roles], axis=1)
        biased = any(f"{self.path}/{role}_bias" in self.writer.weights for role in roles)
        bias = np.concatenate([self._bias(role) for role in roles]) if biased else None
        return self.writer.matmul.multiply(x, f"{self.path}/{'_'.join(roles)}", matrix, bias)

    def heads(self, x: ir.Value, roles: Sequence[str]) -> list[ir.Value]:
        """Project rows (R, D) to heads (A, H, M, width) for each role."""
        count = self.options.num_heads
        projected = self.project(x, roles)
        if self.options.query_width == self.options.value_width:
            heads = self._to_heads(projected, len(roles) * count, roles[0])
            return self._split(heads, [count] * len(roles), axis=1)
        parts = self._split(projected, [count * self._width(role) for role in roles], axis=-1)
        return [self._to_heads(part, count, role) for part, role in zip(parts, roles, strict=True)]

    def join(self, attended: ir.Value) -> ir.Value:
        """Project the heads' outputs (A, M, …) to rows (R, D)."""
        width = self.options.num_heads * self.options.value_width
        rows = self.writer.op.Reshape(attended, self.writer.ints(-1, width))
        name = f"{self.path}/output"
        bias = self.writer.weights.get(f"{name}_bias")
        return self.writer.matmul.multiply(rows, name, self.writer.weights[name], bias)

    def _to_heads(self, part: ir.Value, count: int, role: str) -> ir.Value:
        # No size is -1, because onnxruntime cannot infer a size if A is 0.
        sizes = self.writer.ints(count, self._width(role))
        shape = self.writer.op.Concat(self.shape, sizes, axis=0)
        heads = self.writer.op.Reshape(part, shape)  # (A, M, count, width)
        return self.writer.op.Transpose(heads, perm=[0, 2, 1, 3])

    def _split(self, x: ir.Value, widths: Sequence[int], axis: int) -> list[ir.Value]:
        if len(widths) == 1:
            return [x]
        sizes = self.writer.ints(*widths)
        return list(self.writer.op.Split(x, sizes, axis=axis, _outputs=len(widths)))

    def _width(self, role: str) -> int:
        return self.options.value_width if role == "value" else self.options.query_width

    def _scale(self, role: str) -> float:
        """Return the factor of a role's weights.

        The query's weights include the divisor of the attention scores.
        """
        width = self.options.query_width if role == "query" else 1
        return 1.0 / (width if self.options.attention_scale == "key_dim" else width**0.5)

    def _matrix(self, role: str) -> np.ndarray:
        """Return a role's weights (H, D, width) as (D, H*width).

        If heads share weights, each head projects its slice of D.
        """
        weight = self.writer.weights[f"{self.path}/{role}"] * np.float32(self._scale(role))
        if self.options.shared_projections:
            return np.kron(np.eye(self.options.num_heads, dtype="float32"), weight[0])
        return weight.transpose(1, 0, 2).reshape(weight.shape[1], -1)

    def _bias(self, role: str) -> np.ndarray:
        zeros = np.zeros((1, 1, self._width(role)), "float32")
        bias = self.writer.weights.get(f"{self.path}/{role}_bias", zeros)
        bias = bias * np.float32(self._scale(role))
        return np.broadcast_to(bias, (self.options.num_heads, 1, bias.shape[-1])).reshape(-1)


class ReproducibleAttention(StandardAttention):
    """Writes attention with a softmax that depends neither on the processor nor on the padding.

    onnxruntime's softmax adds more than 16 exponentials in another order with AVX-512 than with
    AVX2. The last bit of the sum then differs, and 8-bit rounding enlarges the difference. A sum in
    float64 is the same after rounding to float32.
    """

    def softmax(self, scores: ir.Value) -> ir.Value:
        """Return the attention weights, the softmax of scores (A, H, M, S)."""
        op = self.writer.op
        last = self.writer.ints(-1)
        powers = op.Exp(op.Sub(scores, op.ReduceMax(scores, last, keepdims=1)))
        exact = op.Cast(powers, to=ir.DataType.DOUBLE.value)
        total = op.ReduceSum(exact, last, keepdims=1)
        return op.Div(powers, op.Cast(total, to=ir.DataType.FLOAT.value))
