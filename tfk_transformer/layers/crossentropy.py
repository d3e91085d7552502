"""Cross-entropies and a divergence of logits, with explicit gradients."""

import inspect
from collections.abc import Callable

from keras import ops

from tfk_transformer.array_types import Tensor, value_outside
from tfk_transformer.keras_internals import custom_gradient

MIN_PROBABILITY = 1e-30  # lower bound of a probability whose logarithm is computed
# A token with a lower log-probability cannot be predicted. Imported models give excluded tokens an
# output bias of -1e9.
MIN_LOG_PROB = -1e8
MIN_FLOAT32 = -3e38  # about the lowest finite float32 number


def check_labels(labels: Tensor, predicted: Tensor) -> None:
    """Check that labels are ids (B, T) for predictions (B, T, vocab_size), as far as is known."""
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
    """Compute the cross-entropy of each token with smoothed labels, float32 (B, T).

    The smoothed label puts 1 - e on the true token and spreads e evenly over the vocabulary
    (arXiv:1512.00567, section 7), so the loss is logsumexp(z) - (1 - e) z_true - e mean(z).

    A token whose log-probability is below -1e8 at every position cannot be predicted. An output
    bias of -1e9 has this effect. The token gets no part of e: mean(z) is the mean of the other
    tokens' logits. This applies to logits, not to probabilities.

    The labels are ids (B, T), and the results at padding have no meaning. The logits z, or
    probabilities without `from_logits`, are (B, T, vocab_size). `label_smoothing` is e in [0, 1).

    The gradient of logits is p - (1 - e) onehot - e / V, where V is the number of tokens that can
    be predicted. Automatic differentiation takes three times as long on a CPU: it computes the
    exponentials again, and a segment sum with one segment per logit for the logits at the labels.
    """
    labels = ops.cast(labels, "int32")
    check_labels(labels, predicted)
    if not from_logits:
        log_probs = ops.log(ops.maximum(ops.cast(predicted, "float32"), MIN_PROBABILITY))
        return -(1.0 - label_smoothing) * _at(labels, log_probs) - label_smoothing * ops.mean(
            log_probs, axis=-1
        )

    @custom_gradient
    def crossentropy(logits: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        probabilities = ops.softmax(logits, axis=-1)
        normalizer, true = _normalizer_and_true(labels, logits, probabilities)
        losses = normalizer - (1.0 - label_smoothing) * true
        shares = 0.0
        if label_smoothing:
            mean, shares = _spread(logits, normalizer, label_smoothing)
            losses = losses - label_smoothing * mean

        def gradient(upstream: Tensor) -> Tensor:
            slopes = (probabilities - shares) * upstream[..., None]
            slopes = ops.reshape(slopes, (-1, logits.shape[-1]))
            flat = ops.reshape(labels, (-1,))
            indices = ops.stack([ops.arange(ops.shape(flat)[0]), flat], axis=-1)
            true = ops.reshape(-(1.0 - label_smoothing) * upstream, (-1,))
            return ops.reshape(_scatter_add(slopes, indices, true), ops.shape(logits))

        return losses, gradient

    return crossentropy(ops.cast(predicted, "float32"))


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
    token. `x` is (B, T, D), and the table (vocab_size, D) of any float type.
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

    Of the logits (2N, T, vocab_size), row 0 is compared with row 1, row 2 with row 3, and so on.
    The result is float32 (N, T).
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
    """Return the mean logit (…) of the predictable tokens, and each token's part of e, (V,).

    With n the normalizer, every n - z is at least 0, so the mean of n - z, times V, is above
    -MIN_LOG_PROB if any n - z is. In most models it is not. Then all tokens can be predicted, and
    the logits need not be compared one by one.
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


def _scatter_add(inputs: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Add updates at indices, which may repeat; see `ops.scatter_update`."""
    if "reduction" in inspect.signature(ops.scatter_update).parameters:
        return ops.scatter_update(inputs, indices, updates, reduction="add")
    # Keras before 3.14 adds only to zeros.
    return inputs + ops.scatter(indices, updates, ops.shape(inputs))
