"""A boolean mask means in every layer what it means in Keras: True marks a position that may be
attended to.
"""

import keras
import numpy as np
import pytest

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.layers.attention import MultiHeadAttention
from tfk_transformer.layers.decoder import Decoder, DecoderLayer
from tfk_transformer.layers.encoder import Encoder, EncoderLayer
from tfk_transformer.layers.masks import as_additive, causal_mask

# Each size is a prime of its own, or has one as its factor, so that swapped axes cannot pass.
B, T, S, H, K, D = 2, 3, 5, 11, 13, 22
OPTIONS = LayerOptions(model_dim=D, num_heads=H, key_dim=K, value_dim=17, ff_dim=37, dropout=0.0)
VISIBLE = np.random.default_rng(7).random((B, T, S)) > 0.4
VISIBLE[..., 0] = True  # no row is hidden altogether
ADDITIVE = np.where(VISIBLE, 0.0, -1e9).astype("float32")[:, None]  # (B, 1, T, S)


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def with_random_weights(layer):
    layer.build((None, None, D))
    random = np.random.default_rng(0)
    layer.set_weights([random.normal(0, 0.3, weight.shape) for weight in layer.get_weights()])
    return layer


def test_attention_equals_keras():
    """The same weights in `keras.layers.MultiHeadAttention`, whose kernels are (D, H, K) and (H, V,
    D).
    """
    ours = with_random_weights(MultiHeadAttention(H, K, 17))
    theirs = keras.layers.MultiHeadAttention(H, K, 17, use_bias=False)
    query, context = inputs(B, T, D), inputs(B, S, D, seed=2)
    theirs.build((B, T, D), (B, S, D))
    weights = {w.name: np.array(w) for w in ours.weights}
    kernels = [weights[role].transpose(1, 0, 2) for role in ("query", "key", "value")]
    theirs.set_weights([*kernels, weights["output"].reshape(H, 17, D)])
    for mask in (VISIBLE, VISIBLE[0], VISIBLE[:, :1]):
        output, shares = theirs(query, context, attention_mask=mask, return_attention_scores=True)
        attended = ours(query, context, attention_mask=mask)
        np.testing.assert_allclose(attended.output, output, atol=1e-5)
        np.testing.assert_allclose(attended.weights, shares, atol=1e-6)
        hidden = np.broadcast_to(~mask if mask.ndim == 3 else ~mask[None], (B, T, S))[:, None]
        np.testing.assert_array_equal(
            np.where(hidden, attended.weights, 0.0), np.zeros((B, H, T, S))
        )


@pytest.mark.parametrize(
    "mask", [VISIBLE, VISIBLE[:, None]], ids=["without a head axis", "with a head axis"]
)
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_mask_in_context_attention(mask, dtype):
    layer = with_random_weights(MultiHeadAttention(H, K, dtype=dtype))
    one, other = (
        layer(inputs(B, T, D), inputs(B, S, D, seed=2), attention_mask=m) for m in (mask, ADDITIVE)
    )
    for actual, expected in zip(one, other, strict=True):
        np.testing.assert_array_equal(
            keras.ops.cast(actual, "float32"), keras.ops.cast(expected, "float32")
        )


SQUARE = np.tril(np.ones((B, T, T), bool))
SQUARE[1, 2, 0] = False


@pytest.mark.parametrize(
    ("layer_class", "arguments"),
    [
        (EncoderLayer, {}),
        (Encoder, {"num_layers": 2}),
        (DecoderLayer, {"cross_attention": False}),
        (Decoder, {"num_layers": 2, "cross_attention": False}),
    ],
)
@pytest.mark.parametrize(
    "head_axis", [False, True], ids=["without a head axis", "with a head axis"]
)
def test_mask_in_self_attention(layer_class, arguments, head_axis):
    layer, x = with_random_weights(layer_class(OPTIONS, **arguments)), inputs(B, T, D)
    actual = layer(x, attention_mask=SQUARE[:, None] if head_axis else SQUARE)
    expected = layer(x, attention_mask=np.where(SQUARE, 0.0, -1e9).astype("float32")[:, None])
    np.testing.assert_array_equal(actual.output, expected.output)
    weights = keras.tree.flatten(actual[1])
    for layer_weights in weights:
        np.testing.assert_array_equal(
            np.where(SQUARE[:, None], 0.0, layer_weights), np.zeros((B, H, T, T))
        )
    assert np.abs(np.asarray(actual.output) - np.asarray(layer(x).output)).max() > 1e-2


def test_mask_in_cross_attention():
    decoder = with_random_weights(Decoder(OPTIONS, 2))
    layer, x, encoded = decoder.layers[0], inputs(B, T, D), inputs(B, S, D, seed=2)
    for call in (
        lambda mask: decoder(x, encoded, SQUARE, mask),
        lambda mask: layer(x, decoder.project_memory(encoded)[0], SQUARE, mask),
    ):
        actual, expected = call(VISIBLE), call(ADDITIVE)
        np.testing.assert_array_equal(actual.output, expected.output)
        for weights in keras.tree.flatten(actual.cross_weights):
            np.testing.assert_array_equal(
                np.where(VISIBLE[:, None], 0.0, weights), np.zeros((B, H, T, S))
            )


def test_mask_in_decoding_steps():
    decoder, x, encoded = (
        with_random_weights(Decoder(OPTIONS, 2)),
        inputs(B, T, D),
        inputs(B, S, D, seed=2),
    )
    mask = VISIBLE[:, :1]  # the same for every position
    full = decoder(
        x, encoded, attention_mask=np.tril(np.ones((T, T), bool)), cross_attention_mask=mask
    )
    cache, memory = decoder.empty_cache(B), decoder.project_memory(encoded)
    for t in range(T):
        output, cache, _ = decoder.step(x[:, t : t + 1], cache, memory, cross_attention_mask=mask)
        np.testing.assert_allclose(output[:, 0], full.output[:, t], atol=1e-5)
    np.testing.assert_allclose(
        full.output, decoder(x, encoded, causal_mask(T), ADDITIVE[:, :, :1]).output, atol=1e-6
    )


def test_booleans_become_additive():
    expected = np.array([[0, -1e9], [0, 0]], "float32")
    mask = np.array([[True, False], [True, True]])
    np.testing.assert_array_equal(as_additive(mask), expected)
    np.testing.assert_array_equal(
        as_additive(np.stack([mask] * 3)), np.stack([expected] * 3)[:, None]
    )
    np.testing.assert_array_equal(as_additive(mask[None, None]), expected[None, None])


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_integer_mask_is_refused(dtype):
    message = (
        r"attention_mask: expected booleans \(True for a visible position\) or floats .* "
        rf"got {dtype}; .* with astype\(bool\)."
    )
    layers = [
        MultiHeadAttention(H, K),
        EncoderLayer(OPTIONS),
        Decoder(OPTIONS, 1, cross_attention=False),
    ]
    for layer in layers:
        with pytest.raises(ValueError, match=message):
            layer(inputs(B, T, D), attention_mask=SQUARE.astype(dtype))
