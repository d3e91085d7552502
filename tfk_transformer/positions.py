"""Position encodings, added to the token embeddings."""

import keras
import numpy as np
from keras import ops


def sinusoids(length: int, model_dim: int, halves: bool = False) -> np.ndarray:
    """Compute the sinusoids of "Attention Is All You Need", section 3.5.

    Position p has sin(p / 10000 ** (2i / D)) and the cosine of the same angle for i = 0 .. D/2 - 1.

    Args:
        length: number of positions.
        model_dim: D, even.
        halves: False puts sines in even and cosines in odd columns, as the paper; True all sines first, then all
            cosines. (tensor2tensor's halves also space the frequencies over D/2 - 1 steps; ours keep the paper's.)

    Returns:
        float32 (length, D).
    """
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, model_dim, 2) / model_dim)  # (length, D/2)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=1 if halves else 2)
    return waves.reshape(length, model_dim).astype("float32")


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Positions(keras.layers.Layer):
    """Add an encoding of each token's position to its embedding.

    Args:
        kind: "sinusoidal", "sinusoidal_halves" or "learned".
        max_length: number of positions there are.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, kind: str, max_length: int, **kwargs):
        super().__init__(**kwargs)
        self.kind = kind
        self.max_length = max_length

    def build(self, input_shape):
        """Make the table (max_length, D): a weight if learned, else a constant."""
        model_dim = input_shape[-1]
        if self.kind == "learned":
            self.table = self.add_weight(
                name="table", shape=(self.max_length, model_dim), initializer=keras.initializers.RandomNormal(stddev=model_dim**-0.5)
            )
        else:
            self.table = sinusoids(self.max_length, model_dim, halves=self.kind == "sinusoidal_halves")

    def call(self, embedded):
        """Add the encodings of positions 0 .. T-1 to (B, T, D), in its dtype."""
        length = embedded.shape[1]
        if length is not None and length > self.max_length:
            raise ValueError(
                f"sequence length: expected at most max_length={self.max_length} tokens, got {length}; shorten it or raise max_length."
            )
        return embedded + self._table(embedded.dtype)[: ops.shape(embedded)[1]]

    def at(self, embedded, position):
        """Add the encoding of one position, a scalar, to every vector of (B, M, D)."""
        return embedded + ops.take(self._table(embedded.dtype), position, axis=0)

    def _table(self, dtype):
        return ops.cast(ops.convert_to_tensor(self.table), dtype)

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        return {**super().get_config(), "kind": self.kind, "max_length": self.max_length}
