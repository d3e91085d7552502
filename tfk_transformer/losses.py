"""The training loss."""

from typing import Any

import keras
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import PAD_ID
from tfk_transformer.layers.crossentropy import (
    divergence,
    projected_crossentropy,
    token_crossentropy,
)

__all__ = ["LabelSmoothedCrossentropy"]


def real_tokens(labels: Tensor) -> Tensor:
    """Return float32 (B, T): 1 for tokens, 0 for padding."""
    return ops.cast(ops.not_equal(labels, PAD_ID), "float32")


def token_weights(labels: Tensor, sample_weight: Tensor = None) -> Tensor:
    """Return token weights float32 (B, T), 0 for padding, from weights (B,), (B, 1) or (B, T)."""
    weights = real_tokens(labels)
    if sample_weight is None:
        return weights
    sample_weight = ops.convert_to_tensor(sample_weight, "float32")
    # TensorFlow's rank of weights is unknown in a step that got both kinds.
    if getattr(sample_weight.shape, "rank", 0) is None:
        sample_weight = ops.reshape(sample_weight, (ops.shape(labels)[0], -1))
    shape = tuple(sample_weight.shape)
    expected = tuple(weights.shape)
    by_row = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
    pairs = zip(shape, expected[:1] if by_row else expected, strict=False)
    if len(shape) not in (1, 2) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ValueError(
            f"sample_weight: expected the shape {expected[:1]} (a weight for each row) or "
            f"{expected} (for each token), got {shape}."
        )
    return weights * (sample_weight[:, None] if len(shape) == 1 else sample_weight)


def sharing_replica() -> Any:
    """Return `tf.distribute`'s context if several devices share the current batch, or None."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    replica = tf.distribute.get_replica_context()
    return replica if replica is not None and replica.num_replicas_in_sync > 1 else None


@keras.saving.register_keras_serializable(package="tfk_transformer")
class LabelSmoothedCrossentropy(keras.losses.Loss):
    """Compute the mean cross-entropy over the tokens of a batch.

    Padding, id 0, is left out of both the sum and the count.

    Weights of rows (B,) or of tokens (B, T), the `sample_weight` of `fit`, count as in Keras's
    losses with a padding mask. With l the loss, w the weight and m the mask of each token:

        "sum_over_batch_size", "mean":  sum(w l m) / sum(m)
        "mean_with_sample_weight":      sum(w l m) / sum(w m)
        "sum":                          sum(w l m)
        "none", None:                   w l m, (B, T)

    If several devices share a batch under `tf.distribute`, a device's loss is its part of the mean,
    since Keras adds the gradients of the parts.

    Args:
        label_smoothing: probability that is spread evenly over the vocabulary. Defaults to 0.1, the
            paper's value (section 5.4). Tokens that cannot be predicted get no part of it; see
            `token_crossentropy`.
        from_logits: False for a model that returns probabilities. Defaults to True.
        consistency: weight of the mean `divergence` between the two passes of each row, which
            differ in their dropout: half the alpha of R-Drop (arXiv:2106.14448, equation 4). Each
            row must come twice in succession, as in batches of `TokenBatches(copies=2)`, and `fit`
            must not shuffle the rows. Defaults to 0, which compares nothing.
        name: name of the loss.
        **kwargs: arguments of `keras.losses.Loss`, such as `reduction`, which defaults to
            "sum_over_batch_size".

    Raises:
        ValueError: if `label_smoothing` is not in [0, 1), if `consistency` is negative, or if it is
            positive for a model that returns probabilities.
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        from_logits: bool = True,
        consistency: float = 0.0,
        name: str = "crossentropy",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"label_smoothing: expected a number in [0, 1), got {label_smoothing}; the paper "
                "uses 0.1."
            )
        if not consistency >= 0 or (consistency and not from_logits):
            expected = "at least 0" if from_logits else "0 for a model that returns probabilities"
            raise ValueError(f"consistency: expected {expected}, got {consistency}.")
        self.label_smoothing = label_smoothing
        self.from_logits = from_logits
        self.consistency = consistency

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None) -> Tensor:
        """Return the reduced loss of a batch.

        Args:
            y_true: ids (B, T).
            y_pred: logits or probabilities (B, T, vocab_size).
            sample_weight: weights of rows, (B,), or of tokens, (B, T). Defaults to None: all 1.

        Returns:
            A float32 scalar, 0 for a batch of padding only; without reduction, (B, T).

        Raises:
            ValueError: if labels are not ids of the shape (B, T), or the weights have another
                shape.
        """
        y_true = ops.convert_to_tensor(y_true)
        losses = self.call(y_true, ops.convert_to_tensor(y_pred))
        return self.reduce(losses, y_true, sample_weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of each token, float32 (B, T). The values at padding have no meaning.

        Args:
            y_true: ids (B, T).
            y_pred: logits or probabilities (B, T, vocab_size).

        Raises:
            ValueError: if labels are not ids of the shape (B, T).
        """
        losses = token_crossentropy(y_true, y_pred, self.label_smoothing, self.from_logits)
        if not self.consistency:
            return losses
        return losses + self.consistency * ops.repeat(divergence(y_pred), 2, axis=0)

    @property
    def joins_projection(self) -> bool:
        """Whether `of_projection` computes this loss: under TensorFlow, on one device.

        Subclasses may compute a different loss.
        """
        return (
            type(self) is LabelSmoothedCrossentropy
            and not self.consistency
            and keras.backend.backend() == "tensorflow"
            and sharing_replica() is None
        )

    @property
    def averages(self) -> bool:
        """Whether the reduction is a mean."""
        return self.reduction not in (None, "none", "sum")

    def of_projection(
        self, y_true: Tensor, y_pred: Tensor, x: Tensor, table: Tensor, sample_weight: Tensor = None
    ) -> Tensor:
        """Return the loss of logits x table^T; see `projected_crossentropy`.

        The loss and its gradients are the same as from a call, in less time and memory.

        Args:
            y_true: ids (B, T).
            y_pred: the logits, (B, T, vocab_size).
            x: the decoder's output (B, T, D).
            table: the output weights (vocab_size, D).
            sample_weight: see `__call__`.

        Raises:
            ValueError: if labels are not ids of the shape (B, T), or the weights have another
                shape.
        """
        losses = projected_crossentropy(y_true, y_pred, x, table, self.label_smoothing)
        return self.reduce(losses, y_true, sample_weight)

    def reduce(self, losses: Tensor, y_true: Tensor, sample_weight: Tensor = None) -> Tensor:
        """Weigh the losses (B, T) of labels (B, T), and reduce them; see the class.

        Raises:
            ValueError: if the weights have another shape, or a subclass returns a loss that is
                already reduced and there are weights.
        """
        if not len(losses.shape):  # of a subclass
            if sample_weight is not None:
                raise ValueError(
                    f"sample_weight: expected none for {type(self).__name__}, whose `call` returns "
                    "a scalar; return the loss of each token (B, T)."
                )
            return losses
        weighted = losses * token_weights(y_true, sample_weight)
        if self.reduction in (None, "none"):
            return weighted
        return ops.sum(weighted) / self.divisor(y_true, sample_weight)

    def divisor(self, y_true: Tensor, sample_weight: Tensor = None) -> Tensor:
        """Return the number by which the sum of a batch's losses is divided, a float32 scalar."""
        if self.reduction == "sum":
            return ops.ones(())
        by_weight = self.reduction == "mean_with_sample_weight"
        weights = token_weights(y_true, sample_weight if by_weight else None)
        total = ops.sum(weights)
        if (replica := sharing_replica()) is not None:
            total = replica.all_reduce("sum", total)
        return ops.where(ops.equal(total, 0.0), 1.0, total)

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        names = ("label_smoothing", "from_logits", "consistency")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
