"""Learned biases of attention scores by the distance of two positions, as in T5."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.keras_internals import take_rows
from tfk_transformer.layers.masks import as_additive


class RelativeOptions(NamedTuple):
    """Options of the relative positions of a stack."""

    buckets: int  # number of buckets of distances
    max_distance: int  # from this distance in tokens on, all positions share a bucket
    by_layer: bool  # whether each layer has a table, or all layers share one


class StepPositions(NamedTuple):
    """The positions of the tokens of a decoding step."""

    queries: Tensor  # (N,), or (1,) for a position that all N tokens share
    keys: Tensor  # (C,): of the cached tokens and the new ones


def bucket_table(buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """Return the bucket of each distance, key position minus query position.

    Half of the buckets have one distance each. The others grow logarithmically up to `max_distance`
    (arXiv:1910.10683, section 2.1).

    Args:
        buckets: number of buckets.
        max_distance: from this distance on, all positions share a bucket.
        bidirectional: whether later keys have buckets of their own: the second half. Otherwise, all
            of them have bucket 0.

    Returns:
        int32 (2 * max_distance + 1,), for the distances from -max_distance to max_distance.
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
    """Return the positions (C,) of the keys in a cache.

    Args:
        columns: C, the number of keys.
        beams: M. A cache has M keys for each position after the prefix.
        prefix: number of tokens of the target's prefix, which has one key for each position.
    """
    numbers = ops.arange(columns)
    return ops.where(numbers < prefix, numbers, prefix + (numbers - prefix) // beams)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class RelativePositions(keras.layers.Layer):
    """Return a bias of the attention scores for each head, query and key.

    The `table` (buckets, H) has a bias for each bucket of distances; see `bucket_table`.

    Args:
        num_heads: H.
        buckets: number of buckets. Defaults to 32.
        max_distance: from this distance in tokens on, all positions share a bucket. Defaults to
            128.
        bidirectional: whether queries also see later keys. Defaults to True.
        **kwargs: arguments of `keras.layers.Layer`.
    """

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

    def compute_output_shape(self, queries_shape: Shape, keys_shape: Shape) -> Shape:
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

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        names = ("num_heads", "buckets", "max_distance", "bidirectional")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def biased_masks(
    tables: Sequence[RelativePositions],
    attention_mask: Tensor,
    queries: Tensor,
    keys: Tensor,
    num_layers: int,
) -> list[Tensor]:
    """Return each layer's mask for self-attention, with the biases of relative positions.

    Args:
        tables: the table that all layers share, one for each layer, or none.
        attention_mask: see `masks.as_additive`; None hides nothing.
        queries: the positions of the queries (T,).
        keys: the positions of the keys (S,).
        num_layers: number of layers.
    """
    biases = [table(queries, keys) for table in tables]
    if attention_mask is not None and biases:
        mask = as_additive(attention_mask)
        biases = [mask + bias for bias in biases]
    masks = biases or [attention_mask]
    return masks if len(masks) == num_layers else masks * num_layers
