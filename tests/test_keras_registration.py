"""Classes are registered with Keras as soon as both packages are imported, in every order."""

import subprocess
import sys

import pytest

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
NAMES += ["LabelSmoothedCrossentropy", "TokenAccuracy", "Perplexity", "InverseSquareRoot", "Adam", "AdamW"]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize(
    "imports",
    [
        "import keras, tfk_transformer",
        "import tfk_transformer, keras",
        "import tfk_transformer, tensorflow, keras",
        # The import of Keras begins inside a module of the package, which is not complete yet.
        "from tfk_transformer import TokenAccuracy",
        "import tfk_transformer.losses; from tfk_transformer import Perplexity",
        "import tfk_transformer; from tfk_transformer.training.compilation import has_gpu",
    ],
)
def test_all_classes_are_registered(imports):
    code = f"{imports}\nimport keras\nprint([n for n in {NAMES} if not keras.saving.get_registered_object('tfk_transformer>' + n)])"
    done = run(code)
    assert done.stdout == "[]\n", done.stderr


def test_looking_for_keras_without_importing_it_leaves_the_registration_to_its_import():
    code = """
import importlib.util, sys, tfk_transformer
spec = importlib.util.find_spec("keras")
assert spec is not None and "keras" not in sys.modules
import keras
print(keras.saving.get_registered_object("tfk_transformer>Transformer").__name__)
"""
    assert run(code).stdout == "Transformer\n"


def test_without_a_package_that_the_classes_need_keras_is_still_imported():
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
