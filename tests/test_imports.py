"""Modules that must import without TensorFlow, and the direction of imports; each in a fresh
process.
"""

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from xla_flags import FAST_COMPILATION

REPOSITORY = Path(__file__).parents[1]
JAX = {"KERAS_BACKEND": "jax", "XLA_FLAGS": FAST_COMPILATION}
BLOCKED = ("tensorflow", "tensorflow_text", "tensorflow_datasets", "tf2onnx")


def run(code: str, **environment):
    blocks = "".join(f"sys.modules[{name!r}] = None\n" for name in BLOCKED)
    command = [sys.executable, "-W", "error::UserWarning", "-c", f"import sys\n{blocks}{code}"]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}
    )


def test_import_loads_no_tensorflow():
    code = (
        "import sys, tfk_transformer; print(sorted({'tensorflow', 'keras', 'numpy', "
        "'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_every_public_name_resolves():
    import tfk_transformer

    for name in tfk_transformer.__all__:
        assert getattr(tfk_transformer, name) is not None
    assert dir(tfk_transformer) == sorted(tfk_transformer.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Transfomer'"):
        tfk_transformer.Transfomer  # noqa: B018


def test_moved_names_say_where_they_are():
    import tfk_transformer

    assert len(tfk_transformer.__all__) <= 45
    for name, home in tfk_transformer._MOVED.items():
        with pytest.warns(DeprecationWarning, match=f"{name} has moved to tfk_transformer.{home}"):
            assert getattr(tfk_transformer, name).__name__ == name
    with pytest.warns(DeprecationWarning, match="Classifier is named EncoderClassifier now"):
        assert tfk_transformer.Classifier is tfk_transformer.EncoderClassifier


def test_type_checkers_see_all_names():
    """The names under `if TYPE_CHECKING:` are those of `_HOME`, from the same modules."""
    import tfk_transformer

    tree = ast.parse(Path(tfk_transformer.__file__).read_text(encoding="utf-8"))
    (block,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    actual = [
        (alias.name, line.module.removeprefix("tfk_transformer").removeprefix("."))
        for line in block.body
        for alias in line.names
        if alias.asname == alias.name  # the form that a type checker takes for public
    ]
    # Submodules that are public names are imported as such. Type checkers take `export`, which can
    # be called, for a function.
    submodules = {name: "" for name, home in tfk_transformer._HOME.items() if name == home}
    submodules["export"] = "export.exporting"
    assert sorted(actual) == sorted({**tfk_transformer._HOME, **submodules}.items())


def test_setup_lists_every_package():
    """The list that setup.py gives to setuptools, against the files."""
    code = """
import json, runpy, setuptools
setuptools.setup = lambda **given: print(json.dumps(given["packages"]))
runpy.run_path("setup.py")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY
    )
    packages = set(json.loads(done.stdout))
    modules = [
        path.relative_to(REPOSITORY)
        for folder in ("tfk_transformer", "export")
        for path in (REPOSITORY / folder).rglob("*.py")
    ]
    folders = {".".join(path.parent.parts) for path in modules}
    assert packages == {
        f"tfk_transformer.{name}" if name.partition(".")[0] == "export" else name
        for name in folders
    }


MODEL = """
import numpy as np, keras
from tfk_transformer import (Transformer, TransformerConfig, SubwordTokenizer, TokenBatches,)
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import TokenAccuracy, Perplexity
from tfk_transformer.schedules import InverseSquareRoot
from tfk_transformer import Translator
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
from tfk_transformer import datasets, evaluation, plots
from tfk_transformer import atomic_write
keras.utils.set_random_seed(0)
sizes = {"model_dim": 8, "ff_dim": 7, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 2}
config = TransformerConfig(source_vocab_size=11, target_vocab_size=13, **sizes)
model = Transformer(config)
model.build()
rows = np.random.default_rng(0)
model.set_weights([rows.normal(size=w.shape).astype("float32") for w in model.get_weights()])
inputs = {"source": np.array([[4, 5, 0], [6, 2, 0]]), "target": np.array([[1, 7, 8], [1, 9, 0]])}
"""


@pytest.mark.skipif(
    None in (importlib.util.find_spec("scipy"), importlib.util.find_spec("jax")),
    reason="Keras's NumPy backend needs SciPy and JAX: pip install -e .[jax] scipy",
)
def test_numpy_backend_same_logits():
    """NumPy is Keras's plainest backend; nothing but public Keras stands in its way."""
    code = MODEL + "print(keras.backend.backend(), *np.array(model(inputs)).ravel().tolist())"
    done = run(code, KERAS_BACKEND="numpy")
    backend, *logits = done.stdout.split()
    assert backend == "numpy", done.stderr
    scope = {}
    exec(MODEL, scope)
    import numpy as np

    np.testing.assert_allclose(
        np.array(logits, float), np.array(scope["model"](scope["inputs"])).ravel(), atol=1e-4
    )


@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed: pip install -e .[jax]"
)
@pytest.mark.long  # imports JAX; training/test_backends.py fits under JAX in the short tests
def test_transformer_fits_under_jax():
    code = MODEL.replace('"decoder_layers": 2', '"decoder_layers": 1') + (
        "adam = keras.optimizers.Adam(InverseSquareRoot(1e-2, 5))\n"
        "model.compile(adam, LabelSmoothedCrossentropy(), metrics=[TokenAccuracy(), "
        "Perplexity()])\n"
        "history = model.fit(inputs, np.array([[7, 8, 2], [9, 2, 0]]), epochs=20, "
        "verbose=0).history\n"
        "print(keras.backend.backend(), history['loss'][-1] < history['loss'][0])"
    )
    assert run(code, **JAX).stdout.split() == ["jax", "True"]


@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed: pip install -e .[jax]"
)
@pytest.mark.long  # compiles two steps
def test_other_models_fit_under_jax():
    code = """
import numpy as np, keras
from tfk_transformer import ClassifierConfig, EncoderClassifier
from tfk_transformer import LanguageModel, LanguageModelConfig
from tfk_transformer.losses import LabelSmoothedCrossentropy
sizes = {"model_dim": 8, "ff_dim": 7, "num_heads": 2}
ids = np.random.default_rng(0).integers(4, 11, (32, 6))
keras.utils.set_random_seed(1)
model = LanguageModel(LanguageModelConfig(vocab_size=11, decoder_layers=1, **sizes))
model.compile(keras.optimizers.Adam(0.01), LabelSmoothedCrossentropy())
first = model.fit(ids[:, :-1], ids[:, 1:], epochs=5, verbose=0).history["loss"]
model = EncoderClassifier(ClassifierConfig(vocab_size=11, num_classes=3, encoder_layers=1, **sizes))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss)
second = model.fit(ids, ids[:, 0] % 3, epochs=5, verbose=0).history["loss"]
print(keras.backend.backend(), first[-1] < first[0], second[-1] < second[0])
"""
    assert run(code, **JAX).stdout.split() == ["jax", "True", "True"]


def test_imports_run_one_way(tmp_path):
    """The order stands in pyproject.toml. import-linter reads one folder, so `export/` is copied to
    where it is installed.
    """
    shutil.copytree(REPOSITORY / "tfk_transformer", tmp_path / "tfk_transformer")
    shutil.copytree(REPOSITORY / "export", tmp_path / "tfk_transformer" / "export")
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_at_most_12_modules_per_folder():
    for folder in (REPOSITORY / "tfk_transformer", REPOSITORY / "export"):
        for package in (folder, *(path.parent for path in folder.rglob("*/__init__.py"))):
            modules = [path.name for path in package.glob("*.py") if not path.name.startswith("__")]
            assert len(modules) <= 12, (package, modules)


def test_folder_docstrings_list_imports():
    for folder in (REPOSITORY / "tfk_transformer", REPOSITORY / "export"):
        for head in (folder / "__init__.py", *folder.rglob("*/__init__.py")):
            docstring = ast.get_docstring(ast.parse(head.read_text(encoding="utf-8")))
            assert head.parent.name == "tfk_transformer" or "\n\nImports " in docstring, head
