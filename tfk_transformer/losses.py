"""The training loss."""

import inspect
from collections.abc import Callable

import keras
from keras import ops

from tfk_transformer.array_types import Tensor, value_outside
from tfk_transformer.constants import PAD_ID
from tfk_transformer.keras_internals import custom_gradient

MIN_PROBABILITY = 1e-30  # lower bound of a probability whose logarithm is computed
# A token with a lower log-probability cannot be predicted. Imported models give excluded tokens an
# output bias of -1e9.
MIN_LOG_PROB = -1e8
MIN_FLOAT32 = -3e38  # about the lowest finite float32 number


def check_labels(labels: Tensor, predicted: Tensor) -> None:
    """Check that labels match the predictions, as far as shapes and values are known.

    Args:
        labels: a tensor that should have the shape (B, T).
        predicted: logits or probabilities (B, T, vocab_size).

    Raises:
        ValueError: if the labels have another length or another rank, such as one-hot vectors, or
            are not ids of the vocabulary.
    """
    try:
        shape = tuple(labels.shape)
        expected = tuple(predicted.shape[:-1])
    except ValueError:  # from TensorFlow, for an unknown rank
        return
    if len(shape) == len(expected) and all(
        None in pair or pair[0] == pair[1] for pair in zip(shape, expected, strict=True)
    ):
        vocab_size = predicted.shape[-1]
        if vocab_size and (value := value_outside(labels, vocab_size)) is not None:
            raise ValueError(
                f"labels: expected ids from 0 to {vocab_size - 1}, got {value}; the predictions "
                f"are for {vocab_size} tokens, and padding is 0."
            )
        return
    remedy = (
        "pass ids, not one-hot vectors"
        if len(shape) > len(expected)
        else "pass one id for each prediction"
    )
    raise ValueError(
        f"labels: expected ids of shape {expected} for predictions of shape "
        f"{tuple(predicted.shape)}, got shape {shape}; {remedy}."
    )


def token_crossentropy(
    labels: Tensor, predicted: Tensor, label_smoothing: float = 0.0, from_logits: bool = True
) -> Tensor:
    """Compute the cross-entropy of each token with smoothed labels, in float32.

    The smoothed label puts 1 - e on the true token and spreads e evenly over the vocabulary
    (arXiv:1512.00567, section 7), so the loss is logsumexp(z) - (1 - e) z_true - e mean(z).

    A token whose log-probability is below -1e8 at every position cannot be predicted. An output
    bias of -1e9 has this effect. The token gets no part of e: mean(z) is the mean of the other
    tokens' logits. This applies to logits, not to probabilities.

    Args:
        labels: ids (B, T).
        predicted: logits z, or probabilities, (B, T, vocab_size).
        label_smoothing: e in [0, 1). Defaults to 0.
        from_logits: whether `predicted` are logits. Defaults to True.

    Returns:
        float32 (B, T). The values at padding have no meaning.

    Raises:
        ValueError: if the shapes of labels and predictions do not match.
    """
    labels = ops.cast(labels, "int32")
    check_labels(labels, predicted)
    if from_logits:
        return _crossentropy_of_logits(labels, ops.cast(predicted, "float32"), label_smoothing)
    log_probs = ops.log(ops.maximum(ops.cast(predicted, "float32"), MIN_PROBABILITY))
    return -(1.0 - label_smoothing) * _at(labels, log_probs) - label_smoothing * ops.mean(
        log_probs, axis=-1
    )


def _crossentropy_of_logits(labels: Tensor, logits: Tensor, label_smoothing: float) -> Tensor:
    """Compute `token_crossentropy` of float32 logits, with an explicit gradient.

    The gradient is p - (1 - e) onehot - e / V, where V is the number of tokens that can be
    predicted. Automatic differentiation takes three times as long on a CPU: it computes the
    exponentials again, and a segment sum with one segment per logit for the logits at the labels.
    """

    @custom_gradient
    def crossentropy(logits: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        vocab_size = logits.shape[-1]
        probabilities = ops.softmax(logits, axis=-1)
        normalizer, true = _normalizer_and_true(labels, logits, probabilities)
        losses = normalizer - (1.0 - label_smoothing) * true
        shares = 0.0
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
    """Compute `token_crossentropy` of logits x table^T, with gradients of x and the table.

    The gradient of the logits, which is as large as the logits, is never computed. With p the
    softmax of the logits and u the upstream gradient of each token's loss, it would be
    (p - (1 - e) onehot - e / V) u. Only its products are needed, which are products with p plus
    rows and vectors:

        dx     = (p table - (1 - e) table[labels] - e mean(table)) u
        dtable = p^T (u x) - (1 - e) (sums of u x by label) - e / V sum(u x)

    All tokens count as tokens that can be predicted, since logits without a bias cannot exclude a
    token.

    Args:
        labels: ids (B, T).
        logits: x table^T, (B, T, vocab_size). No gradient flows through them.
        x: (B, T, D).
        table: (vocab_size, D), of any float type.
        label_smoothing: e in [0, 1). Defaults to 0.

    Returns:
        float32 (B, T). The values at padding have no meaning.

    Raises:
        ValueError: if the shapes of labels and logits do not match.
    """
    labels = ops.cast(labels, "int32")
    check_labels(labels, logits)
    ids = ops.reshape(labels, (-1,))
    rows = ops.reshape(x, (-1, x.shape[-1]))
    logits = ops.stop_gradient(logits)

    @custom_gradient
    def crossentropy(
        rows: Tensor, table: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        # `Perplexity` computes these from the same shape, so TensorFlow computes them once.
        wide = ops.cast(logits, "float32")
        probabilities = ops.softmax(wide, axis=-1)
        normalizer, true = _normalizer_and_true(labels, wide, probabilities)
        losses = ops.reshape(normalizer - (1.0 - label_smoothing) * true, (-1,))
        mean = ops.mean(table, axis=0)
        # The product is the mean of the logits.
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
            d_table = _scatter_add(d_table, ids[:, None], (label_smoothing - 1.0) * scaled)
            return ops.cast(d_rows, rows.dtype), d_table

        return losses, gradient

    return ops.reshape(crossentropy(rows, ops.cast(table, "float32")), ops.shape(labels))


def divergence(logits: Tensor) -> Tensor:
    """Compute the divergence of pairs of rows, (KL(p || q) + KL(q || p)) / 2, in nats.

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

    @custom_gradient
    def compare(logits: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        pairs = ops.reshape(ops.cast(logits, "float32"), (-1, 2, *ops.shape(logits)[1:]))
        # In float16, a bias of -1e9 becomes -inf, and the difference of two infinities is NaN.
        pairs = ops.maximum(pairs, MIN_FLOAT32)
        probabilities = ops.softmax(pairs, axis=-1)
        gap = probabilities[:, 0] - probabilities[:, 1]
        difference = pairs[:, 0] - pairs[:, 1]

        def gradient(upstream: Tensor) -> Tensor:
            # With d the difference of the logits, each row has a gradient p (d - sum(p d)) through
            # p, and p - q through z. The gradient of the other row has the opposite sign.
            mean = ops.sum(probabilities * difference[:, None], axis=-1, keepdims=True)
            slopes = (probabilities * (difference[:, None] - mean) + gap[:, None]) * (
                upstream[:, None, :, None] / 2
            )
            slopes = ops.concatenate([slopes[:, :1], -slopes[:, 1:]], axis=1)
            return ops.cast(ops.reshape(slopes, ops.shape(logits)), logits.dtype)

        return ops.sum(gap * difference, axis=-1) / 2, gradient

    return compare(logits)


def _spread(logits: Tensor, normalizer: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Spread the smoothed part of the labels over the tokens that can be predicted.

    With n the normalizer, every n - z is at least 0, so the mean of n - z, times V, is above
    -MIN_LOG_PROB if any n - z is. In most models it is not. Then all tokens can be predicted, and
    the logits need not be compared one by one.

    Args:
        logits: z, float32 (…, V).
        normalizer: logsumexp(z), (…).
        label_smoothing: e.

    Returns:
        The mean of the logits of these tokens, (…), and each token's part of e, (V,), both float32.
    """
    vocab_size = logits.shape[-1]
    mean = ops.mean(logits, axis=-1)

    def over_predictable() -> tuple[Tensor, Tensor]:
        log_probs = ops.reshape(logits - normalizer[..., None], (-1, vocab_size))
        predictable = ops.greater(ops.max(log_probs, axis=0), MIN_LOG_PROB)
        count = ops.sum(ops.cast(predictable, "float32"))
        mean = ops.sum(ops.where(predictable, logits, 0.0), axis=-1) / count
        return mean, label_smoothing / count * ops.cast(predictable, "float32")

    all_predictable = ops.max(normalizer - mean) * vocab_size < -MIN_LOG_PROB
    return ops.cond(
        all_predictable,
        lambda: (mean, ops.full((vocab_size,), label_smoothing / vocab_size)),
        over_predictable,
    )


def _normalizer_and_true(
    labels: Tensor, logits: Tensor, probabilities: Tensor
) -> tuple[Tensor, Tensor]:
    """Return logsumexp(z) and z_true for logits z and their softmax p.

    For every j, logsumexp(z) is z_j - log(p_j). Using the true token for j saves two passes over
    all logits. If its probability is too small for a logarithm, the most probable token is used
    instead: its probability is at least 1 / V.
    """
    true = _at(labels, logits)
    true_probability = _at(labels, probabilities)
    normalizer = ops.cond(
        ops.min(true_probability) > MIN_PROBABILITY,
        lambda: true - ops.log(true_probability),
        lambda: ops.max(logits, axis=-1) - ops.log(ops.max(probabilities, axis=-1)),
    )
    return normalizer, true


def _at(labels: Tensor, values: Tensor) -> Tensor:
    """Return the value at each label (…) from values (…, V)."""
    return ops.take_along_axis(values, labels[..., None], axis=-1)[..., 0]


def _add_at(labels: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Add values (B, T) to rows (B*T, V) at the labels (B, T)."""
    flat = ops.reshape(labels, (-1,))
    indices = ops.stack([ops.arange(ops.shape(flat)[0]), flat], axis=-1)
    return _scatter_add(rows, indices, ops.reshape(values, (-1,)))


def _scatter_add(inputs: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Add updates at indices, which may repeat; see `ops.scatter_update`."""
    if "reduction" in inspect.signature(ops.scatter_update).parameters:
        return ops.scatter_update(inputs, indices, updates, reduction="add")
    # Keras before 3.14 adds only to zeros.
    return inputs + ops.scatter(indices, updates, ops.shape(inputs))


def real_tokens(labels: Tensor) -> Tensor:
    """Return float32 (B, T): 1 for tokens, 0 for padding."""
    return ops.cast(ops.not_equal(labels, PAD_ID), "float32")


def token_weights(labels: Tensor, sample_weight: Tensor = None) -> Tensor:
    """Return the weight of each token, 0 for padding.

    Args:
        labels: ids (B, T).
        sample_weight: weights of rows, (B,) or (B, 1), or of tokens, (B, T). Defaults to None: 1.

    Returns:
        float32 (B, T).

    Raises:
        ValueError: if the weights have another shape.
    """
    weights = real_tokens(labels)
    if sample_weight is None:
        return weights
    sample_weight = ops.convert_to_tensor(sample_weight, "float32")
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


def shared_by_devices() -> bool:
    """Return whether several devices share the current batch under `tf.distribute`."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    replica = tf.distribute.get_replica_context()
    return replica is not None and replica.num_replicas_in_sync > 1


def _over_devices(count: Tensor) -> Tensor:
    """Return the sum of a scalar over the devices that share a batch, or the scalar itself."""
    if not shared_by_devices():
        return count
    import tensorflow as tf

    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, count)


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
        """Whether `of_projection` computes this loss. Subclasses may compute a different loss."""
        return type(self) is LabelSmoothedCrossentropy and not self.consistency

    @property
    def averages(self) -> bool:
        """Whether the reduction is a mean."""
        return self.reduction not in (None, "none", "sum")

    def of_projection(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        x: Tensor,
        table: Tensor,
        sample_weight: Tensor = None,
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
        total = _over_devices(ops.sum(weights))
        return ops.where(ops.equal(total, 0.0), 1.0, total)

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        names = ("label_smoothing", "from_logits", "consistency")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
