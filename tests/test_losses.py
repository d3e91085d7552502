import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tfk_transformer.layers import crossentropy
from tfk_transformer.layers.crossentropy import (
    divergence,
    projected_crossentropy,
    token_crossentropy,
)
from tfk_transformer.losses import LabelSmoothedCrossentropy, real_tokens

B, T, VOCAB_SIZE = 3, 5, 7
LABELS = np.array([[4, 1, 6, 2, 0], [3, 2, 0, 0, 0], [5, 5, 3, 4, 2]], "int32")
REAL = LABELS != 0


def logits(seed=1, scale=3.0):
    return (scale * np.random.default_rng(seed).normal(size=(B, T, VOCAB_SIZE))).astype("float32")


def reference(labels, z, label_smoothing):
    """The cross-entropy with the smoothed one-hot distribution written out, float64 (B, T)."""
    expected = (1 - label_smoothing) * np.eye(VOCAB_SIZE)[labels] + label_smoothing / VOCAB_SIZE
    z = z.astype("float64")
    log_probabilities = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return -(expected * log_probabilities).sum(-1)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.7])
def test_loss_matches_one_hot_formula(label_smoothing):
    losses = token_crossentropy(LABELS, logits(), label_smoothing)
    np.testing.assert_allclose(
        losses, reference(LABELS, logits(), label_smoothing), rtol=1e-5, atol=1e-5
    )


def test_token_loss_by_hand():
    # p = (1/2, 1/4, 1/4): -log p of token 1 is log 4; smoothed by 0.3, it is 0.8 log 4 + 0.1 log 2
    # + 0.1 log 4 = 1.9 log 2.
    z = np.log([[[0.5, 0.25, 0.25]]])
    assert float(token_crossentropy([[1]], z)[0, 0]) == pytest.approx(2 * np.log(2))
    assert float(token_crossentropy([[1]], z, 0.3)[0, 0]) == pytest.approx(1.9 * np.log(2))


def test_large_logits_do_not_overflow():
    z = np.zeros((1, 1, VOCAB_SIZE), "float32")
    z[0, 0, 3] = 1e4
    np.testing.assert_allclose(token_crossentropy([[4]], z), [[1e4]])
    np.testing.assert_allclose(token_crossentropy([[3]], z), [[0.0]])


def test_real_tokens_exclude_padding():
    weights = real_tokens(LABELS)
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    np.testing.assert_array_equal(weights, [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_loss_averages_real_tokens(label_smoothing):
    expected = reference(LABELS, logits(), label_smoothing)[REAL].mean()
    assert float(LabelSmoothedCrossentropy(label_smoothing)(LABELS, logits())) == pytest.approx(
        expected, rel=1e-5
    )


WEIGHTS = np.random.default_rng(7).uniform(0, 2, (B, T)).astype("float32")


@pytest.mark.parametrize("weights", [WEIGHTS[:, 0], WEIGHTS[:, :1], WEIGHTS])
@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight", "sum"])
def test_weights_of_rows_and_tokens_count(weights, reduction):
    losses = reference(LABELS, logits(), 0.1) * REAL
    of_tokens = np.broadcast_to(weights if weights.ndim == 2 else weights[:, None], (B, T))
    divisors = [REAL.sum(), (of_tokens * REAL).sum(), 1]
    divisor = divisors[["sum_over_batch_size", "mean_with_sample_weight", "sum"].index(reduction)]
    loss = LabelSmoothedCrossentropy(0.1, reduction=reduction)
    expected = (losses * of_tokens).sum() / divisor
    assert float(loss(LABELS, logits(), weights)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight", "sum"])
@pytest.mark.parametrize("weights", [None, WEIGHTS[:, 0], WEIGHTS])
def test_weights_count_as_in_keras(weights, reduction):
    """The same as Keras's loss, which masks padding by `ignore_class` and needs (B, 1)."""
    theirs = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=0, reduction=reduction
    )
    ours = LabelSmoothedCrossentropy(0.0, reduction=reduction)
    if weights is None and reduction == "mean_with_sample_weight":
        weights = np.ones(B, "float32")
    by_token = weights[:, None] if np.ndim(weights) == 1 else weights
    np.testing.assert_allclose(
        ours(LABELS, logits(), weights), theirs(LABELS, logits(), by_token), rtol=1e-5
    )


def test_one_step_takes_both_kinds_of_weights():
    """After a step with weights of rows, TensorFlow traces one for weights of unknown rank."""
    model = keras.Sequential([keras.Input((T, VOCAB_SIZE)), keras.layers.Dense(VOCAB_SIZE)])
    model.compile("sgd", LabelSmoothedCrossentropy())
    for weights in (WEIGHTS[:, 0], WEIGHTS):
        loss = model.test_on_batch(logits(), LABELS, sample_weight=weights)
        expected = LabelSmoothedCrossentropy()(LABELS, model(logits()), weights)
        assert loss == pytest.approx(float(expected), rel=1e-5)
        model.fit(logits(), LABELS, sample_weight=weights, verbose=0)


def test_loss_without_reduction_is_of_tokens():
    losses = LabelSmoothedCrossentropy(0.1, reduction=None)(LABELS, logits(), WEIGHTS)
    expected = reference(LABELS, logits(), 0.1) * REAL * WEIGHTS
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (B + 1,), (B, T - 1), (T, B), (B, T, 1)])
def test_weights_of_another_shape_are_refused(shape):
    message = (
        rf"^sample_weight: expected the shape \({B},\) \(a weight for each row\) or \({B}, {T}\) "
        rf"\(for each token\), got {re.escape(str(shape))}\.$"
    )
    with pytest.raises(ValueError, match=message):
        LabelSmoothedCrossentropy()(LABELS, logits(), np.ones(shape))


class Reduced(LabelSmoothedCrossentropy):
    def call(self, y_true, y_pred):
        return ops.mean(super().call(y_true, y_pred))


def test_reduced_loss_cannot_be_weighted():
    assert Reduced(0.0)(LABELS, logits()).shape == ()
    with pytest.raises(ValueError, match="^sample_weight: expected none for Reduced, whose `call`"):
        Reduced(0.0)(LABELS, logits(), np.ones(B))


def test_consistency_counts_weights_of_rows():
    labels = np.repeat(LABELS, 2, axis=0)
    z = np.concatenate([logits(), logits(seed=2)])
    weights = np.array([1, 1, 0, 0, 2, 2], "float32")
    loss = LabelSmoothedCrossentropy(0.1, consistency=1.5)
    divergences = np.repeat(divergence(z), 2, axis=0)
    mask = labels != 0
    losses = token_crossentropy(labels, z, 0.1) + 1.5 * divergences
    expected = (losses * mask * weights[:, None]).numpy().sum() / mask.sum()
    assert float(loss(labels, z, weights)) == pytest.approx(expected, rel=1e-5)


def test_default_smoothing_is_0_1():
    assert float(LabelSmoothedCrossentropy()(LABELS, logits())) == pytest.approx(
        reference(LABELS, logits(), 0.1)[REAL].mean(), rel=1e-5
    )


def test_padding_logits_change_nothing():
    others = np.where(REAL[..., None], logits(), 100 * logits(seed=2))
    np.testing.assert_array_equal((others != logits()).all(axis=-1), ~REAL)
    loss = LabelSmoothedCrossentropy(0.1)
    assert float(loss(LABELS, others)) == float(loss(LABELS, logits()))


def test_added_padding_changes_nothing():
    labels = np.pad(LABELS, [(0, 8), (0, 6)])
    z = np.pad(logits(), [(0, 8), (0, 6), (0, 0)], constant_values=11.0)
    loss = LabelSmoothedCrossentropy(0.1)
    assert float(loss(labels, z)) == pytest.approx(float(loss(LABELS, logits())), rel=1e-6)


def test_all_padding_gives_zero_loss():
    z = tf.constant(logits())
    with tf.GradientTape() as tape:
        tape.watch(z)
        loss = LabelSmoothedCrossentropy(0.1)(np.zeros_like(LABELS), z)
    assert float(loss) == 0.0
    np.testing.assert_array_equal(tape.gradient(loss, z), np.zeros((B, T, VOCAB_SIZE)))


def test_gradient_matches_formula():
    z = tf.constant(logits())
    with tf.GradientTape() as tape:
        tape.watch(z)
        loss = LabelSmoothedCrossentropy(0.1)(LABELS, z)
    gradient = np.array(tape.gradient(loss, z))
    np.testing.assert_array_equal(gradient[~REAL], np.zeros((4, VOCAB_SIZE)))
    exponentials = np.exp(logits().astype("float64"))
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)
    expected = (probabilities - 0.9 * np.eye(VOCAB_SIZE)[LABELS] - 0.1 / VOCAB_SIZE) / REAL.sum()
    np.testing.assert_allclose(gradient[REAL], expected[REAL], atol=1e-6)


# float16 has -inf for the bias.
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_silent_tokens_get_no_smoothing(label_smoothing, dtype):
    """Loss and gradients are those of a vocabulary without these tokens."""
    silent, others = [0, 3], [1, 2, 4, 5, 6]
    exact = np.array(ops.cast(ops.cast(logits(), dtype), "float32"))
    labels = np.array(others)[np.random.default_rng(5).integers(0, 5, (B, T))]
    bias = np.zeros(VOCAB_SIZE, "float32")
    bias[silent] = -1e9
    z = ops.cast(exact, dtype) + ops.cast(bias, dtype)
    with tf.GradientTape() as tape:
        tape.watch(z)
        losses = token_crossentropy(labels, z, label_smoothing)
    gradient = np.array(ops.cast(tape.gradient(losses, z), "float32"))
    exponentials = np.exp(exact[..., others].astype("float64"))
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)
    expected = (1 - label_smoothing) * (labels[..., None] == others) + label_smoothing / len(others)
    np.testing.assert_allclose(losses, -(expected * np.log(probabilities)).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(
        gradient[..., others], probabilities - expected, atol=1e-6 if dtype == "float32" else 1e-2
    )
    np.testing.assert_array_equal(gradient[..., silent], 0)


def test_unlikely_tokens_are_smoothed():
    """Logits far apart, all of which count, on the way that looks at each of them."""
    z = logits(scale=1e7)
    np.testing.assert_allclose(
        token_crossentropy(LABELS, z, 0.1), reference_of_wide(LABELS, z, 0.1), rtol=1e-5
    )


def reference_of_wide(labels, z, label_smoothing):
    """The same as `reference`, without an overflow."""
    z = z.astype("float64")
    # The others are so far below that the sum is that of one.
    log_probabilities = z - z.max(-1, keepdims=True)
    expected = (1 - label_smoothing) * np.eye(VOCAB_SIZE)[labels] + label_smoothing / VOCAB_SIZE
    return -(expected * log_probabilities).sum(-1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_logits_give_float32_loss(dtype):
    halves = ops.cast(logits(), dtype)
    exact = np.array(ops.cast(halves, "float32"))
    losses = token_crossentropy(LABELS, halves, 0.1)
    loss = LabelSmoothedCrossentropy(0.1)(LABELS, halves)
    assert [keras.backend.standardize_dtype(x.dtype) for x in (losses, loss)] == [
        "float32",
        "float32",
    ]
    # As near as float32 comes: nothing was computed in half precision.
    np.testing.assert_allclose(losses, reference(LABELS, exact, 0.1), rtol=1e-5, atol=1e-5)
    assert float(loss) == pytest.approx(reference(LABELS, exact, 0.1)[REAL].mean(), rel=1e-5)


@pytest.mark.parametrize("label_smoothing", [-0.1, 1.0, float("nan")])
def test_bad_smoothing_is_refused(label_smoothing):
    with pytest.raises(
        ValueError,
        match=(
            rf"^label_smoothing: expected a number in \[0, 1\), got {label_smoothing}; the "
            r"paper uses 0.1.$"
        ),
    ):
        LabelSmoothedCrossentropy(label_smoothing)


def test_loss_config_round_trip():
    original = LabelSmoothedCrossentropy(0.3, consistency=1.0, name="nats")
    made = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(original))
    assert type(made) is LabelSmoothedCrossentropy
    assert (made.label_smoothing, made.consistency, made.name) == (0.3, 1.0, "nats")
    assert LabelSmoothedCrossentropy.from_config(original.get_config()).label_smoothing == 0.3
    labels, z = np.repeat(LABELS, 2, axis=0), np.concatenate([logits(), logits(2)])
    assert float(made(labels, z)) == float(original(labels, z))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("far", [False, True], ids=["", "a label without probability"])
def test_joined_projection_is_equal(label_smoothing, far):
    random = np.random.default_rng(4)
    x, table = (
        tf.constant(random.normal(size=shape), "float32") for shape in ((B, T, 4), (VOCAB_SIZE, 4))
    )
    if far:
        x = tf.tensor_scatter_nd_update(x, [[0, 1]], [200 * (table[0] - table[1])])
    results = []
    for joined in (True, False):
        with tf.GradientTape() as tape:
            tape.watch([x, table])
            z = tf.einsum("btd,vd->btv", x, table)
            predicted = (z, x, table) if joined else (z,)
            losses = (projected_crossentropy if joined else token_crossentropy)(
                LABELS, *predicted, label_smoothing
            )
            loss = tf.reduce_sum(
                losses * real_tokens(LABELS) * np.arange(1.0, 6.0, dtype="float32")
            )
        results.append([losses, *tape.gradient(loss, [x, table])])
    assert (float(tf.reduce_max(results[1][0])) > 69) == far  # 69 nats: MIN_PROBABILITY
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def apart(z):
    """(KL(p || q) + KL(q || p)) / 2 of rows two by two, as its definition has it: (N, T)."""
    logs = tf.nn.log_softmax(tf.reshape(tf.cast(z, "float64"), (-1, 2, *z.shape[1:])))
    p, q = logs[:, 0], logs[:, 1]
    return tf.reduce_sum(tf.exp(p) * (p - q) + tf.exp(q) * (q - p), axis=-1) / 2


def test_divergence_averages_both_ways():
    z = tf.constant(np.concatenate([logits(), logits(2)[:1]]))
    results = []
    for function in (divergence, apart):
        with tf.GradientTape() as tape:
            tape.watch(z)
            actual = function(z)
            total = tf.reduce_sum(tf.cast(actual, "float32") * np.arange(1.0, 6.0, dtype="float32"))
        results.append((actual, tape.gradient(total, z)))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert float(tf.reduce_min(results[0][0])) > 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_divergence_skips_silent_tokens(dtype):
    z = ops.cast(np.concatenate([logits(), logits(2)[:1]]), dtype)
    with_silent = ops.concatenate([ops.cast(np.full((4, T, 2), -1e9), dtype), z], axis=-1)
    results = []
    for values in (ops.cast(with_silent, "float32"), z):  # as a loss of Keras gets them
        with tf.GradientTape() as tape:
            tape.watch(values)
            actual = divergence(values)
        results.append(
            (np.array(actual), np.array(ops.cast(tape.gradient(actual, values), "float32")))
        )
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    np.testing.assert_array_equal(results[0][1][..., :2], 0)
    np.testing.assert_allclose(
        results[0][1][..., 2:], results[1][1], atol=1e-6 if dtype == "float32" else 1e-2
    )


def test_consistency_adds_divergence():
    labels, z = np.repeat(LABELS, 2, axis=0), np.concatenate([logits(), logits(2)])
    expected = LabelSmoothedCrossentropy(0.1)(labels, z) + 2.5 * apart(z).numpy()[REAL].mean()
    assert float(LabelSmoothedCrossentropy(0.1, consistency=2.5)(labels, z)) == pytest.approx(
        float(expected), rel=1e-5
    )
    twice = np.repeat(logits(), 2, axis=0)
    same = LabelSmoothedCrossentropy(0.1, consistency=2.5)(labels, twice)
    assert float(same) == pytest.approx(
        float(LabelSmoothedCrossentropy(0.1)(LABELS, logits())), rel=1e-6
    )


def test_row_without_copy_is_refused():
    with pytest.raises(
        ValueError,
        match=(
            r"^consistency: expected every row twice in a batch, got 3 rows; "
            r"TokenBatches\(copies=2\)"
        ),
    ):
        LabelSmoothedCrossentropy(0.1, consistency=1.0)(LABELS, logits())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"consistency": -1.0}, "^consistency: expected at least 0, got -1.0.$"),
        (
            {"consistency": 1.0, "from_logits": False},
            "^consistency: expected 0 for a model that returns probabilities, got 1.0.$",
        ),
    ],
)
def test_bad_consistency_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LabelSmoothedCrossentropy(**options)


def test_sums_at_repeated_ids_without_reduction(monkeypatch):
    """Before version 3.14, Keras's `scatter_update` does not add."""
    table, ids = np.arange(14.0).reshape(7, 2), np.array([[3], [5], [3]])
    rows = np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])
    expected = table.copy()
    expected[3] += [101.0, 202.0]
    expected[5] += [10.0, 20.0]
    np.testing.assert_array_equal(crossentropy._scatter_add(table, ids, rows), expected)
    monkeypatch.setattr(crossentropy.ops, "scatter_update", lambda inputs, indices, updates: None)
    np.testing.assert_array_equal(crossentropy._scatter_add(table, ids, rows), expected)
