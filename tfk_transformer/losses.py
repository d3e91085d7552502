"""The training loss."""

import keras
from keras import ops

from tfk_transformer.constants import PAD_ID

SMALLEST = 1e-30  # of a probability whose logarithm is taken


def token_crossentropy(labels, predicted, label_smoothing=0.0, from_logits=True):
    """Compute the cross-entropy of each token with smoothed labels, in float32.

    The smoothed label puts 1 - e on the true token and spreads e evenly over the vocabulary (arXiv:1512.00567, section 7),
    so the loss is logsumexp(z) - (1 - e) z_true - e mean(z).

    Args:
        labels: ids (B, T).
        predicted: logits z, or probabilities, (B, T, vocab_size).
        label_smoothing: e in [0, 1).
        from_logits: False if `predicted` are probabilities.

    Returns:
        float32 (B, T); what stands at padding is meaningless.
    """
    labels = ops.cast(labels, "int32")
    if from_logits:
        return _crossentropy_of_logits(labels, ops.cast(predicted, "float32"), label_smoothing)
    log_probs = ops.log(ops.maximum(ops.cast(predicted, "float32"), SMALLEST))
    return -(1.0 - label_smoothing) * _at(labels, log_probs) - label_smoothing * ops.mean(log_probs, axis=-1)


def _crossentropy_of_logits(labels, logits, label_smoothing):
    """Compute the same from float32 logits, with a gradient written out.

    The gradient is p - (1 - e) onehot - e / V. Left to itself, it takes three times as long on a CPU: exponentials once more,
    and a sum over segments as many as there are logits, for the one that each label picks.
    """

    @ops.custom_gradient
    def crossentropy(logits):
        probabilities = ops.softmax(logits, axis=-1)
        losses = _smoothed(labels, logits, probabilities, label_smoothing)
        if label_smoothing:
            losses = losses - label_smoothing * ops.mean(logits, axis=-1)

        def gradient(upstream):
            vocab_size = logits.shape[-1]
            slopes = (probabilities - label_smoothing / vocab_size) * upstream[..., None]
            true = -(1.0 - label_smoothing) * upstream
            return ops.reshape(_add_at(labels, ops.reshape(slopes, (-1, vocab_size)), true), ops.shape(logits))

        return losses, gradient

    return crossentropy(logits)


def projected_crossentropy(labels, logits, x, table, label_smoothing=0.0):
    """Compute `token_crossentropy` of logits that are products of x and a table, with gradients of these two.

    The gradient of the logits, as large as they are, is never made. With p their softmax and u the upstream gradient of each
    token's loss it would be (p - (1 - e) onehot - e / V) u, and products with p alone need but a row or a vector added:

        dx     = (p table - (1 - e) table[labels] - e mean(table)) u
        dtable = p^T (u x) - (1 - e) (sums of u x by label) - e / V sum(u x)

    Args:
        labels: ids (B, T).
        logits: x table^T, (B, T, vocab_size); no gradient goes through them.
        x: (B, T, D).
        table: (vocab_size, D), of whatever type.
        label_smoothing: e in [0, 1).

    Returns:
        float32 (B, T); what stands at padding is meaningless.
    """
    labels = ops.cast(labels, "int32")
    ids, rows = ops.reshape(labels, (-1,)), ops.reshape(x, (-1, x.shape[-1]))
    logits = ops.stop_gradient(logits)

    @ops.custom_gradient
    def crossentropy(rows, table):
        # As `Perplexity` has them, of the same shape, so that TensorFlow computes them once.
        wide = ops.cast(logits, "float32")
        probabilities = ops.softmax(wide, axis=-1)
        losses = ops.reshape(_smoothed(labels, wide, probabilities, label_smoothing), (-1,))
        mean = ops.mean(table, axis=0)
        losses = losses - label_smoothing * ops.matmul(ops.cast(rows, "float32"), mean[:, None])[:, 0]  # the mean of the logits
        probabilities = ops.reshape(ops.cast(probabilities, rows.dtype), (-1, logits.shape[-1]))

        def gradient(upstream):
            upstream = upstream[:, None]
            products = ops.cast(ops.matmul(probabilities, ops.cast(table, rows.dtype)), "float32")
            d_rows = (products - (1.0 - label_smoothing) * ops.take(table, ids, axis=0) - label_smoothing * mean) * upstream
            scaled = ops.cast(rows, "float32") * upstream
            d_table = ops.cast(ops.matmul(ops.transpose(probabilities), ops.cast(scaled, rows.dtype)), "float32")
            d_table = d_table - label_smoothing / logits.shape[-1] * ops.sum(scaled, axis=0)
            d_table = ops.scatter_update(d_table, ids[:, None], (label_smoothing - 1.0) * scaled, reduction="add")
            return ops.cast(d_rows, rows.dtype), d_table

        return losses, gradient

    return ops.reshape(crossentropy(rows, ops.cast(table, "float32")), ops.shape(labels))


def divergence(logits):
    """Compute how far the predictions of a row and of the next one are apart: (KL(p || q) + KL(q || p)) / 2, in nats.

    With p and q the softmax of z and y it is sum((p - q) (z - y)) / 2: the normalizers cancel.

    Args:
        logits: (2N, T, vocab_size); rows 0 and 1 are compared, rows 2 and 3, and so on.

    Returns:
        float32 (N, T).

    Raises:
        ValueError: if the number of rows is known and odd.
    """
    if (logits.shape[0] or 0) % 2:
        raise ValueError(
            f"consistency: expected every row twice in a batch, got {logits.shape[0]} rows; TokenBatches(copies=2) makes such batches."
        )

    @ops.custom_gradient
    def compare(logits):
        pairs = ops.reshape(ops.cast(logits, "float32"), (-1, 2, *ops.shape(logits)[1:]))
        probabilities = ops.softmax(pairs, axis=-1)
        gap, change = probabilities[:, 0] - probabilities[:, 1], pairs[:, 0] - pairs[:, 1]

        def gradient(upstream):
            # Of each, p (c - sum(p c)) by way of p, and p - q by way of z; the other's has the opposite sign.
            mean = ops.sum(probabilities * change[:, None], axis=-1, keepdims=True)
            slopes = (probabilities * (change[:, None] - mean) + gap[:, None]) * (upstream[:, None, :, None] / 2)
            slopes = ops.concatenate([slopes[:, :1], -slopes[:, 1:]], axis=1)
            return ops.cast(ops.reshape(slopes, ops.shape(logits)), logits.dtype)

        return ops.sum(gap * change, axis=-1) / 2, gradient

    return compare(logits)


def _smoothed(labels, logits, probabilities, label_smoothing):
    """Return logsumexp(z) - (1 - e) z_true, of logits z and their softmax; e mean(z) is left to subtract."""
    true = _at(labels, logits)
    return _normalizer(true, _at(labels, probabilities), logits, probabilities) - (1.0 - label_smoothing) * true


def _normalizer(true, true_probability, logits, probabilities):
    """Return logsumexp(z), which is z_j - log(p_j) for every j.

    The true token's saves two passes over all logits. Where its probability is too small for a logarithm, the greatest takes its
    place: it is at least 1 / V.
    """
    return ops.cond(
        ops.min(true_probability) > SMALLEST,
        lambda: true - ops.log(true_probability),
        lambda: ops.max(logits, axis=-1) - ops.log(ops.max(probabilities, axis=-1)),
    )


def _at(labels, values):
    """Pick from (…, V) what stands at each label (…)."""
    return ops.take_along_axis(values, labels[..., None], axis=-1)[..., 0]


def _add_at(labels, rows, values):
    """Add to each of the rows (B*T, V) a value of (B, T), at its label."""
    flat = ops.reshape(labels, (-1,))
    places = ops.stack([ops.arange(ops.shape(flat)[0]), flat], axis=-1)
    return ops.scatter_update(rows, places, ops.reshape(values, (-1,)), reduction="add")


def real_tokens(labels):
    """Return float32 (B, T): 1 for tokens, 0 for padding."""
    return ops.cast(ops.not_equal(labels, PAD_ID), "float32")


def shared_by_devices() -> bool:
    """Return whether this is the part that one of several devices has of a batch, under `tf.distribute`."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    replica = tf.distribute.get_replica_context()
    return replica is not None and replica.num_replicas_in_sync > 1


def _over_devices(count):
    """Add up a scalar over the devices that share a batch under `tf.distribute`; elsewhere, it is of the whole batch."""
    if not shared_by_devices():
        return count
    import tensorflow as tf

    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, count)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class LabelSmoothedCrossentropy(keras.losses.Loss):
    """Average the cross-entropy over the real tokens of a batch; padding counts for nothing at all.

    Args:
        label_smoothing: share of the probability spread evenly over the vocabulary; the paper has 0.1 (section 5.4).
        from_logits: False for a model that returns probabilities.
        consistency: weight of the mean `divergence` between the two passes that each pair of rows has, with dropout of its own:
            half the alpha of R-Drop (arXiv:2106.14448, equation 4). Batches have every row twice in succession, as
            `TokenBatches(copies=2)` makes them, and `fit` must not shuffle them; 0: every row counts for itself.
        name: of the loss.
        **kwargs: of `keras.losses.Loss`.

    Raises:
        ValueError: if `label_smoothing` is not in [0, 1), or `consistency` is negative or asked of probabilities.
    """

    def __init__(self, label_smoothing=0.1, from_logits=True, consistency=0.0, name="crossentropy", **kwargs):
        super().__init__(name=name, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing: expected a number in [0, 1), got {label_smoothing}; the paper uses 0.1.")
        if not consistency >= 0 or (consistency and not from_logits):
            wanted = "at least 0" if from_logits else "0 for a model that returns probabilities"
            raise ValueError(f"consistency: expected {wanted}, got {consistency}.")
        self.label_smoothing = label_smoothing
        self.from_logits = from_logits
        self.consistency = consistency

    def call(self, y_true, y_pred):
        """Return the mean over real tokens, a float32 scalar; 0 for a batch without any.

        On each of the devices that share a batch under `tf.distribute`, it is that device's part of the mean: Keras adds up
        the parts' gradients.
        """
        loss = self.mean(token_crossentropy(y_true, y_pred, self.label_smoothing, self.from_logits), y_true)
        return loss + self.consistency * self.mean(divergence(y_pred), y_true[::2]) if self.consistency else loss

    def mean(self, losses, y_true):
        """Return the mean of losses (B, T) over the real tokens of labels (B, T); see `call`."""
        weights = real_tokens(y_true)
        return ops.sum(losses * weights) / ops.maximum(_over_devices(ops.sum(weights)), 1.0)

    def get_config(self):
        """Return what the constructor needs to make the same object again."""
        own = {name: getattr(self, name) for name in ("label_smoothing", "from_logits", "consistency")}
        return {**super().get_config(), **own}
