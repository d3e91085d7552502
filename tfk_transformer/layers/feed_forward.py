"""The position-wise feed-forward block ("Attention Is All You Need", section 3.3)."""

import functools
from collections.abc import Callable

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.layers.base import BaseLayer, Dropout

# The activations that Keras has under another name, or not at all.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": functools.partial(keras.activations.gelu, approximate=True),
    "gelu_sigmoid": lambda x: x * ops.sigmoid(1.702 * x),
}


@keras.saving.register_keras_serializable(package="tfk_transformer")
class FeedForward(BaseLayer):
    """Apply max(0, x W1 + b1) W2 + b2 to each position.

    Gated: (max(0, x W1 + b1) * (x V + c)) W2 + b2 (arXiv:2002.05202).

    Args:
        ff_dim: F, the inner width.
        dropout: probability of dropping an inner activation while training. Defaults to 0.
        activation: name of an activation, of `ACTIVATIONS` or of Keras, which replaces max(0, x).
            Defaults to "relu".
        gated: whether the inner activations are multiplied by a second product. Defaults to False.
        use_bias: whether the products have biases. Defaults to True.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    arguments = ("ff_dim", "dropout", "activation", "gated", "use_bias")

    def __init__(
        self,
        ff_dim: int,
        dropout: float = 0.0,
        activation: str = "relu",
        gated: bool = False,
        use_bias: bool = True,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.activation = activation
        self.gated = gated
        self.use_bias = use_bias
        function = ACTIVATIONS.get(activation, activation)
        options = {"use_bias": use_bias, "dtype": self.dtype_policy}
        self.inner = keras.layers.Dense(ff_dim, function, name="inner", **options)
        self.linear = keras.layers.Dense(ff_dim, name="linear", **options) if gated else None
        self.inner_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        """Make the weights for inputs (…, D)."""
        model_dim = input_shape[-1]
        self.outer = keras.layers.Dense(
            model_dim or 0, use_bias=self.use_bias, dtype=self.dtype_policy, name="outer"
        )
        self.inner.build((None, None, model_dim))
        if self.linear:
            self.linear.build((None, None, model_dim))
        self.outer.build((None, None, self.ff_dim))

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        # (B*T, D), so that each layer is one plain matrix product.
        rows = ops.reshape(x, (-1, x.shape[-1]))
        hidden = self.inner(rows)
        if self.linear:
            hidden = hidden * self.linear(rows)
        rows = self.outer(self.inner_dropout(hidden, training=training))
        return ops.reshape(rows, ops.shape(x))
