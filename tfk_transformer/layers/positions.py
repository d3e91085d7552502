"""Positions: encodings that are added to embeddings, or biases that are added to attention scores.

A model has one or the other. `Positions` adds sinusoids or learned vectors, or with relative
positions nothing. `RelativePositions` then adds learned biases to the scores of self-attention, by
the distance of query and key, as in T5.
"""

import math

import keras
import numpy as np
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.keras_internals import take_rows
from tfk_transformer.layers.base import BaseLayer, Dropout
from tfk_transformer.layers.residual import make_norm

SINUSOIDS = ("sinusoidal", "sinusoidal_halves", "sinusoidal_paper_halves")


def sinusoid_columns(encoding: str, model_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return d, float64 (D,), and whether columns of `position_table` are cosines, bool (D,)."""
    columns = np.arange(model_dim)
    if encoding == "sinusoidal_halves":
        pairs = model_dim // 2
        is_cosine = (columns >= pairs) & (columns < 2 * pairs)
        divisors = 10000.0 ** ((columns - pairs * is_cosine) / max(pairs - 1, 1))
        divisors[2 * pairs :] = np.inf
        return divisors, is_cosine
    if encoding == "sinusoidal_paper_halves":
        columns = np.concatenate([columns[::2], columns[1::2]])
    return 10000.0 ** (columns // 2 * 2 / model_dim), columns % 2 == 1


def position_table(encoding: str, length: int, model_dim: int, offset: int = 0) -> np.ndarray:
    """Return the sinusoids of `length` positions from `offset` on, float32 (length, D).

    A column has sin(p / d) or cos(p / d) of each position p ("Attention Is All You Need", section
    3.5). The encodings are:

    - "sinusoidal": the paper's, with sines in even columns, cosines in odd ones, and
      d = 10000 ** (2i / D) for sine i and cosine i.
    - "sinusoidal_paper_halves": the same columns, all sines first, as MarianMT of Hugging Face has
      them. If D is odd, both have one sine more.
    - "sinusoidal_halves": tensor2tensor's, all sines first, with d = 10000 ** (i / (D/2 - 1)). If D
      is odd, the last column is 0.

    The offset is 2 in M2M100.
    """
    divisors, is_cosine = sinusoid_columns(encoding, model_dim)
    angles = np.arange(offset, offset + length)[:, None] / divisors
    return np.where(is_cosine, np.cos(angles), np.sin(angles)).astype("float32")


def sinusoids(length: int, model_dim: int, halves: bool = False) -> np.ndarray:
    """Compute the sinusoids of "Attention Is All You Need" (section 3.5), float32 (length, D).

    Args:
        length: number of positions.
        model_dim: D.
        halves: whether to use tensor2tensor's layout, with all sines first; see `position_table`.
            Defaults to False.
    """
    return position_table("sinusoidal_halves" if halves else "sinusoidal", length, model_dim)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Positions(BaseLayer):
    """Scale token embeddings, add position encodings, and apply layer norm and dropout to the sum.

    Args:
        kind: "learned", or one of `SINUSOIDS`; any other kind adds nothing.
        max_length: number of positions, without the prefix.
        scale: whether embeddings are multiplied by sqrt(D) ("Attention Is All You Need", section
            3.4).
        dropout: of the sum.
        offset: the number of the first position, for sinusoids.
        prefix: the number of tokens that the model adds to every sequence.
        norm, epsilon, norm_type: whether the sum is normalized, before dropout; see `make_norm`.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    arguments = (
        "kind",
        "max_length",
        "scale",
        "dropout",
        "offset",
        "prefix",
        "norm",
        "epsilon",
        "norm_type",
    )

    def __init__(
        self,
        kind: str,
        max_length: int,
        scale: bool = False,
        dropout: float = 0.0,
        offset: int = 0,
        prefix: int = 0,
        norm: bool = False,
        epsilon: float = 1e-6,
        norm_type: str = "layer",
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self.max_length = max_length
        self.scale = scale
        self.dropout = dropout
        self.offset = offset
        self.prefix = prefix
        self.norm = norm
        self.epsilon = epsilon
        self.norm_type = norm_type
        self.layer_norm = make_norm(norm_type, epsilon, self.dtype_policy) if norm else None
        self.sum_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        """Make the layer norm and the table (prefix + max_length, D), a weight if it is learned."""
        model_dim = input_shape[-1] or 0
        length = self.prefix + self.max_length
        if self.layer_norm:
            self.layer_norm.build(input_shape)
        self.table: Tensor = None
        if self.kind in SINUSOIDS:
            self.table = position_table(self.kind, length, model_dim, self.offset)
        elif self.kind == "learned":
            self.table = self.add_weight(
                name="table",
                shape=(length, model_dim),
                initializer=keras.initializers.RandomNormal(stddev=model_dim**-0.5),
            )

    def call(
        self, embedded: Tensor, training: bool | None = None, positions: Tensor = None
    ) -> Tensor:
        """Add positions, int32 (B, T), by default 0 to T-1 in every row, to (B, T, D)."""
        length = embedded.shape[1]
        # JAX has expressions for unknown lengths.
        if isinstance(length, int) and length > self.prefix + self.max_length:
            raise ValueError(
                f"sequence length: expected at most max_length={self.max_length} tokens, got "
                f"{length - self.prefix}; shorten it or raise max_length."
            )
        total = self._scaled(embedded)
        if self.table is not None:
            table = self._table(embedded.dtype)
            length = ops.shape(embedded)[1]
            by_number = isinstance(length, int) or keras.backend.backend() != "jax"
            if positions is None and not by_number:  # JAX slices by numbers only
                positions = ops.arange(length)
            total = total + (table[:length] if positions is None else take_rows(table, positions))
        return self.sum_dropout(self._normalized(total), training=training)

    def at(self, embedded: Tensor, position: Tensor) -> Tensor:
        """Add a position, a scalar or (M,), to the vectors of (B, M, D), without dropout."""
        total = self._scaled(embedded)
        if self.table is not None:
            total = total + ops.take(self._table(embedded.dtype), position, axis=0)
        return self._normalized(total)

    def _scaled(self, embedded: Tensor) -> Tensor:
        return embedded * embedded.shape[-1] ** 0.5 if self.scale else embedded

    def _table(self, dtype: str) -> Tensor:
        return ops.cast(ops.convert_to_tensor(self.table), dtype)

    def _normalized(self, total: Tensor) -> Tensor:
        return self.layer_norm(total) if self.layer_norm else total


def bucket_table(buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """Return the bucket, int32, of each distance from -max_distance to max_distance.

    A distance is key position minus query position. Half of the buckets have one distance each. The
    others grow logarithmically up to `max_distance` (arXiv:1910.10683, section 2.1); farther
    positions share a bucket. If `bidirectional`, later keys have the second half of the buckets,
    otherwise they all have bucket 0.
    """
    distances = np.arange(-max_distance, max_distance + 1)
    per_side = buckets // 2 if bidirectional else buckets
    lengths = np.abs(distances) if bidirectional else np.maximum(-distances, 0)
    exact = per_side // 2
    # In float32, because the last bit of a logarithm decides at the edge of a bucket.
    logarithms = np.log(np.maximum(lengths, 1).astype("float32") / np.float32(exact))
    shares = logarithms / np.float32(math.log(max_distance / exact))
    steps = (shares * np.float32(per_side - exact)).astype("int32")
    chosen = np.where(lengths < exact, lengths, np.minimum(exact + steps, per_side - 1))
    later = per_side if bidirectional else 0
    return np.where(distances > 0, chosen + later, chosen).astype("int32")


def key_positions(columns: Tensor, beams: Tensor, prefix: int = 0) -> Tensor:
    """Return the positions (C,) of the C keys in a cache.

    The tokens of the target's prefix have one key each, later positions one for each of M beams.
    """
    numbers = ops.arange(columns)
    return ops.where(numbers < prefix, numbers, prefix + (numbers - prefix) // beams)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class RelativePositions(BaseLayer):
    """Return a bias of the attention scores for each of H heads, query and key.

    The `table` (buckets, H) has a bias for each bucket of distances; see `bucket_table`. Queries
    also see later keys if `bidirectional`.
    """

    arguments = ("num_heads", "buckets", "max_distance", "bidirectional")

    def __init__(
        self,
        num_heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        **kwargs: object,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.num_heads = num_heads
        self.buckets = buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional

    def build(self, queries_shape: Shape | None = None, keys_shape: Shape | None = None) -> None:
        """Make the table."""
        self.table = self.add_weight(
            name="table",
            shape=(self.buckets, self.num_heads),
            initializer=keras.initializers.RandomNormal(stddev=0.1),
        )

    def compute_output_shape(  # type: ignore[override]
        self, queries_shape: Shape, keys_shape: Shape
    ) -> Shape:
        """Return the shape of the biases, (1, H, T, S)."""
        return (1, self.num_heads, queries_shape[0], keys_shape[0])

    def call(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return float32 biases (1, H, T, S) for the positions of queries (T,) and keys (S,)."""
        distances = ops.cast(keys, "int32")[None, :] - ops.cast(queries, "int32")[:, None]
        most = self.max_distance
        buckets = bucket_table(self.buckets, most, self.bidirectional)
        chosen = ops.take(ops.convert_to_tensor(buckets), ops.clip(distances, -most, most) + most)
        biases = take_rows(ops.cast(self.table, "float32"), chosen)  # (T, S, H)
        return ops.transpose(biases, (2, 0, 1))[None]
