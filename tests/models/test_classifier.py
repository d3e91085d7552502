import keras
import numpy as np
import pytest
from t5_layers import T5_LAYERS

from tfk_transformer.config.model_options import ClassifierConfig
from tfk_transformer.layers.masks import padding_mask
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.registry import config_from_json, make_model

# Each size is a prime of its own, or has one as its factor, so that swapped axes cannot pass.
B, S, D, F, H, K, V, C, VOCAB = 2, 5, 22, 37, 11, 13, 17, 3, 29
SIZES = {
    "model_dim": D,
    "ff_dim": F,
    "num_heads": H,
    "key_dim": K,
    "value_dim": V,
    "encoder_layers": 2,
}
OPTIONS = [
    {},
    {"norm": "post", "attention_bias": True},
    {"positions": "learned", "scale_embeddings": False},
    T5_LAYERS,
]


def built(dtype="float32", **options):
    keras.utils.set_random_seed(0)
    return make_model(
        ClassifierConfig(
            **{"vocab_size": VOCAB, "num_classes": C, "max_length": 19, **SIZES, **options}
        ),
        dtype=dtype,
    )


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(4, VOCAB, shape).astype("int32")


def with_padding():
    source = ids(B, S)
    source[1, 3:] = 0
    return source


@pytest.mark.parametrize("options", OPTIONS)
def test_padding_changes_no_logit(options):
    model, source = built(**options), with_padding()
    plain = np.array(model(source))
    assert plain.shape == (B, C)
    np.testing.assert_allclose(model(np.pad(source, [(0, 0), (0, 6)])), plain, atol=1e-5)
    np.testing.assert_allclose(model(source[1:, :3]), plain[1:], atol=1e-5)


def test_padding_rows_give_the_bias():
    model, source = built(), with_padding()
    model.head.bias.assign(np.arange(C, dtype="float32"))
    more = np.array(model(np.pad(source, [(0, 3), (0, 0)])))
    np.testing.assert_allclose(more[:B], model(source), atol=1e-5)
    np.testing.assert_array_equal(more[B:], [[0.0, 1.0, 2.0]] * 3)


def test_logits_project_the_mean():
    model, source = built(), with_padding()
    embedded = model.source_positions(model.source_embedding(source))
    encoded = np.array(
        model.encoder(embedded, attention_mask=padding_mask(source)).output, "float64"
    )
    means = np.stack([encoded[0].sum(axis=0) / S, encoded[1, :3].sum(axis=0) / 3])
    expected = means @ np.array(model.head.kernel) + np.array(model.head.bias)
    np.testing.assert_allclose(model(source), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
def test_mask_can_replace_padding(dtype):
    model, source = built(), ids(B, S)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype)
    hidden = np.array(model({"source": source, "source_mask": mask}))
    np.testing.assert_allclose(hidden, model(np.where(mask, source, 0)), atol=1e-5)
    assert np.abs(hidden - np.array(model(source)))[1].max() > 1e-3


def test_other_inputs_are_refused():
    model, source = built(), with_padding()
    with pytest.raises(
        ValueError,
        match="inputs: expected source, source_mask, got 'sourcemask'. Did you mean 'source_mask'?",
    ):
        model({"source": source, "sourcemask": source})
    with pytest.raises(ValueError, match="inputs: expected source, got none named source."):
        model({"source_mask": source})
    with pytest.raises(ValueError, match="at most max_length=19 tokens, got 20"):
        model(ids(B, 20))


def test_attention_maps_hide_padding():
    maps = built().attention_maps(with_padding())
    assert [tuple(layer.shape) for layer in maps] == [(B, H, S, S)] * 2
    for layer in maps:
        np.testing.assert_array_equal(np.array(layer)[1, :, :, 3:], 0.0)
        np.testing.assert_allclose(np.sum(layer, axis=-1), 1.0, atol=1e-5)


def test_symbolic_call_has_shape():
    assert built()(keras.Input((S,), dtype="int32")).shape == (None, C)


def rows_and_order(rows=256):
    """Rows of tokens, padded, and whether each begins with a larger token than it ends with: no bag
    of tokens knows.
    """
    random = np.random.default_rng(0)
    source, larger = np.zeros((rows, S), "int32"), np.zeros(rows, "int32")
    for row in range(rows):
        tokens = random.choice(np.arange(4, 11), size=random.integers(2, S + 1), replace=False)
        source[row, : len(tokens)], larger[row] = tokens, tokens[0] > tokens[-1]
    return source, larger


# A training each. training/test_classifier_training.py trains one in the short tests.
@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_fit_learns_token_order(dtype):
    model, (source, larger) = (
        built(dtype, num_classes=2, vocab_size=11, dropout=0.0, encoder_layers=1),
        rows_and_order(),
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(5e-3), loss, metrics=["accuracy"], jit_compile=False)
    model.optimizer.build(model.trainable_variables)  # otherwise the step is traced twice
    history = model.fit(source, larger, batch_size=64, epochs=40, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert history["accuracy"][-1] > 0.95
    assert (
        keras.backend.standardize_dtype(model(source).dtype)
        == keras.DTypePolicy(dtype).compute_dtype
    )


def test_saving_keeps_the_logits(tmp_path):
    model, source = built(dropout=0.3, norm="post"), with_padding()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded(source), model(source))


def test_config_makes_the_same_model():
    model = built("mixed_bfloat16", norm="post", attention_bias=["query"])
    made = EncoderClassifier.from_config(model.get_config())
    assert (made.config, made.dtype_policy.name) == (model.config, "mixed_bfloat16")
    assert config_from_json(model.config.to_json()) == model.config


def test_weights_load_by_name():
    model, source = built(), with_padding()
    arrays = {name: np.array(weight) for name, weight in model.named_weights.items()}
    assert arrays["head/kernel"].shape == (D, C)
    np.testing.assert_array_equal(
        EncoderClassifier.from_weights(arrays, model.config)(source), model(source)
    )


def test_presets_fit_a_classifier():
    config = ClassifierConfig.preset("base", vocab_size=VOCAB, num_classes=C)
    assert (config.model_dim, config.encoder_layers, config.num_heads) == (512, 6, 8)
    with pytest.raises(ValueError, match="num_classes: .*greater than 1, got 1"):
        ClassifierConfig(vocab_size=VOCAB, num_classes=1)
