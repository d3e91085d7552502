"""Relative positions: buckets, biases, and their use in the stacks."""

import math

import keras
import numpy as np
import pytest
from layer_contract import assert_config_makes_the_same, run_layer_test

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.layers.decoder import Decoder
from tfk_transformer.layers.encoder import Encoder
from tfk_transformer.layers.masks import HIDDEN, beam_mask, causal_mask, padding_mask
from tfk_transformer.layers.positions import (
    RelativePositions,
    bucket_table,
    key_positions,
)

B, T, S, D, H = 2, 5, 7, 6, 3
OPTIONS = TransformerConfig(
    source_vocab_size=9, target_vocab_size=9, model_dim=D, num_heads=H, ff_dim=5, dropout=0.0
)
RELATIVE = [6, 4, False]
BY_LAYER = [6, 4, True]


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def built(layer):
    layer.build((None, None, D))
    random = np.random.default_rng(7)
    layer.set_weights([random.normal(0, 0.5, weight.shape) for weight in layer.weights])
    return layer


def bucket(distance, buckets, most, bidirectional):
    """The formula of T5 for one distance, key position minus query position."""
    side = buckets // 2 if bidirectional else buckets
    later = side if bidirectional and distance > 0 else 0
    length = abs(distance) if bidirectional else max(-distance, 0)
    exact = side // 2
    if length < exact:
        return later + length
    steps = math.log(length / exact) / math.log(most / exact) * (side - exact)
    return later + min(side - 1, exact + int(steps + 1e-9))


@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (8, 20), (6, 5), (4, 3)])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_equal_the_formula(buckets, most, bidirectional):
    expected = [bucket(n, buckets, most, bidirectional) for n in range(-most, most + 1)]
    assert bucket_table(buckets, most, bidirectional).tolist() == expected


def test_far_positions_share_a_bucket():
    layer = built(RelativePositions(H, 6, 4))
    biases = np.array(layer(np.array([0]), np.arange(30)))[0, :, 0]
    assert len(np.unique(biases[:, 4:], axis=1).T) == 1
    assert (biases[:, 0] != biases[:, 4]).all()


@pytest.mark.parametrize("bidirectional", [True, False])
def test_biases_equal_the_formula(bidirectional):
    layer = built(RelativePositions(H, 6, 4, bidirectional))
    biases = np.array(layer(np.array([3, 9]), np.arange(12)))
    assert biases.shape == (1, H, 2, 12)
    table = layer.get_weights()[0]
    for row, query in enumerate((3, 9)):
        for key in range(12):
            chosen = table[bucket(key - query, 6, 4, bidirectional)]
            np.testing.assert_array_equal(biases[0, :, row, key], chosen)


def test_relative_positions_are_saved():
    layer = RelativePositions(H, 6, 4, False, dtype="mixed_float16")
    copy = assert_config_makes_the_same(layer)
    biases = built(copy)(np.zeros(1, "int32"), np.zeros(1, "int32"))
    assert keras.backend.standardize_dtype(biases.dtype) == "float32"


def test_cache_has_keys_by_position():
    assert np.array(key_positions(8, 2)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert np.array(key_positions(9, 3, prefix=3)).tolist() == [0, 1, 2, 3, 3, 3, 4, 4, 4]


@pytest.mark.parametrize("relative", [RELATIVE, BY_LAYER])
def test_biases_are_added_to_scores(relative):
    """The weights of attention, against float64."""
    layer = built(Encoder(OPTIONS, 1, relative=relative))
    x = inputs(B, S, D)
    hidden = np.array(padding_mask(np.array([[5] * S, [5, 5, 5, 5, 0, 0, 0]])), "float64")
    attention = layer.layers[0].attention
    heads = attention.project_self(layer.layers[0].attention_residual.enter(x))
    query, key = (np.array(part, "float64") for part in (heads[0], heads[1].key))
    table = layer.relative_positions[0].get_weights()[0].astype("float64")
    bias = [[table[bucket(k - q, 6, 4, True)] for k in range(S)] for q in range(S)]
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D / H) + np.transpose(bias, (2, 0, 1)) + hidden
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = powers / powers.sum(-1, keepdims=True)
    actual = layer(x, attention_mask=hidden.astype("float32")).weights[0]
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_boolean_masks_get_biases():
    layer = built(Encoder(OPTIONS, 2, relative=RELATIVE))
    x = inputs(B, S, D)
    visible = np.array([[True] * S, [True] * 4 + [False] * 3])[:, None, None]
    expected = layer(x, attention_mask=np.where(visible, 0, HIDDEN).astype("float32")).output
    np.testing.assert_allclose(layer(x, attention_mask=visible).output, expected, atol=1e-6)


def test_each_layer_can_have_a_table():
    shapes = [
        {w.path.partition("/")[2]: tuple(w.shape) for w in built(stack).weights if "rel" in w.path}
        for stack in (
            Encoder(OPTIONS, 2, relative=RELATIVE),
            Decoder(OPTIONS, 2, relative=BY_LAYER),
            Encoder(OPTIONS, 2),
        )
    ]
    assert shapes == [
        {"relative_positions/table": (6, H)},
        {f"relative_positions_{i}/table": (6, H) for i in range(2)},
        {},
    ]


@pytest.mark.parametrize("relative", [RELATIVE, BY_LAYER])
def test_relative_steps_equal_full_pass(relative):
    decoder = built(Decoder(OPTIONS, 2, relative=relative))
    x, encoded = inputs(B, T, D), inputs(B, S, D, seed=2)
    full = np.array(decoder(x, encoded, attention_mask=causal_mask(T)).output)
    cache, memory = decoder.empty_cache(B), decoder.project_memory(encoded)
    for t in range(T):
        positions = (np.array([t]), key_positions(t + 1, 1))
        output, cache, _ = decoder.step(x[:, t : t + 1], cache, memory, positions=positions)
        np.testing.assert_allclose(output[:, 0], full[:, t], atol=1e-5)


def test_relative_beams_see_their_past():
    decoder, beams = built(Decoder(OPTIONS, 2, relative=RELATIVE)), 3
    x, encoded = inputs(B, beams, D), inputs(B, S, D, seed=2)
    memory, lineage, cache = decoder.project_memory(encoded), np.zeros((1, 1, beams, 0)), None
    for t in range(T):
        lineage = np.concatenate([lineage, np.array(beam_mask(beams))], axis=3).astype("float32")
        positions = (np.array([t]), key_positions((t + 1) * beams, beams))
        cache = decoder.empty_cache(B) if cache is None else cache
        output, cache, _ = decoder.step(x + t, cache, memory, lineage, positions=positions)
    for beam in range(beams):
        alone = np.stack([x[:, beam] + t for t in range(T)], axis=1)
        expected = decoder(alone, encoded, attention_mask=causal_mask(T)).output[:, -1]
        np.testing.assert_allclose(output[:, beam], expected, atol=1e-5)


def test_relative_encoder_contract():
    options = OPTIONS.replace(norm_type="rms", ff_gated=True, ff_bias=False)
    norms = {f"layer_0/{name}/norm/gamma": (D,) for name in ("attention_residual", "ff_residual")}
    weights = {
        **{f"layer_0/attention/{role}": (H, D, D // H) for role in ("query", "key", "value")},
        "layer_0/attention/output": (D, D),
        **norms,
        "layer_0/feed_forward/inner/kernel": (D, 5),
        "layer_0/feed_forward/linear/kernel": (D, 5),
        "layer_0/feed_forward/outer/kernel": (5, D),
        "relative_positions/table": (6, H),
        "final_norm/gamma": (D,),
    }
    run_layer_test(
        Encoder,
        {"options": options, "num_layers": 1, "final_norm": True, "relative": RELATIVE},
        {"x": inputs(B, S, D)},
        (B, S, D),
        weights,
    )
