"""The TensorFlow training step compiles under XLA as a whole, as `train` uses it on a GPU. Here XLA
compiles for the CPU.
"""

import re
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiers import with_long

from tfk_transformer.metrics import TokenAccuracy
from tfk_transformer.training.compilation import compiled_model
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.recipe import Recipe

# The targets serve as labels too, of which `fit` warns.
pytestmark = pytest.mark.filterwarnings("ignore:labels. expected")

WIDTHS = {"model_dim": 10, "ff_dim": 17, "num_heads": 2}
LAYERS = {
    "encoder_decoder": {"encoder_layers": 1, "decoder_layers": 1},
    "decoder": {"decoder_layers": 1},
    "encoder": {"encoder_layers": 1},
}
VOCAB_SIZE = 23


def make(architecture="encoder_decoder", dtype="float32", dropout=0.1, xla=True):
    """Return the model that `train` makes, with its metrics built, and a batch."""
    options = {**WIDTHS, **LAYERS[architecture]}
    training = {"dtype": dtype, "dropout": dropout, "learning_rate": 0.02, "warmup_steps": 2}
    recipe = Recipe(
        data="numbers:en-de", preset="tiny", architecture=architecture, options=options, **training
    )
    keras.utils.set_random_seed(3)
    tokenizer = SimpleNamespace(vocab_size=VOCAB_SIZE)
    model = compiled_model(recipe, (tokenizer, tokenizer), 100, Team())
    model.jit_compile = xla  # `train` sets it where there is a GPU
    return model, batch(architecture)


def batch(architecture):
    random = np.random.default_rng(5)
    source, target = (
        random.integers(3, VOCAB_SIZE, (7, length)).astype("int32") for length in (11, 13)
    )
    source[:, 9:] = target[:5, 8:] = 0
    inputs = {
        "encoder_decoder": {"source": source, "target": target},
        "decoder": target,
        "encoder": source,
    }
    return inputs[architecture], source[:, 0] if architecture == "encoder" else target


def hlo(model, inputs, labels):
    """Return the program that XLA gets for a training step."""
    model.compute_metrics(inputs, labels, model(inputs))  # makes the variables of the metrics
    step = tf.function(model.train_step, jit_compile=True)
    return step.experimental_get_compiler_ir(tf.nest.map_structure(tf.constant, (inputs, labels)))(
        stage="hlo"
    )


# XLA gets the program of a step each.
@pytest.mark.parametrize(
    "dtype", [pytest.param("float32", marks=pytest.mark.long), "mixed_bfloat16"]
)
@pytest.mark.parametrize(
    "architecture", with_long({name: name for name in LAYERS}, {"encoder", "decoder"})
)
def test_training_step_is_one_program(architecture, dtype):
    model, data = make(architecture, dtype)
    program = hlo(model, *data)
    products = re.findall(r"= (\w+)\[([\d,]*)\]\S* dot\(", program)
    # Sums that are written as products with a vector stay in float32.
    assert {kind for kind, shape in products if "1" not in shape.split(",")} == {
        "bf16" if dtype == "mixed_bfloat16" else "f32"
    }
    # Nothing is computed elsewhere.
    assert re.findall(r" (?:custom-call|infeed|outfeed|send|recv)\(.*", program) == []


# XLA compiles a step; test_training_step_is_one_program is the short case.
@pytest.mark.long
@pytest.mark.parametrize(
    ("architecture", "dtype", "tolerance"),
    [("decoder", "float32", 1e-4), ("encoder_decoder", "mixed_bfloat16", 2e-2)],
)
def test_fit_learns_the_same_under_xla(architecture, dtype, tolerance):
    logs = []
    for xla in (False, True):
        model, data = make(architecture, dtype, dropout=0.0, xla=xla)
        logs.append(
            model.fit(
                tf.data.Dataset.from_tensors(data), epochs=4, shuffle=False, verbose=0
            ).history
        )
    assert set(logs[0]) == {"loss", "accuracy", "perplexity"}
    assert logs[1]["loss"][-1] < logs[1]["loss"][0] - 0.3
    for name in ("loss", "perplexity"):
        np.testing.assert_allclose(logs[1][name], logs[0][name], rtol=tolerance)


class Python(TokenAccuracy):
    """A metric with an operation that XLA does not have."""

    def _values(self, y_true, y_pred):
        return tf.numpy_function(
            lambda values: values, [super()._values(y_true, y_pred)], tf.float32
        )


def test_unsupported_operation_fails():
    model, (inputs, labels) = make()
    model.compile(model.optimizer, model.loss, metrics=[Python()], jit_compile=True)
    with pytest.raises(ValueError, match="unsupported operations"):
        hlo(model, inputs, labels)
    with pytest.raises(tf.errors.InvalidArgumentError, match="unsupported operations"):
        model.fit(inputs, labels, batch_size=7, verbose=0)
