"""The connection around each sublayer: where the norm and the dropout stand."""

import keras

from tfk_transformer.layers.dropout import Dropout
from tfk_transformer.layers.layer_norm import LayerNorm


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Residual(keras.layers.Layer):
    """Connect a sublayer's output to its input.

    "pre":          x + dropout(sublayer(norm(x)))   (arXiv:2002.04745)
    "post":         norm(x + dropout(sublayer(x)))   ("Attention Is All You Need", section 5.4)
    "post_dropout": dropout(norm(x + sublayer(x)))

    The sublayer is run between the two halves: `y = sublayer(residual.enter(x)); x = residual(x, y)`.

    Args:
        norm: "pre", "post" or "post_dropout".
        dropout: probability of dropping an element while training.
        epsilon: of the layer norm.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, norm="pre", dropout=0.0, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.norm = norm
        self.dropout = dropout
        self.epsilon = epsilon
        self.layer_norm = LayerNorm(epsilon=epsilon, dtype=self.dtype_policy, name="norm")
        self.output_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape, output_shape=None):
        """Make the norm's weights for inputs (…, D)."""
        if not self.layer_norm.built:  # `enter` has already run
            self.layer_norm.build(x_shape)

    def enter(self, x):
        """Return what the sublayer reads: norm(x) or x, (B, T, D)."""
        return self.layer_norm(x) if self.norm == "pre" else x

    def call(self, x, output, training=None):
        """Join the sublayer's input `x` and its `output`, both (B, T, D)."""
        if self.norm == "post_dropout":
            return self.output_dropout(self.layer_norm(x + output), training=training)
        total = x + self.output_dropout(output, training=training)
        return total if self.norm == "pre" else self.layer_norm(total)

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        return {**super().get_config(), "norm": self.norm, "dropout": self.dropout, "epsilon": self.epsilon}
