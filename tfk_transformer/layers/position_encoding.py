"""From token embeddings to what a stack reads: scaled, with positions, dropped out."""

import keras
import numpy as np
from keras import ops

from tfk_transformer.layers.dropout import Dropout


def sinusoids(length: int, model_dim: int, halves: bool = False) -> np.ndarray:
    """Compute sinusoids of falling frequency ("Attention Is All You Need", section 3.5).

    Position p has sin(p f) and cos(p f) for D/2 frequencies f: side by side in even and odd columns with
    f = 10000 ** (-2i / D), as the paper has them; or all sines first and then all cosines with f = 10000 ** (-i / (D/2 - 1)),
    as tensor2tensor has them. If D is odd, the last column is a sine in the first layout and 0 in the second.

    Args:
        length: number of positions.
        model_dim: D.
        halves: the second layout.

    Returns:
        float32 (length, D).
    """
    pairs = model_dim // 2 if halves else -(-model_dim // 2)
    exponents = np.arange(pairs) / max(pairs - 1, 1) if halves else np.arange(pairs) * 2 / model_dim
    angles = np.arange(length)[:, None] / 10000.0**exponents  # (length, pairs)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=1 if halves else 2).reshape(length, 2 * pairs)
    return np.pad(waves, [(0, 0), (0, model_dim % 2)])[:, :model_dim].astype("float32")


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Positions(keras.layers.Layer):
    """Scale token embeddings, add an encoding of each token's position, drop out.

    Args:
        kind: "sinusoidal", "sinusoidal_halves" (see `sinusoids`) or "learned".
        max_length: number of positions there are.
        scale: whether embeddings are multiplied by sqrt(D) ("Attention Is All You Need", section 3.4).
        dropout: probability of dropping an element of the sum while training.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, kind: str, max_length: int, scale: bool = False, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.kind = kind
        self.max_length = max_length
        self.scale = scale
        self.dropout = dropout
        self.sum_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        """Make the table (max_length, D): a weight if learned, else a constant."""
        model_dim = input_shape[-1]
        if self.kind == "learned":
            self.table = self.add_weight(
                name="table", shape=(self.max_length, model_dim), initializer=keras.initializers.RandomNormal(stddev=model_dim**-0.5)
            )
        else:
            self.table = sinusoids(self.max_length, model_dim, halves=self.kind == "sinusoidal_halves")

    def call(self, embedded, training=None):
        """Give (B, T, D) the positions 0 .. T-1, in its dtype."""
        length = embedded.shape[1]
        if length is not None and length > self.max_length:
            raise ValueError(
                f"sequence length: expected at most max_length={self.max_length} tokens, got {length}; shorten it or raise max_length."
            )
        table = self._table(embedded.dtype)[: ops.shape(embedded)[1]]
        return self.sum_dropout(self._scaled(embedded) + table, training=training)

    def at(self, embedded, position):
        """Give every vector of (B, M, D) one position, a scalar; nothing is dropped."""
        return self._scaled(embedded) + ops.take(self._table(embedded.dtype), position, axis=0)

    def _scaled(self, embedded):
        return embedded * embedded.shape[-1] ** 0.5 if self.scale else embedded

    def _table(self, dtype):
        return ops.cast(ops.convert_to_tensor(self.table), dtype)

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        own = {name: getattr(self, name) for name in ("kind", "max_length", "scale", "dropout")}
        return {**super().get_config(), **own}
