"""Write the ONNX operators that the encoder and the decoding step have in common.

Operators are written from the configuration and the weights. Matrices have a row for each token.
Letters of shapes: A or B sentences; M beams of each sentence, in the encoder S tokens; D is
model_dim, H num_heads, K key_dim and V value_dim.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.export.to_onnx.layer_operators.onnx_matmul import (
    Float32MatMul,
    GraphWriter,
    Int8MatMul,
)
from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import WeightRounding
from tfk_transformer.layers.positions import bucket_table, position_table, sinusoid_columns

SOURCE_MULTIPLE = 4  # onnxruntime adds this many products at a time
OPEN_END = np.iinfo("int64").max  # the end of a slice to the last element


class OperatorWriter(GraphWriter):
    """Writes operators and constants of a model's layers.

    The options are of the layers of the encoder or the decoder. With a `rounding`, products are of
    8-bit integers.
    """

    def __init__(
        self,
        graph: ir.Graph,
        config: TransformerConfig | LanguageModelConfig,
        options: LayerOptions,
        weights: Mapping[str, np.ndarray],
        rounding: WeightRounding | None = None,
        prefix: str = "",
    ):
        super().__init__(graph, prefix)
        self.config = config
        self.options = options
        self.weights = weights
        self.matmul = Int8MatMul(self, rounding) if rounding else Float32MatMul(self)
        self.is_int8 = rounding is not None
        self.source_multiple = SOURCE_MULTIPLE if self.is_int8 else 1  # sources are padded to it

    def range(self, count: Value) -> Value:
        """Return int64 (n,), the numbers from 0 to n - 1, for n as (1,)."""
        first = self.constant("start", np.int64(0))
        step = self.constant("one_step", np.int64(1))
        return self.op.Range(first, self.op.Squeeze(count), step)

    def slice(self, x: Value, start: Value, end: Value, axis: int) -> Value:
        """Return the elements of an axis from `start` (1,) to `end` (1,)."""
        return self.op.Slice(x, start, end, self.ints(axis))

    def drop_first(self, x: Value, count: int, axis: int) -> Value:
        """Return a value without the first `count` elements of an axis."""
        return self.slice(x, self.ints(count), self.ints(OPEN_END), axis) if count else x

    def expand_last(self, x: Value, like: Value, size: int) -> Value:
        """Repeat a value to the shape of `like`, with `size` as the size of the last axis."""
        shape = self.op.Concat(self.op.Shape(like, end=-1), self.ints(size), axis=0)
        return self.op.Expand(x, shape)

    # The tokens that a model puts before every source and every target; see `models.transformer`. A
    # model without prefixes has none of these operators.

    def repeat_prefix(self, side: str, ids: Value) -> Value:
        """Return the prefix of a side for each row of ids (B, T): (B, P)."""
        array = np.array([self._prefix_of(side)], "int32")
        return self.expand_last(self.constant(f"{side}_prefix", array), ids, array.size)

    def add_prefix(self, side: str, ids: Value) -> Value:
        """Put the prefix of a side before ids (B, T): (B, P+T)."""
        if not self._prefix_of(side):
            return ids
        return self.op.Concat(self.repeat_prefix(side, ids), ids, axis=1)

    def _prefix_of(self, side: str) -> tuple[int, ...]:
        # A classifier's configuration has no prefixes.
        option = "source_additions" if side == "source" else "target_prefix"
        return getattr(self.config, option, ())

    def table(self, side: str) -> str:
        """Return the name of a side's embedding table. A shared table has the source's name."""
        name = f"{side}_embedding/embeddings"
        return name if name in self.weights else "source_embedding/embeddings"

    def positions(self, side: str) -> Value:
        """Return the table of positions (max_length, D), longer with prefixes or padded sources."""
        spare = self.source_multiple - 1
        name = f"{side}_positions/table"
        if name in self.weights:
            return self.constant(name, np.pad(self.weights[name], [(0, spare), (0, 0)]))
        c = self.config
        prefixes = map(self._prefix_of, ("source", "target"))
        length = max(map(len, prefixes)) + c.max_length + spare
        if self.is_int8:
            return self._sinusoids(length)
        table = position_table(c.positions, length, c.model_dim, c.position_offset)
        return self.constant("positions", table)

    def _sinusoids(self, length: int) -> Value:
        """Compute `position_table`, which would be over 1 % of a small int8 file."""
        c = self.config
        divisors, is_cosine = sinusoid_columns(c.positions, c.model_dim)
        positions = np.arange(c.position_offset, c.position_offset + length, dtype="float64")
        angles = self.op.Div(
            self.constant("sinusoids/positions", positions[:, None]),
            self.constant("sinusoids/divisors", divisors),
        )
        waves = self.op.Where(
            self.constant("sinusoids/is_cosine", is_cosine),
            self.op.Cos(angles),
            self.op.Sin(angles),
        )
        return self.op.Cast(waves, to=ir.DataType.FLOAT.value)

    def first_positions(self, side: str, ids: Value) -> Value:
        """Return the positions (T, D) of ids (B, T)."""
        length = self.op.Shape(ids, start=1)
        return self.slice(self.positions(side), self.ints(0), length, axis=0)

    def relative_tables(self, stack: str) -> list[str]:
        """Return the names of the tables of relative positions of "encoder" or "decoder"."""
        path = f"{stack}/relative_positions"
        by_layer = [f"{path}_{i}/table" for i in range(self._layers(stack))]
        return [name for name in (f"{path}/table", *by_layer) if name in self.weights]

    def full_pass_masks(self, stack: str, ids: Value, mask: Value) -> list[Value]:
        """Return each layer's mask for the self-attention of a full pass over ids (B, T)."""
        if not self.relative_tables(stack):
            return [mask] * self._layers(stack)
        positions = self.range(self.op.Shape(ids, start=1))
        return self.biased_masks(stack, mask, positions, positions)

    def biased_masks(self, stack: str, mask: Value, queries: Value, keys: Value) -> list[Value]:
        """Add each table of relative positions to an additive mask (A or 1, 1, T or 1, S).

        Queries (T,) and keys (S,) are int64 positions. Each layer's mask is (A or 1, H, T, S).
        """
        most = self.config.position_max_distance
        limits = [self.constant(f"distance/{n}", np.int64(n)) for n in (-most, most)]
        distances = self.op.Sub(keys, self.op.Unsqueeze(queries, self.ints(1)))  # (T, S)
        indices = self.op.Add(self.op.Clip(distances, *limits), limits[1])
        buckets = bucket_table(self.config.position_buckets, most, stack == "encoder")
        masks = []
        for name in self.relative_tables(stack):
            by_distance = self.constant(f"{name}_by_distance", self.weights[name][buckets].T)
            masks.append(self.op.Add(mask, self.op.Gather(by_distance, indices, axis=1)))
        return masks if len(masks) == self._layers(stack) else masks * self._layers(stack)

    def _layers(self, stack: str) -> int:
        return int(getattr(self.config, f"{stack}_layers"))

    def embed(self, side: str, ids: Value, positions: Value | None) -> Value:
        """Embed ids (A, M), and add positions (…, D) unless they are relative: rows (A, M, D)."""
        table = self.table(side)
        factor = self.config.model_dim**0.5 if self.config.scale_embeddings else 1.0
        x = self.matmul.look_up(table, self.weights[table], ids, factor)
        if positions is not None:
            x = self.op.Add(x, positions)
        return self.normalize(x, f"{side}_positions/norm") if self.config.embedding_norm else x

    def normalize(self, x: Value, path: str) -> Value:
        """Normalize rows (A, M, D)."""
        op = self.op
        epsilon = self.options.norm_epsilon
        if self.options.has_rms_norm:
            square = op.ReduceMean(op.Mul(x, x), self.ints(-1), keepdims=1)
            square = op.Add(square, self.constant("norm_epsilon", np.float32(epsilon)))
            return op.Mul(op.Div(x, op.Sqrt(square)), self._weight(f"{path}/gamma"))
        # onnxruntime's SkipLayerNormalization would save one operator, but takes five times as long
        # as Add and LayerNormalization.
        gamma, beta = (self._weight(f"{path}/{name}") for name in ("gamma", "beta"))
        return op.LayerNormalization(x, gamma, beta, axis=-1, epsilon=epsilon)

    def _weight(self, name: str) -> Value:
        return self.constant(name, self.weights[name])

    def enter(self, x: Value, path: str) -> Value:
        """Return the input of a sublayer from rows (A, M, D), as `residual.Residual.enter` does."""
        return self.normalize(x, path) if self.options.normalizes_input else x

    def leave(self, x: Value, output: Value, path: str) -> Value:
        """Add the output of a sublayer to rows (A, M, D), as `residual.Residual` does."""
        producer = output.producer()
        has_bias = producer is not None and producer.op_type == "Add"
        total = self.op.Sum(x, *producer.inputs) if has_bias else self.op.Add(x, output)
        return total if self.options.normalizes_input else self.normalize(total, path)

    def finish(self, x: Value, stack: str) -> Value:
        """Normalize the output (A, M, D) of "encoder" or "decoder", if it has a final norm."""
        norm = f"{stack}/final_norm"
        return self.normalize(x, norm) if f"{norm}/gamma" in self.weights else x

    def feed_forward(self, x: Value, path: str) -> Value:
        """Apply a feed-forward block, with its residual connection, to rows (A, M, D)."""
        norm = f"{path}/ff_residual/norm"
        entered = self.enter(x, norm)
        hidden = self._activate(self._dense(entered, f"{path}/feed_forward/inner"))
        if self.options.ff_gated:
            hidden = self.op.Mul(hidden, self._dense(entered, f"{path}/feed_forward/linear"))
        output = self._dense(hidden, f"{path}/feed_forward/outer")
        return self.leave(x, output, norm)

    def _dense(self, x: Value, path: str) -> Value:
        return self.matmul.multiply(
            x, f"{path}/kernel", self.weights[f"{path}/kernel"], self.weights.get(f"{path}/bias")
        )

    def _activate(self, x: Value) -> Value:
        op = self.op
        if self.options.ff_activation == "relu":
            return op.Relu(x)
        if self.options.ff_activation == "silu":
            return op.Mul(x, op.Sigmoid(x))
        if self.options.ff_activation == "gelu_sigmoid":
            steepness = self.constant("gelu/1.702", np.float32(1.702))
            return op.Mul(x, op.Sigmoid(op.Mul(x, steepness)))
        half, one, root = (
            self.constant(f"gelu/{value}", np.float32(value)) for value in (0.5, 1.0, 2.0**0.5)
        )
        if self.options.ff_activation == "gelu_tanh":
            scale = self.constant("gelu/scale", np.float32((2 / np.pi) ** 0.5))
            cubic = self.constant("gelu/cubic", np.float32(0.044715))
            cube = op.Mul(cubic, op.Mul(x, op.Mul(x, x)))
            share = op.Tanh(op.Mul(scale, op.Add(x, cube)))
        else:
            share = op.Erf(op.Div(x, root))
        # 2 * the distribution function of the normal distribution, or its approximation.
        doubled = op.Add(share, one)
        return op.Mul(op.Mul(x, doubled), half)
