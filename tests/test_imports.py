"""What must import where TensorFlow is not installed, and which way imports run; each in a fresh process."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
BLOCKED = ("tensorflow", "tensorflow_text", "tensorflow_datasets", "tf2onnx")
# The house's order, of shared design: a file imports only what stands before it.
ORDER = (
    "constants records presets config texts pair_scoring step_tensors streaming startup bundle masks dropout layer_norm positions "
    "attention feed_forward residual encoder decoder projection losses model transformer language_model classifier architectures metrics "
    "towers schedules optimizers sampling tokenizers token_scores datasets rows planning encoding sequence batching evaluation plots "
    "contents choices search scoring graphs steps classification_graph translator text_classifier recipe prepared materials checkpoints "
    "history watching distribution agreement compiling training text_lines recipe_options cli"
).split()


def run(code: str, **environment):
    blocks = "".join(f"sys.modules[{name!r}] = None\n" for name in BLOCKED)
    command = [sys.executable, "-W", "error::UserWarning", "-c", f"import sys\n{blocks}{code}"]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def test_importing_the_package_loads_neither_tensorflow_nor_keras():
    code = "import sys, tfk_transformer; print(sorted({'tensorflow', 'keras', 'numpy', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_every_public_name_is_there():
    import tfk_transformer

    for name in tfk_transformer.__all__:
        assert getattr(tfk_transformer, name) is not None
    assert dir(tfk_transformer) == sorted(tfk_transformer.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Transfomer'"):
        tfk_transformer.Transfomer  # noqa: B018


MODEL = """
import numpy as np, keras
from tfk_transformer import (Transformer, TransformerConfig, LabelSmoothedCrossentropy, TokenAccuracy, Perplexity, InverseSquareRoot,
                             SubwordTokenizer, TokenBatches, OnnxTranslator, Translator)
from tfk_transformer import datasets, evaluation, plots, bundle
keras.utils.set_random_seed(0)
sizes = {"model_dim": 8, "ff_dim": 7, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 2}
config = TransformerConfig(source_vocab_size=11, target_vocab_size=13, **sizes)
model = Transformer(config)
model.build()
rows = np.random.default_rng(0)
model.set_weights([rows.normal(size=w.shape).astype("float32") for w in model.get_weights()])
inputs = {"source": np.array([[4, 5, 0], [6, 2, 0]]), "target": np.array([[1, 7, 8], [1, 9, 0]])}
"""


@pytest.mark.skipif(importlib.util.find_spec("scipy") is None, reason="Keras's NumPy backend needs SciPy: pip install scipy")
def test_the_model_gives_the_same_logits_without_tensorflow():
    """NumPy is Keras's plainest backend; nothing but public Keras stands in its way."""
    code = MODEL + "print(keras.backend.backend(), *np.array(model(inputs)).ravel().tolist())"
    done = run(code, KERAS_BACKEND="numpy")
    backend, *logits = done.stdout.split()
    assert backend == "numpy", done.stderr
    scope = {}
    exec(MODEL, scope)
    import numpy as np

    np.testing.assert_allclose(np.array(logits, float), np.array(scope["model"](scope["inputs"])).ravel(), atol=1e-4)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed: pip install -e .[jax]")
def test_fit_runs_under_jax_without_tensorflow():
    code = MODEL + (
        "adam = keras.optimizers.Adam(InverseSquareRoot(1e-2, 5))\n"
        "model.compile(adam, LabelSmoothedCrossentropy(), metrics=[TokenAccuracy(), Perplexity()])\n"
        "history = model.fit(inputs, np.array([[7, 8, 2], [9, 2, 0]]), epochs=20, verbose=0).history\n"
        "print(keras.backend.backend(), history['loss'][-1] < history['loss'][0])"
    )
    assert run(code, KERAS_BACKEND="jax").stdout.split() == ["jax", "True"]


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed: pip install -e .[jax]")
def test_the_other_models_fit_under_jax_without_tensorflow():
    code = """
import numpy as np, keras
from tfk_transformer import Classifier, ClassifierConfig, LabelSmoothedCrossentropy, LanguageModel, LanguageModelConfig
sizes, ids = {"model_dim": 8, "ff_dim": 7, "num_heads": 2}, np.random.default_rng(0).integers(4, 11, (32, 6))
keras.utils.set_random_seed(1)
model = LanguageModel(LanguageModelConfig(vocab_size=11, decoder_layers=1, **sizes))
model.compile(keras.optimizers.Adam(0.01), LabelSmoothedCrossentropy())
first = model.fit(ids[:, :-1], ids[:, 1:], epochs=5, verbose=0).history["loss"]
model = Classifier(ClassifierConfig(vocab_size=11, num_classes=3, encoder_layers=1, **sizes))
model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
second = model.fit(ids, ids[:, 0] % 3, epochs=5, verbose=0).history["loss"]
print(keras.backend.backend(), first[-1] < first[0], second[-1] < second[0])
"""
    assert run(code, KERAS_BACKEND="jax").stdout.split() == ["jax", "True", "True"]


def imported(path: Path) -> set[str]:
    """Names of this package's modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tfk_transformer"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("name", ORDER)
def test_imports_run_one_way(name):
    path = REPOSITORY / "tfk_transformer" / name
    before = {*ORDER[: ORDER.index(name)], name, "__version__"}
    for file in [path.with_suffix(".py")] if path.with_suffix(".py").exists() else path.rglob("*.py"):
        # The command line is the outermost shell: it alone knows both the library and export/.
        assert imported(file) - before <= ({"export"} if name == "cli" else set())


def test_every_module_has_its_place():
    modules = {path.stem for path in (REPOSITORY / "tfk_transformer").glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in (REPOSITORY / "tfk_transformer").glob("*/__init__.py")}
    assert modules | packages == set(ORDER)
