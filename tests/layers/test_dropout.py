import keras
import numpy as np
import pytest
from layer_contract import run_layer_test

from tfk_transformer.layers.base import Dropout

ONES = np.ones((64, 50, 33), "float32")  # not a multiple of four


def drawn(rate, times=1, **options):
    layer = Dropout(rate, **options)
    return [np.asarray(layer(ONES, training=True)).astype("float32") for _ in range(times)]


@pytest.mark.parametrize("rate", [0.004, 0.1, 0.3, 0.5, 0.9, 0.996])
def test_dropout_rate_and_scale(rate):
    actual = np.concatenate(drawn(rate, times=20, seed=1))
    # Of the draws, and of rounding rate * 256.
    error = (rate * (1 - rate) / actual.size) ** 0.5 + 1 / 256 / 20**0.5
    assert abs((actual == 0).mean() - rate) < 5 * error
    np.testing.assert_allclose(actual[actual != 0], 1 / (1 - rate), rtol=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="elsewhere it is Keras's own")
def test_rate_is_exact_on_average():
    shares = [(actual == 0).mean() for actual in drawn(0.1, times=400, seed=1)]
    assert np.mean(shares) == pytest.approx(0.1, abs=5e-4)  # 26/256 is 0.1016, 25/256 is 0.0977
    assert np.std(shares) > 0.001  # calls round either way


def test_draws_are_independent():
    first, second = drawn(0.5, times=2, seed=1)
    assert (first != second).mean() == pytest.approx(0.5, abs=0.02)
    for axis in range(3):
        np.testing.assert_allclose(
            (first == 0).mean(axis=tuple({0, 1, 2} - {axis})), 0.5, atol=0.08
        )
    assert np.corrcoef(first.ravel()[:-1], first.ravel()[1:])[0, 1] == pytest.approx(0, abs=0.02)


def test_seed_fixes_the_mask():
    np.testing.assert_array_equal(drawn(0.3, seed=7), drawn(0.3, seed=7))
    differ = drawn(0.3, seed=7)[0] != drawn(0.3, seed=8)[0]
    assert differ.mean() == pytest.approx(2 * 0.3 * 0.7, abs=0.01)


@pytest.mark.parametrize(("rate", "training"), [(0.0, True), (0.3, False)])
def test_dropout_can_be_inactive(rate, training):
    np.testing.assert_array_equal(Dropout(rate)(ONES, training=training), ONES)


def test_gradient_equals_the_mask():
    tf = pytest.importorskip("tensorflow")
    x = tf.constant(ONES)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = Dropout(0.3)(x, training=True)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_graph_lengths_may_vary():
    tf = pytest.importorskip("tensorflow")
    layer = Dropout(0.5, dtype="mixed_bfloat16")
    call = tf.function(
        lambda x: layer(x, training=True),
        input_signature=[tf.TensorSpec([None, None, 3], tf.bfloat16)],
    )
    for length in (0, 1, 5):
        assert call(tf.ones((2, length, 3), tf.bfloat16)).shape == (2, length, 3)


def test_dropout_layer_contract():
    run_layer_test(Dropout, {"rate": 0.3, "seed": 5}, {"inputs": ONES[:2, :3, :5]}, (2, 3, 5), {})
