"""Keras's own ways to export, build and clone the models."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfk_transformer.config.model_options import (
    ClassifierConfig,
    LanguageModelConfig,
    TransformerConfig,
)
from tfk_transformer.models.registry import make_model
from tfk_transformer.models.transformer import Transformer

SIZES = {"model_dim": 8, "num_heads": 2, "ff_dim": 11, "dropout": 0.0, "max_length": 13}
CONFIG = TransformerConfig(
    source_vocab_size=29, target_vocab_size=31, encoder_layers=1, decoder_layers=1, **SIZES
)
LANGUAGE_MODEL = LanguageModelConfig(vocab_size=29, decoder_layers=1, **SIZES)
CLASSIFIER = ClassifierConfig(vocab_size=29, num_classes=3, encoder_layers=1, **SIZES)
INPUTS = {"source": np.array([[4, 5, 0]], "int32"), "target": np.array([[1, 6, 7, 8]], "int32")}
SIGNATURE = [{name: tf.TensorSpec((None, None), tf.int32, name=name) for name in INPUTS}]


def called():
    model = Transformer(CONFIG)
    model(INPUTS)
    return model


def functional():
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS}
    return keras.Model(inputs, Transformer(CONFIG)(inputs))


@pytest.mark.parametrize(
    ("make", "signature"),
    [
        (called, None),
        (functional, None),
        # Each traces and saves a model.
        pytest.param(called, SIGNATURE, marks=pytest.mark.long),
        pytest.param(lambda: make_model(CONFIG), None, marks=pytest.mark.long),
    ],
    ids=["called", "functional", "with a signature", "built"],
)
def test_model_export_traces_integers(make, signature, tmp_path):
    model = make()
    model.export(tmp_path / "model", input_signature=signature, verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.serve(INPUTS), model(INPUTS), atol=1e-5)
    longer = {name: np.tile(array, (2, 3)) for name, array in INPUTS.items()}
    np.testing.assert_allclose(loaded.serve(longer), model(longer), atol=1e-5)


@pytest.mark.parametrize("config", [LANGUAGE_MODEL, CLASSIFIER], ids=["decoder", "encoder"])
def test_single_input_export(config, tmp_path):
    model = make_model(config)
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")
    ids = INPUTS["target"]
    np.testing.assert_allclose(loaded.serve(ids), model(ids), atol=1e-5)


# Each traces and saves a model.
@pytest.mark.parametrize(
    "make", [called, pytest.param(lambda: make_model(CONFIG), marks=pytest.mark.long)]
)
def test_saved_model_has_integer_signature(make, tmp_path):
    tf.saved_model.save(make(), str(tmp_path / "model"))
    signature = tf.saved_model.load(tmp_path / "model").signatures["serving_default"]
    specs = signature.structured_input_signature[1].values()
    assert [(spec.dtype, spec.shape.rank) for spec in specs] == [(tf.int32, 2)] * 2


def test_float_ids_are_still_refused():
    with pytest.raises(ValueError, match="^source: expected integer ids, got float32; "):
        called()({**INPUTS, "source": INPUTS["source"].astype("float32")})


@pytest.mark.parametrize("config", [CONFIG, LANGUAGE_MODEL, CLASSIFIER])
def test_build_again_changes_nothing(config):
    model = make_model(config)
    weights = [weight.path for weight in model.weights]
    names = list(model.named_weights)
    model.build()
    model.summary(print_fn=lambda line, line_break=False: None)
    assert [weight.path for weight in model.weights] == weights
    assert list(model.named_weights) == names


def test_build_after_a_call():
    model = called()
    expected = np.array(model(INPUTS))
    model.build()
    np.testing.assert_array_equal(model(INPUTS), expected)


@pytest.mark.parametrize("make", [called, lambda: Transformer(CONFIG), lambda: make_model(CONFIG)])
def test_clone_can_be_built(make):
    model = make()
    clone = keras.models.clone_model(model)
    clone.build()
    model.build()
    assert [w.shape for w in clone.weights] == [w.shape for w in model.weights]
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(INPUTS), model(INPUTS))
