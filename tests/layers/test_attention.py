import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import assert_config_makes_the_same, run_layer_test

from tfk_transformer.layers.attention import KeyValue, MultiHeadAttention

# Each size is a prime of its own, so that swapped axes cannot pass.
B, T, S, D, H, K, V = 2, 3, 5, 7, 11, 13, 17


def layer(**options):
    made = MultiHeadAttention(H, K, V, **options)
    made.build((B, T, D))
    random = np.random.default_rng(0)
    made.set_weights([random.normal(size=weight.shape) * 0.3 for weight in made.get_weights()])
    return made


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def reference(attention, query, context, mask):
    """The formula in float64, head by head, from the weight tensors by name."""
    weight = {w.name: np.array(w, "float64") for w in attention.weights}
    outputs, probabilities = [], []
    for h in range(H):
        parts = {}
        for role, x in (("query", query), ("key", context), ("value", context)):
            bias = weight[f"{role}_bias"][h] if attention.use_bias else 0.0
            parts[role] = x.astype("float64") @ weight[role][h] + bias
        scores = parts["query"] @ parts["key"].swapaxes(-1, -2) / np.sqrt(K) + mask
        exponentials = np.exp(scores - scores.max(-1, keepdims=True))
        probabilities.append(exponentials / exponentials.sum(-1, keepdims=True))
        outputs.append(probabilities[-1] @ parts["value"])
    joined = np.concatenate(outputs, axis=-1) @ weight["output"]
    return joined + (weight["output_bias"] if attention.use_bias else 0.0), np.stack(
        probabilities, axis=1
    )


@pytest.mark.parametrize("use_bias", [False, True])
def test_attention_equals_formula(use_bias):
    attention, query, context = layer(use_bias=use_bias), inputs(B, T, D), inputs(B, S, D, seed=2)
    mask = np.zeros((B, 1, 1, S))
    mask[1, ..., 3:] = -1e9
    output, weights = attention(query, context, attention_mask=mask.astype("float32"))
    expected, expected_weights = reference(attention, query, context, mask[:, 0])
    np.testing.assert_allclose(output, expected, atol=2e-5)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-6)
    assert weights.shape == (B, H, T, S)


def test_query_is_default_context():
    attention, x = layer(), inputs(B, T, D)
    np.testing.assert_allclose(attention(x).output, attention(x, x).output, atol=1e-6)


def test_weights_have_a_head_axis():
    shapes = {w.name: tuple(w.shape) for w in layer(use_bias=True).weights}
    assert shapes == {
        "query": (H, D, K),
        "query_bias": (H, 1, K),
        "key": (H, D, K),
        "key_bias": (H, 1, K),
        "value": (H, D, V),
        "value_bias": (H, 1, V),
        "output": (H * V, D),
        "output_bias": (D,),
    }


def test_biases_are_chosen_by_role():
    names = {w.name for w in layer(use_bias=["query", "output"]).weights if w.name.endswith("bias")}
    assert names == {"query_bias", "output_bias"}
    attention, x, mask = layer(use_bias=["query", "output"]), inputs(B, T, D), np.zeros((B, T, T))
    everywhere = layer(use_bias=True)
    chosen = {w.name: np.array(w) for w in attention.weights}
    everywhere.set_weights([chosen.get(w.name, np.zeros(w.shape)) for w in everywhere.weights])
    np.testing.assert_allclose(attention(x).output, reference(everywhere, x, x, mask)[0], atol=2e-5)


def test_scores_scale_by_key_dim():
    by_root, by_width, x = layer(), layer(scale="key_dim"), inputs(B, T, D)
    by_root.query_weight.assign(by_root.query_weight / K**0.5)
    np.testing.assert_allclose(by_width(x).weights, by_root(x).weights, atol=1e-6)


def values_as_keys(**options):
    made = MultiHeadAttention(H, V, keys_are_values=True, **options)
    made.build((B, T, D))
    return made


def test_keys_can_be_the_values():
    attention, plain, x = (
        values_as_keys(use_bias=True),
        MultiHeadAttention(H, V, use_bias=True),
        inputs(B, T, D),
    )
    plain.build((B, T, D))
    mine = {w.name: np.array(w) for w in attention.weights}
    assert not any(name.startswith("key") for name in mine)
    plain.set_weights([mine[w.name.replace("key", "value")] for w in plain.weights])
    np.testing.assert_allclose(attention(x).output, plain(x).output, atol=1e-6)
    np.testing.assert_allclose(
        attention(x, inputs(B, S, D)).weights, plain(x, inputs(B, S, D)).weights, atol=1e-6
    )


def test_shared_projections_per_head():
    width = 19
    attention = MultiHeadAttention(H, K, V, shared_projections=True, use_bias=True)
    attention.build((B, T, H * width))
    weight = {w.name: np.array(w, "float64") for w in attention.weights}
    assert [weight[role].shape for role in ("query", "key", "value")] == [
        (1, width, K),
        (1, width, K),
        (1, width, V),
    ]
    x = inputs(B, T, H * width)
    output, weights = attention(x)
    slices = x.astype("float64").reshape(B, T, H, width)
    heads = []
    for h in range(H):
        query, key, value = (
            slices[:, :, h] @ weight[role][0] + weight[f"{role}_bias"][0]
            for role in ("query", "key", "value")
        )
        exponentials = np.exp(query @ key.swapaxes(-1, -2) / np.sqrt(K))
        shares = exponentials / exponentials.sum(-1, keepdims=True)
        np.testing.assert_allclose(weights[:, h], shares, atol=1e-6)
        heads.append(shares @ value)
    expected = np.concatenate(heads, axis=-1) @ weight["output"] + weight["output_bias"]
    np.testing.assert_allclose(output, expected, atol=2e-5)


def test_output_dropout_in_training():
    attention, x = layer(output_dropout=0.5), inputs(B, 101, D)
    still = np.array(attention(x, training=False).output)
    dropped = np.array(attention(x, training=True).output)
    kept = dropped != 0
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(dropped[kept], 2 * still[kept], rtol=1e-5)


def test_initial_variance_is_glorot():
    attention = MultiHeadAttention(8, 16)
    attention.build((None, None, 64))
    deviation = float(np.std(np.array(attention.query_weight)))
    assert deviation == pytest.approx((2 / (64 + 8 * 16)) ** 0.5, rel=0.05)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_fully_masked_row_is_uniform(dtype):
    attention = layer(dtype=dtype)
    output, weights = attention(
        inputs(B, T, D), inputs(B, S, D), attention_mask=np.full((B, 1, 1, S), -1e9, "float32")
    )
    assert np.isfinite(np.array(ops.cast(output, "float32"))).all()
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    np.testing.assert_allclose(weights, np.full((B, H, T, S), 1 / S), atol=1e-6)


def test_mixed_precision_dtype():
    assert (
        keras.backend.standardize_dtype(layer(dtype="mixed_bfloat16")(inputs(B, T, D)).output.dtype)
        == "bfloat16"
    )


def test_dropout_rescales_weights():
    """With the unit matrix as values and as output projection, the output is the weights
    themselves.
    """
    attention = MultiHeadAttention(1, K, S, dropout=0.5)
    attention.build((None, None, S))
    attention.output_weight.assign(np.eye(S))
    context = KeyValue(
        inputs(101, 1, S, K), np.broadcast_to(np.eye(S, dtype="float32"), (101, 1, S, S))
    )
    query = inputs(101, 1, T, K, seed=2)
    still, dropped = (
        attention.attend(query, context, training=training) for training in (False, True)
    )
    np.testing.assert_allclose(still.output, still.weights[:, 0], atol=1e-6)
    np.testing.assert_array_equal(dropped.weights, still.weights)
    kept = np.array(dropped.output) != 0
    assert 0.45 < kept.mean() < 0.55
    np.testing.assert_allclose(
        np.array(dropped.output)[kept], 2 * np.array(still.weights[:, 0])[kept], rtol=1e-5
    )


def test_cache_grows_along_time():
    older, newer = (
        KeyValue(inputs(B, H, 2, K), inputs(B, H, 2, V)),
        KeyValue(inputs(B, H, 1, K), inputs(B, H, 1, V)),
    )
    grown = older.append(newer)
    np.testing.assert_array_equal(grown.key, np.concatenate([older.key, newer.key], axis=2))
    np.testing.assert_array_equal(grown.value, np.concatenate([older.value, newer.value], axis=2))


def test_attention_layer_contract():
    weights = {
        "query": (H, D, K),
        "query_bias": (H, 1, K),
        "key": (H, D, K),
        "value": (H, D, V),
        "output": (H * V, D),
    }
    run_layer_test(
        MultiHeadAttention,
        {"num_heads": H, "key_dim": K, "value_dim": V, "use_bias": ["query"], "scale": "key_dim"},
        {"query": inputs(B, T, D), "context": inputs(B, S, D, seed=2)},
        (B, T, D),
        weights,
        {"attention_mask": inputs(B, T, S, seed=3) > 0},
    )


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.1, "output_dropout": 0.2},
        {"keys_are_values": True},
        {"shared_projections": True},
    ],
)
def test_config_makes_the_same_layer(options):
    made = assert_config_makes_the_same(MultiHeadAttention(H, V, V, use_bias=True, **options))
    assert made.use_bias == ["query", "key", "value", "output"]
    assert {name: getattr(made, name) for name in options} == options
