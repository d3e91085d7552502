"""Whether a class makes a model again, and Keras's own files of models with quantized layers."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from xla_flags import FAST_COMPILATION

from tfk_transformer.config.model_options import (
    ClassifierConfig,
    LanguageModelConfig,
    TransformerConfig,
)
from tfk_transformer.models.ensemble import Ensemble
from tfk_transformer.models.registry import make_model
from tfk_transformer.models.reproduction import difference_from
from tfk_transformer.models.transformer import Transformer

SIZES = {"model_dim": 6, "num_heads": 2, "ff_dim": 11, "max_length": 13, "dropout": 0.1}
SIDES = {"source_vocab_size": 29, "target_vocab_size": 31}
CONFIG = TransformerConfig(**SIDES, encoder_layers=2, decoder_layers=1, **SIZES)
OPTIONS = {
    "plain": {},
    "ssru": {"decoder_mixer": "ssru"},
    "relative": {"positions": "relative", "max_length": 47},
    "learned": {"positions": "learned", "max_length": 2},
    "prefixes": {"source_prefix": (4, 5), "target_prefix": (6,), "source_suffix": (2,)},
    "tied": {"tie_embeddings": "target", "output": "probabilities", "source_end": False},
}
LONG = [*((name, "float32") for name in ("learned", "prefixes", "tied")), ("plain", "float16")]
INPUTS = {"source": np.array([[4, 5, 0]], "int32"), "target": np.array([[1, 6, 7, 8]], "int32")}


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        *((name, "float32") for name in ("plain", "ssru", "relative")),
        ("plain", "mixed_bfloat16"),
        # Each makes three models.
        *(pytest.param(*case, marks=pytest.mark.long) for case in LONG),
    ],
)
def test_library_models_do_not_differ(options, dtype):
    model = make_model(CONFIG.replace(**OPTIONS[options]), dtype=dtype)
    assert difference_from(model) is None
    assert difference_from(model, Transformer, model.get_config()) is None


@pytest.mark.parametrize(
    "config",
    [
        LanguageModelConfig(vocab_size=29, decoder_layers=1, **SIZES),
        ClassifierConfig(vocab_size=29, num_classes=3, encoder_layers=1, **SIZES),
    ],
)
def test_other_library_models_do_not_differ(config):
    assert difference_from(make_model(config)) is None


BACKEND_PROGRAM = """
import keras
from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.models.reproduction import difference_from
from tfk_transformer.models.transformer import Transformer

class Doubled(Transformer):
    def logits(self, decoded):
        return 2 * super().logits(decoded)

sizes = {"model_dim": 6, "num_heads": 2, "ff_dim": 11, "max_length": 13}
config = TransformerConfig(
    source_vocab_size=29, target_vocab_size=31, encoder_layers=1, decoder_layers=1, **sizes
)
model = Doubled(config)
print(keras.backend.backend(), difference_from(Transformer(config)), difference_from(model))
print(difference_from(model, Doubled, model.get_config()))
"""


@pytest.mark.long  # a process each, which imports another backend
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_other_backends(backend):
    pytest.importorskip(backend)
    flags = {"KERAS_BACKEND": backend, "XLA_FLAGS": FAST_COMPILATION}
    environment = {**os.environ, **flags}
    done = subprocess.run(
        [sys.executable, "-c", BACKEND_PROGRAM], capture_output=True, text=True, env=environment
    )
    assert done.stdout.splitlines() == [
        f"{backend} None its outputs differ",
        "None",
    ], done.stderr


def enable_lora(model):
    for layer, role in (
        (model.decoder.layers[0].feed_forward.inner, "kernel"),
        (model.target_embedding, "embeddings"),
    ):
        layer.enable_lora(2)
        weight = getattr(layer, f"lora_{role}_b")
        weight.assign(np.random.default_rng(7).normal(size=weight.shape))


def quantize(mode):
    def change(model):
        for layer in model.encoder.layers:
            layer.feed_forward.inner.quantize(mode)

    return change


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        # Each model is saved and loaded twice.
        pytest.param(enable_lora, None, marks=pytest.mark.long),
        (quantize("int8"), None),
        pytest.param(
            quantize("int4"),
            "its layer 'encoder/layer_1/feed_forward/inner' is quantized to int4, ",
            marks=pytest.mark.long,
        ),
    ],
)
def test_keras_files_of_changed_layers(change, difference, tmp_path):
    """And a loaded model can be saved again."""
    model = make_model(CONFIG)
    change(model)
    expected = np.array(model(INPUTS))
    for name in ("first.keras", "second.keras"):
        model.save(tmp_path / name)
        model = keras.saving.load_model(tmp_path / name)
        np.testing.assert_allclose(model(INPUTS), expected, atol=1e-6)
    actual = difference_from(model)
    assert actual is None if difference is None else actual.startswith(difference)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_config_has_a_single_policy(dtype):
    policy = make_model(CONFIG, dtype=dtype).get_config()["dtype"]
    assert (policy["class_name"], policy["config"]) == ("DTypePolicy", {"name": dtype})


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_model(CONFIG.replace(positions="relative_by_layer")),
        pytest.param(
            lambda: Ensemble([Transformer(CONFIG), Transformer(CONFIG.replace(decoder_layers=2))]),
            marks=pytest.mark.long,  # makes four models
        ),
    ],
    ids=["model", "ensemble"],
)
def test_checkpoints_of_tensorflow_have_all_weights(make, tmp_path):
    model, other = make(), make()
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    names = [name for name, _ in tf.train.list_variables(path)]
    assert len(names) == len(model.weights) + 1  # with the graph of the objects
    status = tf.train.Checkpoint(model=other).read(path)
    status.assert_consumed()
    np.testing.assert_array_equal(other(INPUTS), model(INPUTS))
