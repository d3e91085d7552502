import numpy as np
import pytest
from layer_contract import assert_config_makes_the_same, run_layer_test

from tfk_transformer.layers.vocabulary_projection import VocabularyProjection

# Each size is a prime of its own, so that swapped axes cannot pass.
B, T, D, V = 2, 3, 5, 7


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_projection_contract():
    run_layer_test(
        VocabularyProjection,
        {"vocab_size": V, "tied": False, "use_bias": True},
        {"x": inputs(B, T, D)},
        (B, T, V),
        {"kernel": (D, V), "bias": (V,)},
    )


@pytest.mark.parametrize("use_bias", [False, True])
def test_logits_use_the_kernel(use_bias):
    layer, x = VocabularyProjection(V, use_bias=use_bias), inputs(B, T, D)
    layer.build((None, None, D))
    layer.set_weights([inputs(D, V, seed=2), inputs(V, seed=3)][: 1 + use_bias])
    np.testing.assert_allclose(
        layer(x), x @ inputs(D, V, seed=2) + use_bias * inputs(V, seed=3), atol=1e-5
    )


def test_tied_logits_use_embeddings():
    layer, x, table = (
        assert_config_makes_the_same(VocabularyProjection(V, tied=True)),
        inputs(B, T, D),
        inputs(V, D, seed=2),
    )
    np.testing.assert_allclose(layer(x, table), x @ table.T, atol=1e-5)
    assert layer.weights == []
