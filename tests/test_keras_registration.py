"""Classes are registered with Keras as soon as both packages are imported, in every order."""

import importlib.util
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from forked_programs import run_program
from tiers import with_long

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


# What imports both packages, by the name of the case.
IMPORTS = {
    "keras first": "import keras, tfk_transformer",
    "keras second": "import tfk_transformer, keras",
    # The import of Keras begins inside a module of the package, which is not complete yet.
    "a metric": "from tfk_transformer import TokenAccuracy",
    "a module": "import tfk_transformer.losses; from tfk_transformer import Perplexity",
    "training": "import tfk_transformer; import tfk_transformer.training.compilation",
}
PRINT_MISSING = f"""
import keras
print([n for n in {NAMES} if not keras.saving.get_registered_object("tfk_transformer>" + n)])
"""
FIND_SPEC = """
import importlib.util, sys, tfk_transformer
spec = importlib.util.find_spec("keras")
assert spec is not None and "keras" not in sys.modules
import keras
print(keras.saving.get_registered_object("tfk_transformer>Transformer").__name__)
"""
WITHOUT_PYDANTIC = """
import sys
sys.modules["pydantic"] = None
import tfk_transformer, keras
print(keras.saving.get_registered_object("tfk_transformer>Transformer"))
try:
    tfk_transformer.Transformer
except ImportError as error:
    print(type(error).__name__)
"""
CODES = {name: imports + PRINT_MISSING for name, imports in IMPORTS.items()}
CODES |= {"find_spec": FIND_SPEC, "without pydantic": WITHOUT_PYDANTIC}
# Runs each code in a fork that has imported what Keras imports, but neither of both packages.
FORKS = """
import importlib.util, json, os, sys, tempfile, traceback
for name in ("numpy", "h5py", "jax", "jax.numpy"):
    if importlib.util.find_spec(name.partition(".")[0]) is not None:
        importlib.import_module(name)
assert not {"keras", "tfk_transformer"} & set(sys.modules)
outputs = {}
for name, code in json.loads(sys.argv[1]).items():
    with tempfile.TemporaryFile("w+") as file:
        process = os.fork()
        if process == 0:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                exec(code, {"__name__": "__main__"})
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(process, 0)
        file.seek(0)
        outputs[name] = file.read()
print(json.dumps(outputs))
"""


@pytest.fixture(scope="module")
def outputs(request):
    """What each code that is tested prints. Keras has JAX if it is there, which is imported in half
    the time.
    """
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    tested = {call.params.get("name") for call in calls if call}
    codes = {name: CODES[name] for name in CODES if name in tested or name not in IMPORTS}
    environment = dict(os.environ)
    if importlib.util.find_spec("jax") is not None:
        environment["KERAS_BACKEND"] = "jax"
    command = [sys.executable, "-W", "ignore", "-c", FORKS, json.dumps(codes)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Each imports Keras. "a module" is like the long cases: the import of Keras begins in the package.
@pytest.mark.parametrize(
    "name", with_long({name: name for name in IMPORTS}, {"a metric", "training"})
)
def test_all_classes_are_registered(name, outputs):
    assert outputs[name] == "[]\n"


@pytest.mark.long  # starts TensorFlow
@pytest.mark.parametrize(
    ("imports", "backend"),
    [
        ("tfk_transformer, tensorflow, keras", "tensorflow"),
        ("keras, tfk_transformer, tensorflow", "jax"),
    ],
)
def test_triton_comes_before_tensorflow_and_classes_after(imports, backend, tmp_path):
    pytest.importorskip(backend)
    # The real Triton, which is large, crashes if it comes later.
    (tmp_path / "triton.py").write_text("import sys; print('tensorflow.python' in sys.modules)")
    code = f"import {imports}" + PRINT_MISSING
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "KERAS_BACKEND": backend},
    )
    assert done.stdout == "False\n[]\n", done.stderr


def test_find_spec_defers_registration(outputs):
    assert outputs["find_spec"] == "Transformer\n"


def test_keras_imports_without_pydantic(outputs):
    assert outputs["without pydantic"] == "None\nModuleNotFoundError\n"


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
    # A trace of the step takes seconds, here and in the program below.
    model.compile(adam, LabelSmoothedCrossentropy(0.1), metrics=metrics, run_eagerly=True)
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
objects = [model, model.loss, model.optimizer, *model.metrics[1].metrics]
packages = {{type(each).__module__.partition(".")[0] for each in objects}}
assert packages == {{"tfk_transformer"}}, objects
"""
    done = run_program([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
