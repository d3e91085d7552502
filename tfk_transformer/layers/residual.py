"""The residual connection around each sublayer, with a norm and dropout."""

import keras

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.layers.dropout import Dropout
from tfk_transformer.layers.layer_norm import NORMS


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Residual(keras.layers.Layer):
    """Connect a sublayer's output to its input.

    "pre":          x + dropout(sublayer(norm(x)))   (arXiv:2002.04745)
    "post":         norm(x + dropout(sublayer(x)))   ("Attention Is All You Need", section 5.4)
    "post_dropout": dropout(norm(x + sublayer(x)))

    The sublayer runs between the two halves of the connection:
    `y = sublayer(residual.enter(x)); x = residual(x, y)`.

    Args:
        norm: "pre", "post" or "post_dropout". Defaults to "pre".
        dropout: probability of dropping an element while training. Defaults to 0.
        epsilon: added to the variance in the norm. Defaults to 1e-6.
        norm_type: "layer" or "rms"; see `layer_norm.NORMS`. Defaults to "layer".
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        norm: str = "pre",
        dropout: float = 0.0,
        epsilon: float = 1e-6,
        norm_type: str = "layer",
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.norm = norm
        self.dropout = dropout
        self.epsilon = epsilon
        self.norm_type = norm_type
        self.layer_norm = NORMS[norm_type](epsilon=epsilon, dtype=self.dtype_policy, name="norm")
        self.output_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape: Shape, output_shape: Shape | None = None) -> None:
        """Make the weights of the norm for inputs (…, D)."""
        if not self.layer_norm.built:  # a call of `enter` builds it first
            self.layer_norm.build(x_shape)

    def compute_output_shape(self, x_shape: Shape, output_shape: Shape | None = None) -> Shape:
        """Return the shape of the output, which is the shape of `x`."""
        return x_shape

    def enter(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer, (B, T, D): norm(x) if `norm` is "pre", otherwise x."""
        return self.layer_norm(x) if self.norm == "pre" else x

    def call(self, x: Tensor, output: Tensor, training: bool | None = None) -> Tensor:
        """Join the input `x` and the `output` of the sublayer, both (B, T, D), to (B, T, D)."""
        if self.norm == "post_dropout":
            return self.output_dropout(self.layer_norm(x + output), training=training)
        total = x + self.output_dropout(output, training=training)
        return total if self.norm == "pre" else self.layer_norm(total)

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "norm": self.norm,
            "dropout": self.dropout,
            "epsilon": self.epsilon,
            "norm_type": self.norm_type,
        }
