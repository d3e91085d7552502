import math

import keras
import numpy as np
import pytest
from layer_contract import run_layer_test

from tfk_transformer.layers.feed_forward import FeedForward

B, T, D, F = 2, 3, 5, 7


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def layer(**options):
    made = FeedForward(F, **options)
    made.build((None, None, D))
    random = np.random.default_rng(0)
    made.set_weights([random.normal(size=weight.shape) for weight in made.get_weights()])
    return made


def reference(feed_forward, x):
    inner_kernel, inner_bias, outer_kernel, outer_bias = (
        w.astype("float64") for w in feed_forward.get_weights()
    )
    return (
        np.maximum(x.astype("float64") @ inner_kernel + inner_bias, 0) @ outer_kernel + outer_bias
    )


def test_output_equals_the_formula():
    feed_forward, x = layer(), inputs(B, T, D)
    output = feed_forward(x)
    assert tuple(output.shape) == (B, T, D)
    np.testing.assert_allclose(output, reference(feed_forward, x), atol=1e-5)


def test_activation_can_be_changed():
    feed_forward, x = layer(activation="tanh"), inputs(B, T, D)
    inner_kernel, inner_bias, outer_kernel, outer_bias = feed_forward.get_weights()
    np.testing.assert_allclose(
        feed_forward(x),
        np.tanh(x @ inner_kernel + inner_bias) @ outer_kernel + outer_bias,
        atol=1e-5,
    )


def test_weights_are_two_matrices():
    weights = {"/".join(w.path.split("/")[-2:]): tuple(w.shape) for w in layer().weights}
    assert weights == {
        "inner/kernel": (D, F),
        "inner/bias": (F,),
        "outer/kernel": (F, D),
        "outer/bias": (D,),
    }


def test_dropout_is_between_matrices():
    feed_forward, x = layer(dropout=0.5), np.abs(inputs(B, 101, D)) + 1
    # With these weights the block gives x + 3; half of the inner values are dropped, the others
    # doubled.
    feed_forward.set_weights([np.eye(D, F), np.zeros(F), np.eye(F, D), np.full(D, 3.0)])
    np.testing.assert_allclose(feed_forward(x, training=False), x + 3, atol=1e-5)
    output = np.array(feed_forward(x, training=True))
    dropped = np.isclose(output, 3)
    assert 0.4 < dropped.mean() < 0.6
    np.testing.assert_allclose(output[~dropped], 2 * x[~dropped] + 3, atol=1e-5)


@pytest.mark.parametrize(
    ("policy", "dtype"), [("mixed_bfloat16", "bfloat16"), ("mixed_float16", "float16")]
)
def test_mixed_precision_dtype(policy, dtype):
    feed_forward, x = layer(dtype=policy), inputs(B, T, D)
    output = feed_forward(x)
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    assert {
        part.compute_dtype
        for part in (feed_forward.inner, feed_forward.inner_dropout, feed_forward.outer)
    } == {dtype}
    assert {w.dtype for w in feed_forward.weights} == {"float32"}
    np.testing.assert_allclose(
        keras.ops.cast(output, "float32"), reference(feed_forward, x), rtol=0.05, atol=0.15
    )


def test_lengths_may_be_unknown():
    sequence, feed_forward = keras.Input((None, D)), layer()
    model = keras.Model(sequence, feed_forward(sequence))
    assert model.output_shape == (None, None, D)
    np.testing.assert_allclose(
        model(inputs(B, T, D)), reference(feed_forward, inputs(B, T, D)), atol=1e-5
    )


def test_feed_forward_contract():
    weights = {
        "inner/kernel": (D, F),
        "inner/bias": (F,),
        "outer/kernel": (F, D),
        "outer/bias": (D,),
    }
    run_layer_test(
        FeedForward,
        {"ff_dim": F, "dropout": 0.1, "activation": "gelu"},
        {"x": inputs(B, T, D)},
        (B, T, D),
        weights,
    )


def normal_distribution(x):
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("gelu", lambda x: x * normal_distribution(x)),
        (
            "gelu_tanh",
            lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        ),
        ("gelu_sigmoid", lambda x: x / (1 + np.exp(-1.702 * x))),
        ("silu", lambda x: x / (1 + np.exp(-x))),
    ],
)
def test_gated_output_equals_the_formula(activation, function):
    feed_forward, x = layer(activation=activation, gated=True, use_bias=False), inputs(B, T, D)
    inner, linear, outer = (
        getattr(feed_forward, name).kernel.numpy().astype("float64")
        for name in ("inner", "linear", "outer")
    )
    wide = x.astype("float64")
    expected = (function(wide @ inner) * (wide @ linear)) @ outer
    np.testing.assert_allclose(feed_forward(x), expected, atol=1e-5)


def test_gated_dropout_follows_the_product():
    feed_forward, x = layer(dropout=0.5, gated=True, use_bias=False), np.ones((B, 101, D), "f")
    feed_forward.set_weights([np.eye(D, F), np.eye(D, F), np.eye(F, D)])
    output = np.array(feed_forward(x, training=True))
    assert set(np.unique(output).tolist()) == {0.0, 2.0}


def test_gated_feed_forward_contract():
    weights = {
        "inner/kernel": (D, F),
        "inner/bias": (F,),
        "linear/kernel": (D, F),
        "linear/bias": (F,),
        "outer/kernel": (F, D),
        "outer/bias": (D,),
    }
    arguments = {"ff_dim": F, "dropout": 0.1, "activation": "gelu_tanh", "gated": True}
    run_layer_test(FeedForward, arguments, {"x": inputs(B, T, D)}, (B, T, D), weights)
