import keras
import numpy as np
import pytest

from tfk_transformer.metrics import Perplexity, TokenAccuracy

VOCAB_SIZE = 7


def batch(labels, predicted, seed):
    """Labels, and random logits whose greatest stands at `predicted`."""
    labels, predicted = np.array(labels, "int32"), np.array(predicted)
    logits = np.random.default_rng(seed).normal(size=(*labels.shape, VOCAB_SIZE)).astype("float32")
    np.put_along_axis(logits, predicted[..., None], 4.0 + logits.max(), axis=-1)
    return labels, logits


# Two of seven tokens are right, then one of one: 3/8 over all, but 9/14 as the mean of the two
# batches.
# Padding is predicted rightly, as 0, and wrongly: neither counts.
LARGE = batch([[4, 1, 6, 5, 2], [3, 2, 0, 0, 0]], [[4, 3, 3, 3, 3], [3, 4, 0, 0, 5]], seed=1)
SMALL = batch([[2, 0, 0], [0, 0, 0], [0, 0, 0]], [[2, 2, 2], [0, 0, 0], [3, 0, 0]], seed=2)


def nats(labels, logits):
    """The negative log-probabilities of the real tokens, float64 (N,)."""
    z = logits.astype("float64")[labels != 0]
    true = labels[labels != 0]
    return np.log(np.exp(z).sum(-1)) - z[np.arange(len(true)), true]


def updated(metric, *batches):
    for labels, logits in batches:
        metric.update_state(labels, logits)
    return float(metric.result())


def test_accuracy_of_one_batch():
    assert updated(TokenAccuracy(), LARGE) == pytest.approx(2 / 7)
    assert updated(TokenAccuracy(), SMALL) == 1.0


def test_accuracy_weighs_tokens():
    assert updated(TokenAccuracy(), LARGE, SMALL) == pytest.approx(3 / 8)


def test_perplexity_of_one_batch():
    assert updated(Perplexity(), LARGE) == pytest.approx(np.exp(nats(*LARGE).mean()), rel=1e-5)


def test_perplexity_weighs_tokens():
    each = nats(*LARGE), nats(*SMALL)
    expected = np.exp(np.concatenate(each).mean())
    assert expected != pytest.approx(np.exp(np.mean([part.mean() for part in each])), rel=0.1)
    assert updated(Perplexity(), LARGE, SMALL) == pytest.approx(expected, rel=1e-5)


def test_sample_weights_weigh_tokens():
    labels, z = np.array([[1, 2, 0], [2, 1, 1]]), np.zeros((2, 3, 3), "float32")
    z[:, :, 1] = 1.0
    weights = np.array([[0.5, 2.0, 9.0], [1.0, 0.0, 4.0]], "float32")
    accuracy = TokenAccuracy()
    accuracy.update_state(labels, z, weights)
    accuracy.update_state(labels[:1], z[:1], [3.0])
    # Right are the tokens 1, with weights 0.5, 0, 4 and 3.
    assert float(accuracy.result()) == pytest.approx(7.5 / 13.5)


def test_perplexity_of_even_guesses():
    assert updated(Perplexity(), (LARGE[0], np.zeros_like(LARGE[1]))) == pytest.approx(
        VOCAB_SIZE, rel=1e-6
    )


@pytest.mark.parametrize(("metric_class", "of_nothing"), [(TokenAccuracy, 0.0), (Perplexity, 1.0)])
def test_padding_batch_counts_nothing(metric_class, of_nothing):
    padding = np.zeros_like(SMALL[0]), SMALL[1]
    assert updated(metric_class(), padding) == of_nothing
    assert updated(metric_class(), LARGE, padding) == updated(metric_class(), LARGE)


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity])
def test_reset_state_forgets_all(metric_class):
    metric = metric_class()
    updated(metric, LARGE)
    metric.reset_state()
    assert updated(metric, SMALL) == updated(metric_class(), SMALL)


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity])
def test_half_logits_count_in_float32(metric_class):
    labels, logits = LARGE
    halves = keras.ops.cast(logits, "bfloat16")
    exact = np.array(keras.ops.cast(halves, "float32"))
    assert updated(metric_class(), (labels, halves)) == pytest.approx(
        updated(metric_class(), (labels, exact)), rel=1e-6
    )


@pytest.mark.parametrize(
    ("metric_class", "name"), [(TokenAccuracy, "accuracy"), (Perplexity, "perplexity")]
)
def test_metric_config_round_trip(metric_class, name):
    assert metric_class().name == name
    made = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(metric_class(name="other"))
    )
    assert type(made) is metric_class
    assert made.name == "other"
