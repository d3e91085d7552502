import itertools

import keras
import numpy as np
import pytest
from layer_contract import run_layer_test

from tfk_transformer.layers.residual import Residual

B, T, D = 2, 3, 5
EPSILON = 0.3  # so large that it shows


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def layer(norm, epsilon=EPSILON, **options):
    made = Residual(norm, epsilon=epsilon, **options)
    made.build((None, None, D))
    made.set_weights([inputs(D, seed=3), inputs(D, seed=5)])
    return made


def normalized(residual, x):
    gamma, beta = (w.astype("float64") for w in residual.get_weights())
    x = x.astype("float64")
    deviation = np.sqrt(x.var(-1, keepdims=True) + residual.epsilon)
    return gamma * (x - x.mean(-1, keepdims=True)) / deviation + beta


def sublayer(x):
    return np.roll(np.array(x), 1, axis=-1) ** 2


def test_pre_norm_equals_the_formula():
    residual, x = layer("pre"), inputs(B, T, D)
    np.testing.assert_allclose(residual.enter(x), normalized(residual, x), atol=1e-5)
    np.testing.assert_allclose(
        residual(x, sublayer(residual.enter(x))), x + sublayer(normalized(residual, x)), atol=1e-5
    )


def test_post_norm_equals_the_formula():
    residual, x = layer("post"), inputs(B, T, D)
    np.testing.assert_array_equal(residual.enter(x), x)
    np.testing.assert_allclose(
        residual(x, sublayer(residual.enter(x))), normalized(residual, x + sublayer(x)), atol=1e-5
    )


def test_dropout_can_follow_the_norm():
    residual, x, y = (
        layer("post_dropout", dropout=0.5),
        inputs(B, 101, D),
        inputs(B, 101, D, seed=2),
    )
    np.testing.assert_allclose(
        residual(x, y, training=False), normalized(residual, x + y), atol=1e-5
    )
    output = np.array(residual(x, y, training=True))
    assert 0.4 < np.mean(output == 0) < 0.6
    np.testing.assert_allclose(
        output[output != 0], 2 * normalized(residual, x + y)[output != 0], atol=1e-4
    )


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_enter_works_before_build(norm):
    residual, x = Residual(norm), inputs(B, T, D)
    joined = residual(x, residual.enter(x))
    assert tuple(joined.shape) == (B, T, D)
    assert [w.path.split("/")[-2:] for w in residual.weights] == [
        ["norm", "gamma"],
        ["norm", "beta"],
    ]


def test_dropout_spares_the_input():
    residual, x, y = layer("pre", dropout=0.5), inputs(B, 101, D), inputs(B, 101, D, seed=2)
    np.testing.assert_allclose(residual(x, y, training=False), x + y, atol=1e-6)
    output = np.array(residual(x, y, training=True))
    dropped = np.isclose(output, x, atol=1e-7)
    assert 0.4 < dropped.mean() < 0.6
    np.testing.assert_allclose(output[~dropped], (x + 2 * y)[~dropped], atol=1e-5)


def test_dropout_precedes_post_norm():
    residual, x, y = layer("post", dropout=0.5), inputs(B, 101, D), inputs(B, 101, D, seed=2)
    np.testing.assert_allclose(residual(x, y), normalized(residual, x + y), atol=1e-5)
    output = np.array(residual(x, y, training=True))
    # Each of the D elements was dropped or doubled: one of 2^D ways gives the output.
    ways = np.array(list(itertools.product([0.0, 2.0], repeat=D)))
    # (2^D, B, T)
    differences = np.stack(
        [np.abs(output - normalized(residual, x + way * y)).max(-1) for way in ways]
    )
    assert differences.min(axis=0).max() < 1e-4
    assert 0.9 < ways[differences.argmin(axis=0)].mean() < 1.1


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_mixed_precision_dtype(norm):
    residual, x, y = layer(norm, dtype="mixed_bfloat16"), inputs(B, T, D), inputs(B, T, D, seed=2)
    output = residual(x, y)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    assert {w.dtype for w in residual.weights} == {"float32"}
    expected = x + y if norm == "pre" else normalized(residual, x + y)
    np.testing.assert_allclose(keras.ops.cast(output, "float32"), expected, rtol=0.02, atol=0.03)


@pytest.mark.parametrize("norm", ["post", "post_dropout"])
def test_residual_contract(norm):
    arguments = {"norm": norm, "dropout": 0.1, "epsilon": EPSILON}
    run_layer_test(
        Residual,
        arguments,
        {"x": inputs(B, T, D), "output": inputs(B, T, D, seed=2)},
        (B, T, D),
        {"norm/gamma": (D,), "norm/beta": (D,)},
    )
    assert Residual(**arguments).layer_norm.epsilon == EPSILON
