"""`model.export(path, format="litert")` of Keras, run by the interpreter of LiteRT."""

import functools
import inspect

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

SIZES = {"model_dim": 10, "num_heads": 2, "ff_dim": 13, "dropout": 0.0, "max_length": 19}
CONFIG = TransformerConfig(
    source_vocab_size=29, target_vocab_size=31, encoder_layers=1, decoder_layers=1, **SIZES
)
SOURCE = np.array([[4, 5, 2], [6, 2, 0]], "int32")
TARGET = np.array([[1, 6, 7, 8, 9], [1, 9, 3, 0, 0]], "int32")
PAIR = {"source": SOURCE, "target": TARGET}
LONG = pytest.mark.long  # converts a model

# The interpreter of TensorFlow says in each version that another package replaces it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated"),
    pytest.mark.skipif(
        "litert" not in inspect.getsource(keras.Model.export), reason="Keras has no LiteRT export"
    ),
]


@pytest.mark.parametrize(
    ("config", "inputs"),
    [
        pytest.param(CONFIG, PAIR, id="Transformer", marks=LONG),
        pytest.param(
            CONFIG.replace(positions="relative", decoder_mixer="ssru"),
            PAIR,
            id="relative and SSRU",
            marks=LONG,
        ),
        pytest.param(
            CONFIG.replace(source_prefix=(5,), target_prefix=(6,), source_suffix=(3,)),
            PAIR,
            id="prefixes",
            marks=LONG,
        ),
        pytest.param(
            LanguageModelConfig(vocab_size=31, decoder_layers=1, **SIZES),
            TARGET,
            id="LanguageModel",
            marks=LONG,
        ),
        pytest.param(
            ClassifierConfig(vocab_size=29, num_classes=3, encoder_layers=1, **SIZES),
            SOURCE,
            id="EncoderClassifier",
        ),
    ],
)
def test_interpreter_gives_the_logits(config, inputs, tmp_path):
    model = make_model(config)
    path = str(tmp_path / "model.tflite")
    model.export(path, format="litert", verbose=False)
    interpreter = tf.lite.Interpreter(path)
    assert not [op for op in interpreter._get_ops_details() if "Flex" in op["op_name"]]
    for repeats in (1, 3):  # lengths are free
        tile = functools.partial(np.tile, reps=(1, repeats))
        arrays = keras.tree.map_structure(tile, inputs)
        for detail in interpreter.get_input_details():
            ids = arrays if config.architecture != "encoder_decoder" else arrays[name_of(detail)]
            interpreter.resize_tensor_input(detail["index"], ids.shape)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            ids = arrays if config.architecture != "encoder_decoder" else arrays[name_of(detail)]
            interpreter.set_tensor(detail["index"], ids)
        interpreter.invoke()
        logits = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        np.testing.assert_allclose(logits, model(arrays), atol=1e-5)


def name_of(detail):
    return "source" if "source" in detail["name"] else "target"
