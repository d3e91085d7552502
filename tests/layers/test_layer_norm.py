import keras
import numpy as np
import pytest
from layer_contract import run_layer_test

from tfk_transformer.layers.residual import LayerNorm, RMSNorm


def layers(dtype="float32"):
    """Return ours and Keras's with the same random weights."""
    random = np.random.default_rng(0)
    both = (
        LayerNorm(epsilon=1e-5, dtype=dtype),
        keras.layers.LayerNormalization(epsilon=1e-5, dtype=dtype),
    )
    weights = [random.normal(1, 0.3, 24), random.normal(0, 0.3, 24)]
    for layer in both:
        layer.build((None, None, 24))
        layer.set_weights(weights)
    return both


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("mixed_bfloat16", 2e-2)])
def test_layer_norm_equals_keras(dtype, tolerance):
    tf = pytest.importorskip("tensorflow")
    random = np.random.default_rng(1)
    x = tf.cast(random.normal(3, 2, (4, 7, 24)), tf.bfloat16 if "bf" in dtype else tf.float32)
    upstream = tf.cast(random.normal(0, 1, (4, 7, 24)), x.dtype)
    results = []
    for layer in layers(dtype):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        assert y.dtype == x.dtype
        results.append(
            [y, *tape.gradient(y, [x, *(weight.value for weight in layer.weights)], upstream)]
        )
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(
            tf.cast(ours, tf.float32),
            tf.cast(theirs, tf.float32),
            atol=tolerance * 10,
            rtol=tolerance,
        )


def test_training_equals_inference():
    layer, _ = layers()
    x = np.random.default_rng(2).normal(0, 5, (3, 2, 24)).astype("float32")
    np.testing.assert_allclose(layer(x, training=True), layer(x), atol=1e-5)


def test_equal_elements_give_beta():
    layer, _ = layers()
    np.testing.assert_allclose(
        layer(np.full((1, 1, 24), 7.0, "float32"), training=True)[0, 0],
        layer.get_weights()[1],
        atol=1e-6,
    )


def test_float16_does_not_overflow():
    layer, _ = layers("mixed_float16")
    x = np.linspace(-60000, 60000, 24, dtype="float16")[None, None]
    assert np.isfinite(np.asarray(layer(x, training=True))).all()


def test_layer_norm_contract():
    x = np.random.default_rng(3).normal(size=(2, 3, 5)).astype("float32")
    run_layer_test(
        LayerNorm, {"epsilon": 0.5}, {"inputs": x}, (2, 3, 5), {"gamma": (5,), "beta": (5,)}
    )


def test_rms_norm_equals_the_formula():
    layer = RMSNorm(epsilon=0.3)
    layer.build((None, None, 24))
    random = np.random.default_rng(4)
    layer.set_weights([random.normal(1, 0.3, 24)])
    x = random.normal(2, 3, (4, 7, 24)).astype("float32")
    gamma = layer.get_weights()[0].astype("float64")
    root = np.sqrt(np.square(x.astype("float64")).mean(-1, keepdims=True) + 0.3)
    np.testing.assert_allclose(layer(x), x / root * gamma, atol=1e-5)


def test_rms_norm_is_computed_in_float32():
    layer = RMSNorm(dtype="mixed_float16")
    x = np.full((1, 1, 24), 60000, dtype="float16")
    np.testing.assert_allclose(np.asarray(layer(x), "float32"), np.ones((1, 1, 24)), atol=1e-3)


def test_rms_norm_contract():
    x = np.random.default_rng(3).normal(size=(2, 3, 5)).astype("float32")
    run_layer_test(RMSNorm, {"epsilon": 0.5}, {"inputs": x}, (2, 3, 5), {"gamma": (5,)})
