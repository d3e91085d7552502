"""Models and files that tests of several modules open."""

from pathlib import Path

import pytest

from tfk_transformer.export import parity
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.runtime.saved_model_runtime import read_saved_model
from tfk_transformer.pipelines.translator import Translator

FEW = 12


@pytest.fixture(scope="module")
def few_probes():
    """Let the exports of a module compare 12 texts, not 100: `pytest.mark.usefixtures`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity, "PROBES", FEW)
        yield


@pytest.fixture(scope="session")
def small():
    """A translator of 6,000 parameters, with little training and 12 probe texts.

    Its export takes a third of the time of one of `translator`. It is read only.
    """
    translator = Translator.load(Path(__file__).parents[1] / "saved_files" / "bundle")
    translator.probes = translator.probes[:FEW]
    return translator


@pytest.fixture(scope="session")
def models(translator, exported):
    """A translator and its files, by the names of the files. They are read only."""
    names = ("saved_model", "translate.onnx", "score.onnx")
    return {"bundle": translator, **{name: load(exported / name) for name in names}}


@pytest.fixture(scope="session")
def saved_model(exported):
    """The SavedModel of that translator, as TensorFlow reads it."""
    return read_saved_model(exported / "saved_model")
