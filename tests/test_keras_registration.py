"""Classes are registered with Keras as soon as both packages are imported, in every order."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from forked_programs import run_program

# The names in files.
NAMES = [
    "Transformer",
    "Ensemble",
    "LanguageModel",
    "Classifier",
    "MultiHeadAttention",
    "Encoder",
    "EncoderLayer",
    "Decoder",
    "DecoderLayer",
]
NAMES += ["FeedForward", "Residual", "Positions", "Dropout", "LayerNorm", "VocabularyProjection"]
NAMES += [
    "LabelSmoothedCrossentropy",
    "TokenAccuracy",
    "Perplexity",
    "InverseSquareRoot",
    "Adam",
    "AdamW",
]


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own.

    Where it does not import TensorFlow itself, Keras has JAX, which is imported in half the time.
    """
    environment = dict(os.environ)
    if "tensorflow" not in code and importlib.util.find_spec("jax") is not None:
        environment["KERAS_BACKEND"] = "jax"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(
    "imports",
    [
        "import keras, tfk_transformer",
        "import tfk_transformer, keras",
        # Starts TensorFlow.
        pytest.param("import tfk_transformer, tensorflow, keras", marks=pytest.mark.long),
        # The import of Keras begins inside a module of the package, which is not complete yet.
        "from tfk_transformer import TokenAccuracy",
        "import tfk_transformer.losses; from tfk_transformer import Perplexity",
        "import tfk_transformer; from tfk_transformer.training.compilation import has_gpu",
    ],
)
def test_all_classes_are_registered(imports):
    code = (
        f"{imports}\nimport keras\nprint([n for n in {NAMES} if not "
        "keras.saving.get_registered_object('tfk_transformer>' + n)])"
    )
    done = run(code)
    assert done.stdout == "[]\n", done.stderr


def test_find_spec_defers_registration():
    code = """
import importlib.util, sys, tfk_transformer
spec = importlib.util.find_spec("keras")
assert spec is not None and "keras" not in sys.modules
import keras
print(keras.saving.get_registered_object("tfk_transformer>Transformer").__name__)
"""
    assert run(code).stdout == "Transformer\n"


def test_keras_imports_without_pydantic():
    code = """
import sys
sys.modules["pydantic"] = None
import tfk_transformer, keras
print(keras.saving.get_registered_object("tfk_transformer>Transformer"))
try:
    tfk_transformer.Transformer
except ImportError as error:
    print(type(error).__name__)
"""
    assert run(code).stdout == "None\nModuleNotFoundError\n"


def test_loaded_model_trains_on(tmp_path):
    from tfk_transformer import Transformer, TransformerConfig
    from tfk_transformer.losses import LabelSmoothedCrossentropy
    from tfk_transformer.metrics import Perplexity, TokenAccuracy
    from tfk_transformer.optimizers import Adam
    from tfk_transformer.schedules import InverseSquareRoot

    sizes = {
        "model_dim": 10,
        "num_heads": 2,
        "ff_dim": 13,
        "encoder_layers": 1,
        "decoder_layers": 1,
    }
    config = TransformerConfig(
        source_vocab_size=23, target_vocab_size=29, max_length=11, dropout=0.0, **sizes
    )
    # The same weights in every run, and no dropout: the loss falls from one epoch to the next.
    keras.utils.set_random_seed(0)
    model = Transformer(config)
    metrics = [TokenAccuracy(), Perplexity()]
    adam = Adam(InverseSquareRoot(1e-2, 3))
    model.compile(adam, LabelSmoothedCrossentropy(0.1), metrics=metrics, jit_compile=False)
    random = np.random.default_rng(0)
    inputs = {"source": random.integers(4, 23, (3, 7)), "target": random.integers(4, 29, (3, 5))}
    inputs["target"][:, 0] = 1  # the start token
    labels = np.roll(inputs["target"], -1, axis=1)
    model.fit(inputs, labels, epochs=6, verbose=0)
    np.savez(tmp_path / "logits.npz", **inputs, labels=labels, logits=np.asarray(model(inputs)))
    model.save(tmp_path / "model.keras")
    # A fork that has only imported packages: it knows nothing of the model.
    program = f"""
import keras, tfk_transformer
import numpy as np
model = keras.saving.load_model({str(tmp_path / "model.keras")!r})
saved = np.load({str(tmp_path / "logits.npz")!r})
inputs = {{name: saved[name] for name in ("source", "target")}}
np.testing.assert_allclose(model(inputs), saved["logits"], atol=1e-5)
assert int(model.optimizer.iterations) == 6, model.optimizer.iterations
history = model.fit(inputs, saved["labels"], epochs=3, verbose=0).history["loss"]
assert history[-1] < history[0], history
schedule = model.optimizer.get_config()["learning_rate"]
assert schedule["registered_name"] == "tfk_transformer>InverseSquareRoot"
kinds = [model, model.loss, model.optimizer, *model.metrics[1].metrics]
assert {{type(kind).__module__.partition(".")[0] for kind in kinds}} == {{"tfk_transformer"}}, kinds
"""
    done = run_program([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
