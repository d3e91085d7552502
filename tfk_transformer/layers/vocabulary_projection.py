"""From decoder outputs to a score for every token of the vocabulary."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="tfk_transformer")
class VocabularyProjection(keras.layers.Layer):
    """Project to logits, by an own `kernel` (D, vocab_size) or by the embedding table of the tokens (arXiv:1608.05859).

    Args:
        vocab_size: number of tokens.
        tied: whether the table given to `call` is used, and there is no kernel.
        use_bias: whether there is a `bias` (vocab_size,).
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, vocab_size, tied=False, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.tied = tied
        self.use_bias = use_bias

    def build(self, x_shape, table_shape=None):
        """Make the weights for inputs (…, D)."""
        model_dim = x_shape[-1]
        self.kernel = self.bias = None
        if not self.tied:
            # Logits of unit variance from normalised inputs.
            initializer = keras.initializers.RandomNormal(stddev=model_dim**-0.5)
            self.kernel = self.add_weight(name="kernel", shape=(model_dim, self.vocab_size), initializer=initializer)
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros")

    def call(self, x, table=None):
        """Map (B, T, D), with the table (vocab_size, D) where tied, to logits (B, T, vocab_size)."""
        batch, length, model_dim = ops.shape(x)
        rows = ops.reshape(x, (-1, model_dim))  # one plain matrix product: (B*T, D)
        kernel = ops.transpose(table) if self.tied else self.kernel
        logits = ops.matmul(rows, ops.cast(kernel, rows.dtype))
        if self.use_bias:
            logits = logits + ops.cast(self.bias, logits.dtype)
        return ops.reshape(logits, (batch, length, self.vocab_size))

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        return {**super().get_config(), "vocab_size": self.vocab_size, "tied": self.tied, "use_bias": self.use_bias}
