import numpy as np
import pytest
from layer_contract import run_layer_test
from stack_weights import CONFIG, CROSS, D, layer_weights, stack_weights

from tfk_transformer.layers.decoder import Decoder, DecoderLayer
from tfk_transformer.layers.encoder import Encoder, EncoderLayer
from tfk_transformer.layers.masks import beam_mask, causal_mask, padding_mask

B, T, S = 2, 3, 5


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def built(layer):
    layer.build((None, None, D))
    return layer


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_layer_formula(norm):
    layer = built(EncoderLayer(CONFIG.replace(norm=norm)))
    x, mask = inputs(B, S, D), padding_mask(np.array([[5, 5, 5, 5, 5], [5, 5, 5, 0, 0]]))
    first, second = layer.attention_residual.layer_norm, layer.ff_residual.layer_norm
    if norm == "pre":
        y = x + layer.attention(first(x), attention_mask=mask).output
        expected = y + layer.feed_forward(second(y))
    else:
        y = first(x + layer.attention(x, attention_mask=mask).output)
        expected = second(y + layer.feed_forward(y))
    np.testing.assert_allclose(layer(x, attention_mask=mask).output, expected, atol=1e-6)


def test_encoder_output_is_normalized():
    def is_normal(norm, final_norm=None):
        output = np.array(
            built(Encoder(CONFIG.replace(norm=norm), 2, final_norm))(inputs(B, S, D)).output
        )
        return np.allclose(output.mean(-1), 0, atol=1e-5) and np.allclose(
            output.std(-1), 1, atol=1e-2
        )

    assert is_normal("pre")
    assert is_normal("post")
    assert not is_normal("pre", final_norm=False)


@pytest.mark.parametrize(
    ("norm", "final_norm"),
    [("pre", None), ("pre", False), ("post", None), ("post_dropout", None), ("post", True)],
)
def test_final_norm_is_optional(norm, final_norm):
    has_one = norm == "pre" if final_norm is None else final_norm
    for stack in (Encoder, Decoder):
        weights = built(stack(CONFIG.replace(norm=norm), 2, final_norm)).weights
        assert ("final_norm" in {w.path.split("/")[-2] for w in weights}) == has_one


def test_decoder_can_stand_alone():
    decoder = built(Decoder(CONFIG, 3, cross_attention=False))
    assert not any("cross" in w.path for w in decoder.weights)
    x = inputs(B, T, D)
    full = decoder(x, attention_mask=causal_mask(T))
    assert full.cross_weights == [()] * 3
    cache, memory = decoder.empty_cache(B), decoder.project_memory(None)
    for t in range(T):
        output, cache, _ = decoder.step(x[:, t : t + 1], cache, memory)
        np.testing.assert_allclose(output[:, 0], full.output[:, t], atol=1e-5)


def test_stacks_return_attention():
    encoded = built(Encoder(CONFIG, CONFIG.encoder_layers))(inputs(B, S, D))
    assert [tuple(w.shape) for w in encoded.weights] == [(B, 11, S, S)] * 2
    decoded = built(Decoder(CONFIG, CONFIG.decoder_layers))(
        inputs(B, T, D), encoded.output, attention_mask=causal_mask(T)
    )
    assert [tuple(w.shape) for w in decoded.self_weights] == [(B, 11, T, T)] * 3
    assert [tuple(w.shape) for w in decoded.cross_weights] == [(B, 11, T, S)] * 3
    np.testing.assert_array_equal(np.triu(decoded.self_weights[0][0, 0], 1), 0.0)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_steps_equal_full_pass(norm):
    decoder = built(Decoder(CONFIG.replace(norm=norm), CONFIG.decoder_layers))
    x, encoded = inputs(B, T, D), inputs(B, S, D, seed=2)
    mask = padding_mask(np.array([[5, 5, 5, 5, 0], [5, 5, 0, 0, 0]]))
    decoded = decoder(x, encoded, attention_mask=causal_mask(T), cross_attention_mask=mask)
    full, full_weights = np.array(decoded.output), decoded.cross_weights
    cache, memory = decoder.empty_cache(B), decoder.project_memory(encoded)
    for t in range(T):
        output, cache, cross_weights = decoder.step(
            x[:, t : t + 1], cache, memory, cross_attention_mask=mask
        )
        np.testing.assert_allclose(cross_weights[2][:, :, 0], full_weights[2][:, :, t], atol=1e-5)
        np.testing.assert_allclose(output[:, 0], full[:, t], atol=1e-5)
    assert tuple(cache[0].key.shape) == (B, 11, T, 13)
    assert tuple(cache[0].value.shape) == (B, 11, T, 17)


def test_beams_see_only_their_past():
    decoder, beams = built(Decoder(CONFIG, CONFIG.decoder_layers)), 3
    x, encoded = inputs(B, beams, D), inputs(B, S, D, seed=2)
    memory, own = decoder.project_memory(encoded), beam_mask(beams)
    first = decoder.step(x, decoder.empty_cache(B), memory, own)
    # In the second step the beams have changed places: each goes on from another's past.
    parents = np.array([2, 0, 2])
    lineage = np.concatenate([np.array(own)[:, :, parents], own], axis=3)
    second = np.array(decoder.step(x + 1, first.cache, memory, lineage).output)
    for beam in range(beams):
        alone = decoder.step(x[:, beam : beam + 1], decoder.empty_cache(B), memory)
        np.testing.assert_allclose(first.output[:, beam : beam + 1], alone.output, atol=1e-5)
        past = decoder.step(
            x[:, parents[beam] : parents[beam] + 1], decoder.empty_cache(B), memory
        ).cache
        np.testing.assert_allclose(
            second[:, beam : beam + 1],
            decoder.step(x[:, beam : beam + 1] + 1, past, memory).output,
            atol=1e-5,
        )


@pytest.mark.parametrize(
    ("layer_class", "arguments", "weights", "more"),
    [
        (EncoderLayer, {}, layer_weights("attention"), {}),
        (Encoder, {"num_layers": 2, "final_norm": True}, stack_weights(2, "attention"), {}),
        (DecoderLayer, {"cross_attention": False}, layer_weights("self_attention"), {}),
        (
            Decoder,
            {"num_layers": 1, "final_norm": True},
            stack_weights(1, *CROSS),
            {"encoded": inputs(B, S, D, seed=2)},
        ),
    ],
    ids=["encoder layer", "encoder", "decoder layer", "decoder"],
)
def test_stack_and_layer_contract(layer_class, arguments, weights, more):
    masks = {"attention_mask": np.tril(np.ones((B, T, T), bool))}
    if more:
        masks["cross_attention_mask"] = inputs(B, T, S, seed=5) > 0
    options = CONFIG.layer_options(attention_bias=["query"], norm="post")
    run_layer_test(
        layer_class,
        {"options": options, **arguments},
        {"x": inputs(B, T, D), **more},
        (B, T, D),
        weights,
        masks,
    )


def test_layer_keeps_layer_options():
    assert EncoderLayer(CONFIG.replace(norm="post")).options == CONFIG.layer_options(norm="post")
