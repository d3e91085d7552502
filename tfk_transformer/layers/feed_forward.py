"""The position-wise feed-forward block ("Attention Is All You Need", section 3.3)."""

import keras
from keras import ops

from tfk_transformer.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="tfk_transformer")
class FeedForward(keras.layers.Layer):
    """Apply max(0, x W1 + b1) W2 + b2 to each position alone.

    Args:
        ff_dim: F, the inner width.
        dropout: probability of dropping an inner activation while training.
        activation: of the inner layer, a Keras name.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, ff_dim, dropout=0.0, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.activation = activation
        self.inner = keras.layers.Dense(ff_dim, activation=activation, dtype=self.dtype_policy, name="inner")
        self.inner_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        """Make the weights for inputs (…, D)."""
        model_dim = input_shape[-1]
        self.outer = keras.layers.Dense(model_dim, dtype=self.dtype_policy, name="outer")
        self.inner.build((None, None, model_dim))
        self.outer.build((None, None, self.ff_dim))

    def call(self, x, training=None):
        """Map (B, T, D) to (B, T, D)."""
        rows = ops.reshape(x, (-1, x.shape[-1]))  # one plain matrix product a layer: (B*T, D)
        rows = self.outer(self.inner_dropout(self.inner(rows), training=training))
        return ops.reshape(rows, ops.shape(x))

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        return {**super().get_config(), "ff_dim": self.ff_dim, "dropout": self.dropout, "activation": self.activation}
