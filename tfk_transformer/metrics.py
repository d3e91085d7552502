"""Metrics that give every token the same weight, however the data is divided into batches."""

import keras
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.layers.crossentropy import check_labels, token_crossentropy
from tfk_transformer.losses import token_weights

__all__ = ["Perplexity", "TokenAccuracy"]


class TokenMean(keras.metrics.Mean):
    """Base of the metrics that average a value over tokens. Padding, id 0, is left out."""

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None) -> None:
        """Add a batch.

        Args:
            y_true: ids (B, T).
            y_pred: logits or probabilities (B, T, vocab_size).
            sample_weight: weights of rows, (B,), or of tokens, (B, T), as `weighted_metrics` have
                them. Defaults to None: all 1.

        Raises:
            ValueError: if labels are not ids of the shape (B, T), or the weights have another
                shape.
        """
        # Keras averages each row of a matrix first, which would give the tokens of short rows more
        # weight.
        super().update_state(
            ops.reshape(self._values(y_true, y_pred), (-1,)),
            ops.reshape(token_weights(y_true, sample_weight), (-1,)),
        )

    def _values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the value of each position, float32 (B, T)."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="tfk_transformer")
class TokenAccuracy(TokenMean):
    """Compute the share of tokens whose most probable prediction is the true token.

    Padding, id 0, is left out.

    Args:
        name: name of the metric. Defaults to "accuracy".
        **kwargs: arguments of `keras.metrics.Mean`.
    """

    def __init__(self, name: str = "accuracy", **kwargs: object) -> None:
        super().__init__(name=name, **kwargs)

    def _values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        labels = ops.cast(y_true, "int32")
        check_labels(labels, y_pred)
        # `ops.argmax` takes three times as long: it passes over the vocabulary six times, to
        # distinguish 0 from -0.
        best = ops.top_k(y_pred, 1)[1][..., 0]
        return ops.cast(ops.equal(labels, ops.cast(best, "int32")), "float32")


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Perplexity(TokenMean):
    """Compute the exponential of the mean cross-entropy of the tokens, without label smoothing.

    Padding, id 0, is left out.

    Args:
        from_logits: False for a model that returns probabilities. Defaults to True.
        name: name of the metric. Defaults to "perplexity".
        **kwargs: arguments of `keras.metrics.Mean`.
    """

    def __init__(
        self, from_logits: bool = True, name: str = "perplexity", **kwargs: object
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.from_logits = from_logits

    def _values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return token_crossentropy(y_true, y_pred, from_logits=self.from_logits)

    def result(self) -> Tensor:
        """Return the exponential of the mean, which is in nats per token, as a scalar."""
        return ops.exp(super().result())

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "from_logits": self.from_logits}
