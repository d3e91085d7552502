"""Position encodings, and the layer that adds them to token embeddings."""

import keras
import numpy as np
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.keras_internals import take_rows
from tfk_transformer.layers.dropout import Dropout
from tfk_transformer.layers.layer_norm import NORMS


def sinusoids(length: int, model_dim: int, halves: bool = False) -> np.ndarray:
    """Compute the sinusoidal position encodings of "Attention Is All You Need" (section 3.5).

    Position p has sin(p f) and cos(p f) for D/2 frequencies f. In the paper's layout, sines and
    cosines alternate in even and odd columns, and f = 10000 ** (-2i / D). In tensor2tensor's
    layout, all sines come first and all cosines second, and
    f = 10000 ** (-i / (D/2 - 1)). If D is odd, the last column is a sine in the first layout and 0
    in the second.

    Args:
        length: number of positions.
        model_dim: D.
        halves: whether to use tensor2tensor's layout. Defaults to False.

    Returns:
        float32 (length, D).
    """
    pairs = model_dim // 2 if halves else -(-model_dim // 2)
    exponents = np.arange(pairs) / max(pairs - 1, 1) if halves else np.arange(pairs) * 2 / model_dim
    angles = np.arange(length)[:, None] / 10000.0**exponents  # (length, pairs)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=1 if halves else 2).reshape(
        length, 2 * pairs
    )
    return np.pad(waves, [(0, 0), (0, model_dim % 2)])[:, :model_dim].astype("float32")


def position_table(encoding: str, length: int, model_dim: int, offset: int = 0) -> np.ndarray:
    """Return the table of a position encoding that is not learned.

    "sinusoidal_paper_halves" has the frequencies of the paper with all sines first and all cosines
    second, as MarianMT of Hugging Face has them. If D is odd, there is one sine more.

    Args:
        encoding: "sinusoidal", "sinusoidal_halves" (see `sinusoids`) or "sinusoidal_paper_halves".
        length: number of positions.
        model_dim: D.
        offset: the number of the first position, 2 in M2M100. Defaults to 0.

    Returns:
        float32 (length, D).
    """
    table = sinusoids(offset + length, model_dim, halves=encoding == "sinusoidal_halves")[offset:]
    if encoding == "sinusoidal_paper_halves":
        return np.concatenate([table[:, ::2], table[:, 1::2]], axis=1)
    return table


def _first_rows(table: Tensor, length: Tensor) -> Tensor:
    if keras.backend.backend() == "jax" and not isinstance(length, int):
        return take_rows(table, ops.arange(length))  # JAX slices by numbers only
    return table[:length]


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Positions(keras.layers.Layer):
    """Scale token embeddings, add position encodings, and apply layer norm and dropout to the sum.

    Args:
        kind: "learned", or a kind of sinusoids, see `position_table`; or "relative" or
            "relative_by_layer", which add nothing here, see `relative_positions`.
        max_length: number of positions.
        scale: whether embeddings are multiplied by sqrt(D) ("Attention Is All You Need", section
            3.4). Defaults to False.
        dropout: probability of dropping an element of the sum while training. Defaults to 0.
        offset: the number of the first position, for sinusoids. Defaults to 0.
        prefix: the number of tokens that the model adds to every sequence. They have positions
            beyond `max_length`. Defaults to 0.
        norm: whether the sum is normalized, before dropout. Defaults to False.
        epsilon: added to the variance in the norm. Defaults to 1e-6.
        norm_type: "layer" or "rms"; see `layer_norm.NORMS`. Defaults to "layer".
        **kwargs: arguments of `keras.layers.Layer`.
    """

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
        self.layer_norm = (
            NORMS[norm_type](epsilon=epsilon, dtype=self.dtype_policy, name="norm")
            if norm
            else None
        )
        self.sum_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        """Make the layer norm and the table (prefix + max_length, D), a weight if it is learned."""
        model_dim = input_shape[-1] or 0
        length = self.prefix + self.max_length
        if self.layer_norm:
            self.layer_norm.build(input_shape)
        if self.kind == "learned":
            self.table = self.add_weight(
                name="table",
                shape=(length, model_dim),
                initializer=keras.initializers.RandomNormal(stddev=model_dim**-0.5),
            )
        elif self.kind.startswith("relative"):
            self.table = None
        else:
            self.table = position_table(self.kind, length, model_dim, self.offset)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the output, which is the shape of the input."""
        return input_shape

    def call(
        self, embedded: Tensor, training: bool | None = None, positions: Tensor = None
    ) -> Tensor:
        """Add positions to (B, T, D).

        Args:
            embedded: token embeddings (B, T, D).
            training: whether dropout is applied.
            positions: int32 (B, T). Defaults to None: 0 to T-1 in every row.

        Returns:
            (B, T, D), in the dtype of `embedded`.

        Raises:
            ValueError: if T without the prefix is known and above `max_length`.
        """
        length = embedded.shape[1]
        # JAX has expressions for unknown lengths.
        if isinstance(length, int) and length > self.prefix + self.max_length:
            raise ValueError(
                f"sequence length: expected at most max_length={self.max_length} tokens, got "
                f"{length - self.prefix}; shorten it or "
                "raise max_length."
            )
        total = self._scaled(embedded)
        if self.table is not None:
            table = self._table(embedded.dtype)
            if positions is None:
                encoding = _first_rows(table, ops.shape(embedded)[1])
            else:
                encoding = take_rows(table, positions)
            total = total + encoding
        return self.sum_dropout(self._normalized(total), training=training)

    def at(self, embedded: Tensor, position: Tensor) -> Tensor:
        """Add a position, a scalar or (M,), to the vectors of (B, M, D), without dropout."""
        total = self._scaled(embedded)
        if self.table is not None:
            total = total + ops.take(self._table(embedded.dtype), position, axis=0)
        return self._normalized(total)

    def _normalized(self, total: Tensor) -> Tensor:
        return self.layer_norm(total) if self.layer_norm else total

    def _scaled(self, embedded: Tensor) -> Tensor:
        return embedded * embedded.shape[-1] ** 0.5 if self.scale else embedded

    def _table(self, dtype: str) -> Tensor:
        return ops.cast(ops.convert_to_tensor(self.table), dtype)

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        names = (
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
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
