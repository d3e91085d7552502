"""The position-wise feed-forward block ("Attention Is All You Need", section 3.3)."""

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="tfk_transformer")
class FeedForward(keras.layers.Layer):
    """Apply max(0, x W1 + b1) W2 + b2 to each position.

    Args:
        ff_dim: F, the inner width.
        dropout: probability of dropping an inner activation while training. Defaults to 0.
        activation: name of a Keras activation, which replaces max(0, x). Defaults to "relu".
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self, ff_dim: int, dropout: float = 0.0, activation: str = "relu", **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.activation = activation
        self.inner = keras.layers.Dense(
            ff_dim, activation=activation, dtype=self.dtype_policy, name="inner"
        )
        self.inner_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        """Make the weights for inputs (…, D)."""
        model_dim = input_shape[-1]
        self.outer = keras.layers.Dense(model_dim, dtype=self.dtype_policy, name="outer")
        self.inner.build((None, None, model_dim))
        self.outer.build((None, None, self.ff_dim))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the output, which is the shape of the input."""
        return input_shape

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        # (B*T, D), so that each layer is one plain matrix product.
        rows = ops.reshape(x, (-1, x.shape[-1]))
        rows = self.outer(self.inner_dropout(self.inner(rows), training=training))
        return ops.reshape(rows, ops.shape(x))

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "ff_dim": self.ff_dim,
            "dropout": self.dropout,
            "activation": self.activation,
        }
