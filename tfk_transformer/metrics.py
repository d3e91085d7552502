"""Metrics that count each real token once, however the batches were cut."""

import keras
from keras import ops

from tfk_transformer.losses import real_tokens, token_crossentropy


@keras.saving.register_keras_serializable(package="tfk_transformer")
class TokenAccuracy(keras.metrics.Mean):
    """Share of real tokens whose most probable prediction is the true one."""

    def __init__(self, name="accuracy", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Add labels (B, T) and logits (B, T, vocab_size)."""
        # Keras's argmax goes over the vocabulary six times, to tell 0 from -0: three times as long.
        best = ops.top_k(y_pred, 1)[1][..., 0]
        correct = ops.equal(ops.cast(y_true, "int32"), ops.cast(best, "int32"))
        super().update_state(_flat(ops.cast(correct, "float32")), sample_weight=_flat(real_tokens(y_true)))


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Perplexity(keras.metrics.Mean):
    """The exponential of the mean cross-entropy of the real tokens, without label smoothing.

    Args:
        from_logits: False for a model that returns probabilities.
        name: of the metric.
        **kwargs: of `keras.metrics.Mean`.
    """

    def __init__(self, from_logits=True, name="perplexity", **kwargs):
        super().__init__(name=name, **kwargs)
        self.from_logits = from_logits

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Add labels (B, T) and logits or probabilities (B, T, vocab_size)."""
        losses = token_crossentropy(y_true, y_pred, from_logits=self.from_logits)
        super().update_state(_flat(losses), sample_weight=_flat(real_tokens(y_true)))

    def result(self):
        """Return exp(nats a token), a scalar."""
        return ops.exp(super().result())

    def get_config(self):
        """Return what the constructor needs to make the same object again."""
        return {**super().get_config(), "from_logits": self.from_logits}


def _flat(values):
    """(B, T) -> (B*T,): of anything longer than a vector, Keras first takes the mean of each row, and short rows gain weight."""
    return ops.reshape(values, (-1,))
