"""The training loss."""

from collections.abc import Callable

import keras
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import PAD_ID

SMALLEST = 1e-30  # of a probability whose logarithm is taken
# Log-probability below which a token cannot be predicted; imported models have output biases of
# -1e9 for such tokens.
NEVER = -1e8
LEAST = -3e38  # about the least finite float32 number


def check_labels(labels: Tensor, predicted: Tensor) -> None:
    """Check that labels are ids that belong to the predictions, as far as the shapes are known.

    Args:
        labels: a tensor that should have the shape (B, T).
        predicted: logits or probabilities (B, T, vocab_size).

    Raises:
        ValueError: if the labels have another rank, as one-hot vectors have, or another length.
    """
    try:
        shape, wanted = tuple(labels.shape), tuple(predicted.shape[:-1])
    except ValueError:  # TensorFlow's, of unknown rank
        return
    if len(shape) == len(wanted) and all(
        None in pair or pair[0] == pair[1] for pair in zip(shape, wanted, strict=True)
    ):
        return
    cure = (
        "pass ids, not one-hot vectors"
        if len(shape) > len(wanted)
        else "pass one id for each prediction"
    )
    raise ValueError(
        f"labels: expected ids of shape {wanted} for predictions of shape "
        f"{tuple(predicted.shape)}, got shape {shape}; {cure}."
    )


def token_crossentropy(
    labels: Tensor, predicted: Tensor, label_smoothing: float = 0.0, from_logits: bool = True
) -> Tensor:
    """Compute the cross-entropy of each token with smoothed labels, in float32.

    The smoothed label puts 1 - e on the true token and spreads e evenly over the vocabulary
    (arXiv:1512.00567, section 7), so the loss is logsumexp(z) - (1 - e) z_true - e mean(z).

    A token whose log-probability is below -1e8 at every position, as an output bias of -1e9 makes
    it, cannot be predicted. It gets no part of e: the mean is that of the other tokens' logits.
    This applies to logits, not to probabilities.

    Args:
        labels: ids (B, T).
        predicted: logits z, or probabilities, (B, T, vocab_size).
        label_smoothing: e in [0, 1). Defaults to 0.
        from_logits: whether `predicted` are logits. Defaults to True.

    Returns:
        float32 (B, T). The values at padding have no meaning.

    Raises:
        ValueError: if the shapes of labels and predictions do not belong together.
    """
    labels = ops.cast(labels, "int32")
    check_labels(labels, predicted)
    if from_logits:
        return _crossentropy_of_logits(labels, ops.cast(predicted, "float32"), label_smoothing)
    log_probs = ops.log(ops.maximum(ops.cast(predicted, "float32"), SMALLEST))
    return -(1.0 - label_smoothing) * _at(labels, log_probs) - label_smoothing * ops.mean(
        log_probs, axis=-1
    )


def _crossentropy_of_logits(labels: Tensor, logits: Tensor, label_smoothing: float) -> Tensor:
    """Compute the same from float32 logits, with an explicit gradient.

    The gradient is p - (1 - e) onehot - e / V, where V counts the tokens that can be predicted.
    Automatic differentiation takes three times as long on a CPU: it computes the exponentials
    again, and a segment sum over as many segments as there are logits, for the one logit that each
    label picks.
    """

    @ops.custom_gradient
    def crossentropy(logits: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        vocab_size = logits.shape[-1]
        probabilities = ops.softmax(logits, axis=-1)
        normalizer, true = _normalizer_and_true(labels, logits, probabilities)
        losses, shares = normalizer - (1.0 - label_smoothing) * true, 0.0
        if label_smoothing:
            mean, shares = _spread(logits, normalizer, label_smoothing)
            losses = losses - label_smoothing * mean

        def gradient(upstream: Tensor) -> Tensor:
            slopes = (probabilities - shares) * upstream[..., None]
            true = -(1.0 - label_smoothing) * upstream
            return ops.reshape(
                _add_at(labels, ops.reshape(slopes, (-1, vocab_size)), true), ops.shape(logits)
            )

        return losses, gradient

    return crossentropy(logits)


def projected_crossentropy(
    labels: Tensor, logits: Tensor, x: Tensor, table: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Compute `token_crossentropy` of logits that are products of x and a table, with gradients of
    x and the table.

    The gradient of the logits, which is as large as the logits, is never computed. With p the
    softmax of the logits and u the upstream gradient of each token's loss, it would be (p - (1 - e)
    onehot - e / V) u. The products with p are all that is needed, apart from rows and vectors that
    are added to them:

        dx     = (p table - (1 - e) table[labels] - e mean(table)) u
        dtable = p^T (u x) - (1 - e) (sums of u x by label) - e / V sum(u x)

    Every token counts as one that can be predicted: logits without a bias have no means to rule one
    out.

    Args:
        labels: ids (B, T).
        logits: x table^T, (B, T, vocab_size). No gradient flows through them.
        x: (B, T, D).
        table: (vocab_size, D), of any float type.
        label_smoothing: e in [0, 1). Defaults to 0.

    Returns:
        float32 (B, T). The values at padding have no meaning.

    Raises:
        ValueError: if the shapes of labels and logits do not belong together.
    """
    labels = ops.cast(labels, "int32")
    check_labels(labels, logits)
    ids, rows = ops.reshape(labels, (-1,)), ops.reshape(x, (-1, x.shape[-1]))
    logits = ops.stop_gradient(logits)

    @ops.custom_gradient
    def crossentropy(
        rows: Tensor, table: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        # `Perplexity` computes these from the same shape, so TensorFlow computes them once.
        wide = ops.cast(logits, "float32")
        probabilities = ops.softmax(wide, axis=-1)
        normalizer, true = _normalizer_and_true(labels, wide, probabilities)
        losses = ops.reshape(normalizer - (1.0 - label_smoothing) * true, (-1,))
        mean = ops.mean(table, axis=0)
        # The mean of the logits.
        losses = (
            losses - label_smoothing * ops.matmul(ops.cast(rows, "float32"), mean[:, None])[:, 0]
        )
        probabilities = ops.reshape(ops.cast(probabilities, rows.dtype), (-1, logits.shape[-1]))

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            upstream = upstream[:, None]
            products = ops.cast(ops.matmul(probabilities, ops.cast(table, rows.dtype)), "float32")
            d_rows = (
                products
                - (1.0 - label_smoothing) * ops.take(table, ids, axis=0)
                - label_smoothing * mean
            ) * upstream
            scaled = ops.cast(rows, "float32") * upstream
            d_table = ops.cast(
                ops.matmul(ops.transpose(probabilities), ops.cast(scaled, rows.dtype)), "float32"
            )
            d_table = d_table - label_smoothing / logits.shape[-1] * ops.sum(scaled, axis=0)
            d_table = ops.scatter_update(
                d_table, ids[:, None], (label_smoothing - 1.0) * scaled, reduction="add"
            )
            return ops.cast(d_rows, rows.dtype), d_table

        return losses, gradient

    return ops.reshape(crossentropy(rows, ops.cast(table, "float32")), ops.shape(labels))


def divergence(logits: Tensor) -> Tensor:
    """Compute how far the predictions of each row and the next one are apart: (KL(p || q) + KL(q ||
    p)) / 2, in nats.

    With p and q the softmax of z and y, it is sum((p - q) (z - y)) / 2: the normalizers cancel.

    Args:
        logits: (2N, T, vocab_size). Row 0 is compared with row 1, row 2 with row 3, and so on.

    Returns:
        float32 (N, T).

    Raises:
        ValueError: if the number of rows is known and odd.
    """
    if (logits.shape[0] or 0) % 2:
        raise ValueError(
            f"consistency: expected every row twice in a batch, got {logits.shape[0]} rows; "
            "TokenBatches(copies=2) makes such batches."
        )

    @ops.custom_gradient
    def compare(logits: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        pairs = ops.reshape(ops.cast(logits, "float32"), (-1, 2, *ops.shape(logits)[1:]))
        # In float16, a bias of -1e9 makes -inf, and the difference of two of them is not a number.
        pairs = ops.maximum(pairs, LEAST)
        probabilities = ops.softmax(pairs, axis=-1)
        gap, change = probabilities[:, 0] - probabilities[:, 1], pairs[:, 0] - pairs[:, 1]

        def gradient(upstream: Tensor) -> Tensor:
            # For each row p (c - sum(p c)), by way of p, and p - q, by way of z. The other row's
            # has the opposite sign.
            mean = ops.sum(probabilities * change[:, None], axis=-1, keepdims=True)
            slopes = (probabilities * (change[:, None] - mean) + gap[:, None]) * (
                upstream[:, None, :, None] / 2
            )
            slopes = ops.concatenate([slopes[:, :1], -slopes[:, 1:]], axis=1)
            return ops.cast(ops.reshape(slopes, ops.shape(logits)), logits.dtype)

        return ops.sum(gap * change, axis=-1) / 2, gradient

    return compare(logits)


def _spread(logits: Tensor, normalizer: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Spread the smoothed part of the labels over the tokens that can be predicted.

    With n the normalizer, every n - z is at least 0, so that the mean of n - z, times V, is more
    than -NEVER if one of them is. If it is not, as in most models, no logit needs to be looked at.

    Args:
        logits: z, float32 (…, V).
        normalizer: logsumexp(z), (…).
        label_smoothing: e.

    Returns:
        The mean of the logits of these tokens, (…), and each token's part of e, (V,), both float32.
    """
    vocab_size = logits.shape[-1]
    mean = ops.mean(logits, axis=-1)

    def over_some() -> tuple[Tensor, Tensor]:
        log_probs = ops.reshape(logits - normalizer[..., None], (-1, vocab_size))
        predictable = ops.greater(ops.max(log_probs, axis=0), NEVER)
        count = ops.sum(ops.cast(predictable, "float32"))
        return ops.sum(
            ops.where(predictable, logits, 0.0), axis=-1
        ) / count, label_smoothing / count * ops.cast(predictable, "float32")

    all_predictable = ops.max(normalizer - mean) * vocab_size < -NEVER
    return ops.cond(
        all_predictable,
        lambda: (mean, ops.full((vocab_size,), label_smoothing / vocab_size)),
        over_some,
    )


def _normalizer_and_true(
    labels: Tensor, logits: Tensor, probabilities: Tensor
) -> tuple[Tensor, Tensor]:
    """Return logsumexp(z) and z_true for logits z and their softmax."""
    true = _at(labels, logits)
    return _normalizer(true, _at(labels, probabilities), logits, probabilities), true


def _normalizer(
    true: Tensor, true_probability: Tensor, logits: Tensor, probabilities: Tensor
) -> Tensor:
    """Return logsumexp(z), which is z_j - log(p_j) for every j.

    Using the true token for j saves two passes over all logits. If its probability is too small for
    a logarithm, the most probable token is used instead: its probability is at least 1 / V.
    """
    return ops.cond(
        ops.min(true_probability) > SMALLEST,
        lambda: true - ops.log(true_probability),
        lambda: ops.max(logits, axis=-1) - ops.log(ops.max(probabilities, axis=-1)),
    )


def _at(labels: Tensor, values: Tensor) -> Tensor:
    """Pick from values (…, V) the one at each label (…)."""
    return ops.take_along_axis(values, labels[..., None], axis=-1)[..., 0]


def _add_at(labels: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Add to each of the rows (B*T, V) a value of (B, T), at its label."""
    flat = ops.reshape(labels, (-1,))
    places = ops.stack([ops.arange(ops.shape(flat)[0]), flat], axis=-1)
    return ops.scatter_update(rows, places, ops.reshape(values, (-1,)), reduction="add")


def real_tokens(labels: Tensor) -> Tensor:
    """Return float32 (B, T): 1 for tokens, 0 for padding."""
    return ops.cast(ops.not_equal(labels, PAD_ID), "float32")


def shared_by_devices() -> bool:
    """Return whether several devices share the current batch under `tf.distribute`, each computing
    a part of it.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    replica = tf.distribute.get_replica_context()
    return replica is not None and replica.num_replicas_in_sync > 1


def _over_devices(count: Tensor) -> Tensor:
    """Return the sum of a scalar over the devices that share a batch under `tf.distribute`, and the
    scalar itself elsewhere.
    """
    if not shared_by_devices():
        return count
    import tensorflow as tf

    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, count)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class LabelSmoothedCrossentropy(keras.losses.Loss):
    """Compute the mean cross-entropy over the tokens of a batch. Padding, id 0, is left out of both
    the sum and the count.

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
        **kwargs: arguments of `keras.losses.Loss`.

    Raises:
        ValueError: if `label_smoothing` is not in [0, 1), or `consistency` is negative, or positive
            for probabilities.
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
            wanted = "at least 0" if from_logits else "0 for a model that returns probabilities"
            raise ValueError(f"consistency: expected {wanted}, got {consistency}.")
        self.label_smoothing = label_smoothing
        self.from_logits = from_logits
        self.consistency = consistency

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the mean over the tokens of a batch.

        Args:
            y_true: ids (B, T).
            y_pred: logits or probabilities (B, T, vocab_size).

        Returns:
            A float32 scalar, 0 for a batch of padding only. If several devices share a batch under
            `tf.distribute`, each device's part of the mean: Keras adds up the gradients of the
            parts.

        Raises:
            ValueError: if labels are not ids of the shape (B, T).
        """
        loss = self.mean(
            token_crossentropy(y_true, y_pred, self.label_smoothing, self.from_logits), y_true
        )
        return (
            loss + self.consistency * self.mean(divergence(y_pred), y_true[::2])
            if self.consistency
            else loss
        )

    def mean(self, losses: Tensor, y_true: Tensor) -> Tensor:
        """Return the mean of losses (B, T) over the tokens of labels (B, T), as in `call`."""
        weights = real_tokens(y_true)
        return ops.sum(losses * weights) / ops.maximum(_over_devices(ops.sum(weights)), 1.0)

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        own = {
            name: getattr(self, name) for name in ("label_smoothing", "from_logits", "consistency")
        }
        return {**super().get_config(), **own}
