import itertools

import keras
import numpy as np
import pytest
from keras import ops
from t5_layers import T5_LAYERS

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import Perplexity, TokenAccuracy
from tfk_transformer.models.token_model import Beams
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.schedules import InverseSquareRoot

B, S, T, STEPS, D = 2, 5, 7, 4, 22
SMALL = {
    "model_dim": D,
    "ff_dim": 37,
    "num_heads": 11,
    "key_dim": 13,
    "value_dim": 17,
    "encoder_layers": 2,
    "decoder_layers": 2,
}
OPTIONS = [
    {},
    {"norm": "post", "attention_bias": True},
    {"positions": "learned", "tie_embeddings": "target"},
    {
        "positions": "sinusoidal_halves",
        "tie_embeddings": "all",
        "target_vocab_size": 29,
        "output_bias": True,
    },
    {"keys_are_values": True, "key_dim": 17, "norm": "post_dropout", "scale_embeddings": False},
    {
        "positions": "sinusoidal_paper_halves",
        "norm": "post",
        "norm_epsilon": 1e-5,
        "ff_activation": "silu",
    },
    {
        "shared_projections": True,
        "attention_bias": ["output"],
        "attention_scale": "key_dim",
        "decoder_final_norm": False,
    },
    {
        "positions": "sinusoidal_halves",
        "position_offset": 2,
        "source_prefix": (23,),
        "target_prefix": (2,),
        "decoder_layers": 1,
    },
    {
        "positions": "learned",
        "embedding_norm": True,
        "source_prefix": (7, 5),
        "target_prefix": (2, 11, 5),
    },
    {"positions": "learned", "source_prefix": (9,), "source_suffix": (7, 5)},
    {"decoder_mixer": "ssru", "source_prefix": (7, 5)},
    {**T5_LAYERS, "source_prefix": (7, 5), "target_prefix": (9, 11, 3)},
    {"positions": "relative_by_layer", "decoder_ff_dim": 5, "ff_activation": "gelu_sigmoid"},
    {"positions": "relative", "decoder_mixer": "ssru", "position_buckets": 4},
]


def built(dtype="float32", **options):
    keras.utils.set_random_seed(0)
    model = Transformer(
        TransformerConfig(
            **{
                "source_vocab_size": 29,
                "target_vocab_size": 31,
                "max_length": 19,
                **SMALL,
                **options,
            }
        ),
        dtype=dtype,
    )
    model.build()
    return model


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(4, 29, shape).astype("int32")


def source_with_padding():
    source = ids(B, S)
    source[1, 3:] = 0
    return source


@pytest.fixture(scope="module", params=OPTIONS)
def model(request):
    """A model of each kind, which tests only call."""
    return built(**request.param)


def test_cached_steps_equal_full_pass(model):
    source, target = source_with_padding(), ids(B, STEPS, seed=1)
    full = np.array(model({"source": source, "target": target}))
    assert full.shape == (B, STEPS, model.config.target_vocab_size)
    # (B, STEPS, S)
    maps = np.mean(model.attention_maps({"source": source, "target": target}).cross[-1], axis=1)
    memory, cache = model.remember(source), model.decoder.empty_cache(B)
    for t in range(STEPS):
        logits, cache, attention = model.step(target[:, t : t + 1], t, cache, memory)
        np.testing.assert_allclose(attention[:, 0], maps[:, t], atol=1e-5)
        np.testing.assert_allclose(logits[:, 0], full[:, t], atol=1e-5)


def test_prefix_steps_equal_full_pass(model):
    source, target, beams = source_with_padding(), ids(3 * B, STEPS, seed=1), 3
    rows = np.repeat(source, beams, axis=0)
    full = np.array(model({"source": rows, "target": target})).reshape(B, beams, STEPS, -1)
    step, first_cache, memory = model.start_search(source, use_cache=False)
    hypotheses = target.reshape(B, beams, STEPS)
    for t in range(STEPS):
        beam_state = Beams(hypotheses[:, :, : t + 1], hypotheses[:, :, t], t, None)
        logits, _, attention = step(beam_state, first_cache(B), memory)
        assert tuple(attention.shape) == (B, beams, S)
        np.testing.assert_allclose(logits, full[:, :, t], atol=1e-5)


def test_padding_changes_no_logit(model):
    source, target = source_with_padding(), ids(B, T, seed=1)
    plain = np.array(model({"source": source, "target": target}))
    padded = model(
        {"source": np.pad(source, [(0, 0), (0, 6)]), "target": np.pad(target, [(0, 0), (0, 4)])}
    )
    np.testing.assert_allclose(padded[:, :T], plain, atol=1e-5)


@pytest.mark.parametrize("prefix", [(), (9, 11)])
def test_suffix_follows_the_end_token(prefix):
    """The model reads what one without a suffix reads from the same tokens in the source."""
    written = source_with_padding()
    written = np.pad(written, [(0, 0), (0, 2)])
    for row in written:
        end = np.count_nonzero(row)
        row[end : end + 2] = (7, 5)
    plain = built(source_prefix=prefix)
    model = built(source_prefix=prefix, source_suffix=(7, 5))
    model.set_weights(plain.get_weights())
    target = ids(B, T, seed=1)
    expected = np.array(plain({"source": written, "target": target}))
    actual = np.array(model({"source": source_with_padding(), "target": target}))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_padding_rows_affect_no_other():
    model, source, target = built(), source_with_padding(), ids(B, T, seed=1)
    plain = np.array(model({"source": source, "target": target}))
    more = np.array(
        model(
            {"source": np.pad(source, [(0, 3), (0, 0)]), "target": np.pad(target, [(0, 3), (0, 0)])}
        )
    )
    np.testing.assert_allclose(more[:B], plain, atol=1e-5)
    assert np.isfinite(more).all()


def test_future_changes_no_past_logit():
    model, source, target = built(), source_with_padding(), ids(B, T, seed=1)
    plain = np.array(model({"source": source, "target": target}))
    target[:, 4] = (target[:, 4] + 1) % 29
    changed = np.array(model({"source": source, "target": target}))
    np.testing.assert_allclose(changed[:, :4], plain[:, :4], atol=1e-6)
    assert np.abs(changed[:, 4:] - plain[:, 4:]).max(axis=(0, 2)).min() > 1e-4


def test_attention_maps_hide_padding():
    maps = built().attention_maps({"source": source_with_padding(), "target": ids(B, T)})
    assert [len(part) for part in maps] == [2, 2, 2]
    assert [tuple(part[0].shape) for part in maps] == [(B, 11, S, S), (B, 11, T, T), (B, 11, T, S)]
    np.testing.assert_array_equal(np.array(maps.cross[1])[1, :, :, 3:], 0.0)
    for layer in itertools.chain(*maps):
        np.testing.assert_allclose(np.sum(layer, axis=-1), 1.0, atol=1e-5)


@pytest.mark.parametrize(("tie", "tables"), [("none", 3), ("inputs", 2), ("target", 2), ("all", 1)])
def test_tied_tables_are_one_weight(tie, tables):
    model = built(tie_embeddings=tie, target_vocab_size=29)
    assert sum(29 in weight.shape for weight in model.weights) == tables


def test_base_preset_parameter_count():
    # Table 3 says 65 million, for one vocabulary of about 37,000 shared by all embeddings.
    config = TransformerConfig.preset(
        "base", source_vocab_size=37000, target_vocab_size=37000, tie_embeddings="all", norm="post"
    )
    model = Transformer(config)
    model.build()
    layers = 6 * (4 * 512 * 512 + 2 * 512 * 2048 + 512 + 2048 + 4 * 512) + 6 * (
        8 * 512 * 512 + 2 * 512 * 2048 + 512 + 2048 + 6 * 512
    )
    assert model.count_params() == 37000 * 512 + layers
    assert model.count_params() / 1e6 == pytest.approx(65, abs=3)


def test_probabilities_are_a_softmax():
    inputs = {"source": source_with_padding(), "target": ids(B, T)}
    logits, probabilities = built()(inputs), built(output="probabilities")(inputs)
    np.testing.assert_allclose(probabilities, ops.softmax(logits), atol=1e-6)


def test_mask_can_replace_padding():
    model, source, target = built(), ids(B, S), ids(B, T, seed=1)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    hidden = np.array(model({"source": source, "target": target, "source_mask": mask}))
    padded = np.where(mask, source, 0)
    np.testing.assert_allclose(hidden, model({"source": padded, "target": target}), atol=1e-5)
    assert np.abs(hidden - np.array(model({"source": source, "target": target})))[1].max() > 1e-3
    with pytest.raises(
        ValueError,
        match=(
            "inputs: expected source, target, source_mask, got 'sourcemask'. Did you mean "
            "'source_mask'?"
        ),
    ):
        model({"source": source, "target": target, "sourcemask": mask})


def test_attention_dropout_per_stack():
    model = built(attention_dropout=0.3, decoder_attention_dropout=0.0, dropout=0.0)
    assert model.encoder.layers[0].attention.dropout == 0.3
    assert (
        model.decoder.layers[0].self_attention.dropout
        == model.decoder.layers[1].cross_attention.dropout
        == 0.0
    )


def test_weights_load_by_name():
    model, inputs = built(norm="post"), {"source": source_with_padding(), "target": ids(B, T)}
    arrays = {name: np.array(weight) for name, weight in model.named_weights.items()}
    assert arrays["encoder/layer_0/attention/query"].shape == (11, D, 13)
    other = Transformer.from_weights(arrays, model.config)
    np.testing.assert_array_equal(other(inputs), model(inputs))


def test_mismatched_weights_are_named():
    model = built()
    arrays = {name: np.array(weight) for name, weight in model.named_weights.items()}
    arrays["output/kernal"] = arrays.pop("output/kernel")
    arrays["decoder/layer_1/cross_attention/key"] = arrays[
        "decoder/layer_1/cross_attention/key"
    ].transpose(1, 0, 2)
    with pytest.raises(ValueError) as caught:
        Transformer.from_weights(arrays, model.config)
    assert str(caught.value) == (
        "weights: expected the 67 arrays of this configuration, got "
        "'decoder/layer_1/cross_attention/key' of shape (22, 11, 13) for "
        "(11, 22, 13); no 'output/kernel' (22, 31); an unexpected 'output/kernal' (22, 31). Did "
        "you mean 'output/kernel'?"
    )


def test_long_sequence_is_refused():
    model = built()
    with pytest.raises(ValueError, match="at most max_length=19 tokens, got 20"):
        model({"source": ids(B, 20), "target": ids(B, 3)})


# Each traces a training step in its own types; float16 scales its loss as well. In the short tests,
# the bundle of conftest.py learns, and training/test_callbacks.py trains in float16.
@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_fit_learns_to_copy(dtype):
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    model = built(dtype, source_vocab_size=11, target_vocab_size=11, dropout=0.0, **layers)
    model.compile(
        keras.optimizers.Adam(InverseSquareRoot(1e-2, 20)),
        LabelSmoothedCrossentropy(0.0),
        metrics=[TokenAccuracy(), Perplexity()],
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)  # otherwise the step is traced twice
    source = np.random.default_rng(0).integers(4, 11, (64, 3)).astype("int32")
    target = np.concatenate(
        [np.full((64, 1), 1, "int32"), source, np.full((64, 1), 2, "int32")], axis=1
    )
    history = model.fit(
        {"source": source, "target": target[:, :-1]},
        target[:, 1:],
        batch_size=32,
        epochs=40,
        verbose=0,
    ).history
    assert np.isfinite(history["loss"]).all()
    assert history["accuracy"][-1] > 0.9
    logits = model({"source": source, "target": target[:, :-1]})
    assert keras.backend.standardize_dtype(logits.dtype) == keras.DTypePolicy(dtype).compute_dtype


def test_saving_keeps_the_logits(tmp_path):
    model, inputs = (
        built(dropout=0.3, norm="post"),
        {"source": source_with_padding(), "target": ids(B, T)},
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded(inputs), model(inputs))


def test_weights_load_from_a_file(tmp_path):
    model, inputs = built(), {"source": source_with_padding(), "target": ids(B, T)}
    model.save_weights(tmp_path / "model.weights.h5")
    other = built()
    other.set_weights([weight + 1 for weight in other.get_weights()])
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other(inputs), model(inputs))


def test_symbolic_call_has_shape():
    spec = built()(
        {"source": keras.Input((S,), dtype="int32"), "target": keras.Input((T,), dtype="int32")}
    )
    assert spec.shape == (None, T, 31)


def test_gradients_reach_every_weight():
    import tensorflow as tf

    model = built(attention_bias=True, positions="learned")
    with tf.GradientTape() as tape:
        loss = ops.mean(
            ops.square(model({"source": ids(B, S), "target": ids(B, T)}, training=True))
        )
    gradients = tape.gradient(loss, [weight.value for weight in model.trainable_weights])
    silent = [
        w.path
        for w, g in zip(model.trainable_weights, gradients, strict=True)
        if g is None or not np.any(np.array(tf.convert_to_tensor(g)))
    ]
    # A softmax does not change when every key moves alike, so key biases have no gradient but
    # rounding.
    assert [path for path in silent if not path.endswith("key_bias")] == []
