"""Write the operators that combine positions: attention, and SSRUs; see `operator_writer`."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import Value
from onnxscript import TapeBuilder

from tfk_transformer.export.to_onnx.layer_operators.onnx_matmul import CONTRIB
from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OperatorWriter

# Exponentials of masked scores would be too small for normal numbers, with which processors are
# many times as fast. The exponential of this power is too small to change a sum with the greatest
# exponential, which is 1.
LOWEST_POWER = np.float32(-80)


class PackedRows:
    """Writes the operators that remove the padding of a batch and restore it.

    An encoder computes everything but attention for the N tokens that are no padding. A sentence of
    padding only keeps all rows, because they attend to each other. `is_hidden` is bool (B, S).
    """

    def __init__(self, writer: OperatorWriter, is_hidden: Value):
        op = writer.op
        self.op = op
        hidden = op.Cast(is_hidden, to=ir.DataType.INT64.value)  # (B, S)
        all_hidden = op.ReduceMin(hidden, writer.ints(1), keepdims=1)
        is_kept = op.Add(op.Sub(all_hidden, hidden), writer.ints(1))
        self.indices = op.Transpose(op.NonZero(is_kept), perm=[1, 0])  # (N, 2)
        counts = op.CumSum(
            op.Reshape(is_kept, writer.ints(-1)), writer.constant("start", np.int64(0))
        )
        # (B, S): the row of each token; padding has the row before it.
        self.rows = op.Reshape(op.Sub(counts, writer.ints(1)), op.Shape(is_hidden))

    def pack(self, x: Value) -> Value:
        """Return the rows (N, D) of (B, S, D) that are no padding."""
        return self.op.GatherND(x, self.indices)

    def unpack(self, rows: Value) -> Value:
        """Return (B, S, D) from rows (N, D). Padding has the rows of other tokens."""
        return self.op.Gather(rows, self.rows)


class StandardAttention:
    """Writes attention with standard operators.

    The names of the weights begin with `path`, such as "decoder/layer_0/self_attention". With
    `one_query`, M is 1, and heads need no transposition. With `packed`, rows are (N, D) before and
    after attention.
    """

    def __init__(
        self,
        writer: OperatorWriter,
        path: str,
        one_query: bool = False,
        packed: PackedRows | None = None,
    ):
        self.writer = writer
        self.path = path
        self.one_query = one_query
        self.packed = packed
        self.options = writer.options
        self.context_roles = ["value"] if self.options.keys_are_values else ["key", "value"]

    def to_itself(self, x: Value, mask: Value) -> tuple[Value, Value]:
        """Attend from rows (B, S, D) to themselves; the mask (B or 1, 1, 1 or S, S) is additive."""
        query, *context = self.heads(x, ["query", *self.context_roles])
        attended, weights = self.attend(query, context[0], context[-1], mask)
        return self.join(attended), weights

    def to_past(
        self, x: Value, past: Sequence[Value], lineage: Value | None
    ) -> tuple[Value, list[Value]]:
        """Attend from rows (A, M, D) to the past and themselves: rows, and the longer KV cache.

        A lineage of None is correct for M = 1.
        """
        query, *context = self.heads(x, ["query", *self.context_roles])
        pairs = zip(past, (context[0], context[-1]), strict=True)
        key, value = (self.writer.op.Concat(*pair, axis=2) for pair in pairs)
        return self.join(self.attend_past(query, key, value, lineage)), [key, value]

    def to_source(self, x: Value, memory: Sequence[Value], mask: Value) -> tuple[Value, Value]:
        """Attend from rows (A, M, D) to keys and values, with an additive mask (A, 1, 1, S)."""
        (query,) = self.heads(x, ["query"])
        attended, weights = self.attend_source(query, memory[0], memory[1], mask)
        return self.join(attended), weights

    def attend(
        self, query: Value, key: Value, value: Value, mask: Value | None
    ) -> tuple[Value, Value]:
        """Return the heads' outputs (A, H, M, V), and attention weights (A, H, M, S)."""
        op = self.writer.op
        # The scores need no scale: the weights of queries are scaled.
        scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))
        weights = op.Softmax(self._masked(scores, mask), axis=-1)
        return op.MatMul(weights, value), weights

    def _masked(self, scores: Value, mask: Value | None) -> Value:
        return scores if mask is None else self.writer.op.Add(scores, mask)

    # For keys and values that all steps of a search read.
    attend_source = attend

    def attend_past(self, query: Value, key: Value, value: Value, lineage: Value | None) -> Value:
        """Return the heads' outputs (A, H, M, V) of an attention without padding."""
        return self.attend(query, key, value, lineage)[0]

    def heads(self, x: Value, roles: Sequence[str]) -> list[Value]:
        """Project rows (A, M, D) to heads (A, H, M, width) for all roles, with one product."""
        count = self.options.num_heads
        matrices, biases = zip(*map(self._projection, roles), strict=True)
        biased = any(f"{self.path}/{role}_bias" in self.writer.weights for role in roles)
        matrix = np.concatenate(matrices, axis=1)
        bias = np.concatenate(biases) if biased else None
        name = f"{self.path}/{'_'.join(roles)}"
        projected = self.writer.matmul.multiply(x, name, matrix, bias)
        if self.packed:
            projected = self.packed.unpack(projected)
        if self.options.query_width == self.options.value_width:
            heads = self._to_heads(projected, len(roles) * count, roles[0])
            return self._split(heads, [count] * len(roles), axis=1)
        parts = self._split(projected, [count * self._width(role) for role in roles], axis=-1)
        return [self._to_heads(part, count, role) for part, role in zip(parts, roles, strict=True)]

    def join(self, attended: Value) -> Value:
        """Project the heads' outputs (A, H, M, V) to rows (A, M, D)."""
        op = self.writer.op
        width = self.options.num_heads * self.options.value_width
        if self.one_query:
            rows = op.Reshape(attended, self.writer.ints(0, 1, width))
        else:
            by_row = op.Transpose(attended, perm=[0, 2, 1, 3])  # (A, M, H, V)
            rows = op.Reshape(by_row, self.writer.ints(0, 0, width))
        if self.packed:
            rows = self.packed.pack(rows)
        name = f"{self.path}/output"
        bias = self.writer.weights.get(f"{name}_bias")
        return self.writer.matmul.multiply(rows, name, self.writer.weights[name], bias)

    def _to_heads(self, part: Value, count: int, role: str) -> Value:
        # A size of 0 means the size that the input has. No size is -1, because onnxruntime cannot
        # infer a size if A is 0.
        if self.one_query:
            return self.writer.op.Reshape(part, self.writer.ints(0, count, 1, self._width(role)))
        shape = self.writer.ints(0, 0, count, self._width(role))
        heads = self.writer.op.Reshape(part, shape)  # (A, M, count, width)
        return self.writer.op.Transpose(heads, perm=[0, 2, 1, 3])

    def _split(self, x: Value, widths: Sequence[int], axis: int) -> list[Value]:
        if len(widths) == 1:
            return [x]
        sizes = self.writer.ints(*widths)
        return list(self.writer.op.Split(x, sizes, axis=axis, _outputs=len(widths)))

    def _width(self, role: str) -> int:
        return self.options.value_width if role == "value" else self.options.query_width

    def _projection(self, role: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a role's weights (H, D, width) as (D, H*width), and its bias (H*width,)."""
        options = self.options
        # The query's weights include the divisor of the scores.
        width = options.query_width if role == "query" else 1
        scale = np.float32(1.0 / (width if options.attention_scale == "key_dim" else width**0.5))
        zeros = np.zeros((1, 1, self._width(role)), "float32")
        bias = self.writer.weights.get(f"{self.path}/{role}_bias", zeros) * scale
        bias = np.broadcast_to(bias, (options.num_heads, 1, bias.shape[-1])).reshape(-1)
        weight = self.writer.weights[f"{self.path}/{role}"] * scale
        if options.shared_projections:  # each head projects its slice of D
            return np.kron(np.eye(options.num_heads, dtype="float32"), weight[0]), bias
        return weight.transpose(1, 0, 2).reshape(weight.shape[1], -1), bias


class ReproducibleAttention(StandardAttention):
    """Writes attention that depends neither on the processor nor on padding of multiples of 4.

    onnxruntime's softmax adds more than 16 exponentials in another order with AVX-512 than with
    AVX2. The last bit of the sum then differs, and 8-bit rounding enlarges the difference. Each
    method adds the exponentials in the way that is the fastest for its shapes.
    """

    def attend(
        self, query: Value, key: Value, value: Value, mask: Value | None
    ) -> tuple[Value, Value]:
        """Sum in float64, which is the same in every order, after rounding to float32."""
        op = self.writer.op
        powers = self._powers(op.FusedMatMul(query, key, transB=1, _domain=CONTRIB), mask)
        exact = op.Cast(powers, to=ir.DataType.DOUBLE.value)
        total = op.ReduceSum(exact, self.writer.ints(-1), keepdims=1)
        weights = op.Div(powers, op.Cast(total, to=ir.DataType.FLOAT.value))
        return op.MatMul(weights, value), weights

    def attend_source(
        self, query: Value, key: Value, value: Value, mask: Value
    ) -> tuple[Value, Value]:
        """Let the product with the values compute the sum, too, with one more column of ones."""
        # The keys are transposed and the column is added before the loop.
        op = self.writer.op
        scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))
        powers = self._powers(scores, mask)
        one = self.writer.constant("one", np.float32(1))
        with_ones = op.Pad(value, self.writer.ints(0, 0, 0, 0, 0, 0, 0, 1), one)
        sizes = self.writer.ints(self.options.value_width, 1)
        sums, total = op.Split(op.MatMul(powers, with_ones), sizes, axis=-1, _outputs=2)
        return op.Div(sums, total), op.Div(powers, total)

    def attend_past(self, query: Value, key: Value, value: Value, lineage: Value | None) -> Value:
        """Sum in float32, which onnxruntime compiles for the oldest processors: equal on all."""
        op = self.writer.op
        powers = self._powers(op.FusedMatMul(query, key, transB=1, _domain=CONTRIB), lineage)
        total = op.ReduceSum(powers, self.writer.ints(-1), keepdims=1)
        return op.Div(op.MatMul(powers, value), total)

    def _powers(self, scores: Value, mask: Value | None) -> Value:
        """Return the exponentials of masked scores (A, H, M, S) minus their maximum."""
        op = self.writer.op
        masked = self._masked(scores, mask)
        power = op.Sub(masked, op.ReduceMax(masked, self.writer.ints(-1), keepdims=1))
        if mask is not None:
            power = op.Max(power, self.writer.constant("lowest_power", LOWEST_POWER))
        return op.Exp(power)


def attention(
    writer: OperatorWriter, path: str, one_query: bool = False, packed: PackedRows | None = None
) -> StandardAttention:
    """Return the attention whose sums are as reproducible as the writer's products."""
    attention_type = ReproducibleAttention if writer.is_int8 else StandardAttention
    return attention_type(writer, path, one_query, packed)


class SSRUWriter:
    """Writes the SSRU of a decoder layer with standard operators; see `layers.ssru`.

    It has the methods of `StandardAttention` that self-attention uses.
    """

    def __init__(self, writer: OperatorWriter, path: str):
        self.writer = writer
        self.path = path
        self.width = writer.options.model_dim

    def to_past(
        self, x: Value, past: Sequence[Value], lineage: Value | None
    ) -> tuple[Value, list[Value]]:
        """Map rows (A, M, D) to rows, and return the next states (A, 1, M, D); see `SSRU.step`."""
        op = self.writer.op
        ints = self.writer.ints
        forget, update = self._gates(x)
        # The first step has no previous state, and a sum or a product of no columns.
        if lineage is None:
            previous = op.ReduceSum(*past, ints(2), keepdims=0)
        else:
            beams = op.Shape(x, start=1, end=2)  # (1,): M
            columns = op.Slice(lineage, op.Mul(beams, ints(-2)), op.Neg(beams), ints(3))
            visible = op.Equal(columns, self.writer.constant("visible", np.float32(0)))
            previous = op.MatMul(op.Cast(visible, to=ir.DataType.FLOAT.value), *past)
            previous = op.Squeeze(previous, ints(1))
        rows = op.Add(op.Mul(forget, previous), update)
        return op.Relu(rows), [op.Unsqueeze(rows, ints(1))]

    def to_itself(self, x: Value, mask: Value) -> tuple[Value, Value]:
        """Map rows (B, T, D) to rows, without a mask and heads: the weights are (B, 0, T, T)."""
        op = self.writer.op
        ints = self.writer.ints
        sentences = op.Shape(x, end=1)
        zero = self.writer.constant("visible", np.float32(0))
        first = op.Expand(zero, op.Concat(sentences, ints(self.width), axis=0))
        axes = {"num_scan_inputs": 2, "scan_input_axes": [1, 1], "scan_output_axes": [1]}
        _, states = op.Scan(first, *self._gates(x), body=_recurrence(), **axes, _outputs=2)
        length = op.Shape(x, start=1, end=2)
        no_heads = op.Expand(zero, op.Concat(sentences, ints(0), length, length, axis=0))
        return op.Relu(states), no_heads

    def _gates(self, x: Value) -> tuple[Value, Value]:
        """Return f and (1 - f) * (x W), rows (A, M, D), from one product."""
        op = self.writer.op
        names = ("kernel", "forget_kernel")
        matrix = np.concatenate([self.writer.weights[f"{self.path}/{n}"] for n in names], axis=1)
        bias = np.pad(self.writer.weights[f"{self.path}/forget_bias"], (self.width, 0))
        projected = self.writer.matmul.multiply(x, f"{self.path}/{'_'.join(names)}", matrix, bias)
        sizes = self.writer.ints(self.width, self.width)
        linear, forget = op.Split(projected, sizes, axis=-1, _outputs=2)
        forget = op.Sigmoid(forget)
        rest = op.Sub(self.writer.constant("one", np.float32(1)), forget)
        return forget, op.Mul(rest, linear)


def _recurrence() -> ir.Graph:
    """Return the body of a Scan: from the state c, f and u (B, D) to f * c + u, twice."""
    op = TapeBuilder()
    inputs = [ir.val(name, ir.DataType.FLOAT, [None, None]) for name in ("c", "f", "u")]
    next_state = op.Add(op.Mul(inputs[1], inputs[0]), inputs[2])
    outputs = [next_state, op.Identity(next_state)]
    for value in outputs:
        value.dtype = ir.DataType.FLOAT
    return ir.Graph(inputs, outputs, nodes=op.nodes, name="recurrence")
