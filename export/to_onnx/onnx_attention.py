"""Attention as operators of ONNX: standard ones, or onnxruntime's own."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tfk_transformer.export.to_onnx.onnx_matmul import CONTRIB
from tfk_transformer.export.to_onnx.operator_writer import OperatorWriter
from tfk_transformer.layers.masks import HIDDEN


class StandardAttention:
    """Writes attention with standard operators.

    Args:
        writer: of the operators.
        path: of the attention's weights, such as "decoder/layer_0/self_attention".
        shape: the graph's int64 [A, M]; for the encoder [B, S].
    """

    def __init__(self, writer: OperatorWriter, path: str, shape: ir.Value):
        self.writer, self.path, self.shape = writer, path, shape
        self.options = writer.options
        self.context_roles = ["value"] if self.options.keys_are_values else ["key", "value"]

    def to_itself(self, x, mask) -> ir.Value:
        """Attend from rows (B*S, D) to themselves; mask (B, 1, 1, S), additive."""
        query, *context = self.heads(x, ["query", *self.context_roles])
        return self.join(self.attend(query, context[0], context[-1], mask)[0])

    def to_past(self, x, past: Sequence[ir.Value], lineage) -> tuple[ir.Value, list[ir.Value]]:
        """Attend from rows (R, D) to the past and themselves; see `DecoderLayer.step`. Return rows, and keys and values grown."""
        query, *context = self.heads(x, ["query", *self.context_roles])
        pairs = zip(past, (context[0], context[-1]), strict=True)
        key, value = (self.writer.op("Concat", list(pair), axis=2) for pair in pairs)
        return self.join(self.attend(query, key, value, lineage)[0]), [key, value]

    def to_source(self, x, memory: Sequence[ir.Value], mask) -> ir.Value:
        """Attend from rows (R, D) to keys (A, H, S, K) and values (A, H, S, V); mask (A, 1, 1, S), additive."""
        return self.to_source_visibly(x, memory, mask)[0]

    def to_source_visibly(self, x, memory: Sequence[ir.Value], mask) -> tuple[ir.Value, ir.Value]:
        """Do as `to_source`, and return the attention weights (A, H, M, S) too."""
        (query,) = self.heads(x, ["query"])
        attended, weights = self.attend(query, *memory, mask)
        return self.join(attended), weights

    def project_source(self, memory) -> list[ir.Value]:
        """Project the encoder's rows (B*S, D) to keys (B, H, S, K) and values (B, H, S, V)."""
        heads = self.heads(memory, self.context_roles)
        return [heads[0], heads[-1]]

    def attend(self, query, key, value, mask) -> tuple[ir.Value, ir.Value]:
        """Return heads side by side (A, M, H, V), and attention weights (A, H, M, S)."""
        op = self.writer.op
        scores = op("MatMul", [query, op("Transpose", [key], perm=[0, 1, 3, 2])])  # queries are scaled
        weights = op("Softmax", [op("Add", [scores, mask])], axis=-1)
        return op("Transpose", [op("MatMul", [weights, value])], perm=[0, 2, 1, 3]), weights

    def project(self, x, roles: Sequence[str]) -> ir.Value:
        """Multiply rows (R, D) by the weights of the roles, side by side."""
        matrix = np.concatenate([self._matrix(role) for role in roles], axis=1)
        biased = any(f"{self.path}/{role}_bias" in self.writer.weights for role in roles)
        bias = np.concatenate([self._bias(role) for role in roles]) if biased else None
        return self.writer.matmul.multiply(x, f"{self.path}/{'_'.join(roles)}", matrix, bias)

    def heads(self, x, roles: Sequence[str]) -> list[ir.Value]:
        """Project rows (R, D) to heads (A, H, M, width) for each role."""
        count, projected = self.options.num_heads, self.project(x, roles)
        if self.options.query_width == self.options.value_width:
            return self._split(self._to_heads(projected, len(roles) * count, roles[0]), [count] * len(roles), axis=1)
        parts = self._split(projected, [count * self._width(role) for role in roles], axis=-1)
        return [self._to_heads(part, count, role) for part, role in zip(parts, roles, strict=True)]

    def join(self, attended) -> ir.Value:
        """Project heads side by side (A, M, …) to rows (R, D)."""
        width = self.options.num_heads * self.options.value_width
        rows = self.writer.op("Reshape", [attended, self.writer.ints(-1, width)])
        name = f"{self.path}/output"
        return self.writer.matmul.multiply(rows, name, self.writer.weights[name], self.writer.weights.get(f"{name}_bias"))

    def by_sentence(self, *widths: int) -> ir.Value:
        """Return the shape (A, M, *widths), all of it said: onnxruntime infers no width where A is 0."""
        return self.writer.op("Concat", [self.shape, self.writer.ints(*widths)], axis=0)

    def _to_heads(self, part, count: int, role: str):
        parted = self.writer.op("Reshape", [part, self.by_sentence(count, self._width(role))])  # (A, M, count, width)
        return self.writer.op("Transpose", [parted], perm=[0, 2, 1, 3])

    def _split(self, x, widths: Sequence[int], axis: int) -> list[ir.Value]:
        return [x] if len(widths) == 1 else list(self.writer.ops("Split", [x, self.writer.ints(*widths)], len(widths), axis=axis))

    def _width(self, role: str) -> int:
        return self.options.value_width if role == "value" else self.options.query_width

    def _scale(self, role: str) -> float:
        """Return what a role's weights are multiplied by: the scores' divisor stands in the query's."""
        width = self.options.query_width if role == "query" else 1
        return 1.0 / (width if self.options.attention_scale == "key_dim" else width**0.5)

    def _matrix(self, role: str) -> np.ndarray:
        """Return a role's weights (H, D, width) as (D, H*width); where heads share theirs, each reads its slice of D."""
        weight = self.writer.weights[f"{self.path}/{role}"] * np.float32(self._scale(role))
        if self.options.shared_projections:
            return np.kron(np.eye(self.options.num_heads, dtype="float32"), weight[0])
        return weight.transpose(1, 0, 2).reshape(weight.shape[1], -1)

    def _bias(self, role: str) -> np.ndarray:
        bias = self.writer.weights.get(f"{self.path}/{role}_bias", np.zeros((1, 1, self._width(role)), "float32"))
        return np.broadcast_to(bias * np.float32(self._scale(role)), (self.options.num_heads, 1, self._width(role))).reshape(-1)


class FusedAttention(StandardAttention):
    """Writes attention as `MultiHeadAttention` of onnxruntime, which is faster for small batches."""

    def to_itself(self, x, mask) -> ir.Value:
        """Attend from rows (B*S, D) to themselves; mask (B, 1, 1, S), additive."""
        query, *context = self._side_by_side(x, ["query", *self.context_roles])
        (attended,) = self._call(1, [query, context[0], context[-1], None, self._keep(mask)])
        return self.join(attended)

    def to_past(self, x, past: Sequence[ir.Value], lineage) -> tuple[ir.Value, list[ir.Value]]:
        """Attend from rows (R, D) to the past and themselves; see `DecoderLayer.step`. Return rows, and keys and values grown."""
        query, *context = self._side_by_side(x, ["query", *self.context_roles])
        attended, *grown = self._call(3, [query, context[0], context[-1], None, None, lineage, *past])
        return self.join(attended), grown

    def to_source(self, x, memory: Sequence[ir.Value], mask) -> ir.Value:
        """Attend from rows (R, D) to keys (A, H, S, K) and values (A, H, S, V); mask (A, 1, 1, S), additive."""
        (query,) = self._side_by_side(x, ["query"])
        (attended,) = self._call(1, [query, *memory, None, self._keep(mask)])
        return self.join(attended)

    def _side_by_side(self, x, roles: Sequence[str]) -> list[ir.Value]:
        """Project rows (R, D) to (A, M, H*width) for each role."""
        widths = [self.options.num_heads * self._width(role) for role in roles]
        return self._split(self.writer.op("Reshape", [self.project(x, roles), self.by_sentence(sum(widths))]), widths, axis=-1)

    def _call(self, outputs: int, inputs) -> Sequence[ir.Value]:
        attributes = {"num_heads": self.options.num_heads, "scale": 1.0, "mask_filter_value": HIDDEN}
        return self.writer.ops("MultiHeadAttention", inputs, outputs, CONTRIB, **attributes)

    def _keep(self, mask) -> ir.Value:
        """Return a mask (A, 1, 1, S) as the operator takes it: int32 (A, S), 1 for real tokens."""
        op = self.writer.op
        real = op("Greater", [mask, self.writer.constant("half_hidden", np.float32(HIDDEN / 2))])
        return op("Cast", [op("Squeeze", [real, self.writer.ints(1, 2)])], to=ir.DataType.INT32.value)
