"""Files that an earlier version wrote, before its modules moved into folders, still work."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EARLIER = Path(__file__).parent / "earlier_version"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory, since the data specs of these files are relative."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check_translations(translator) -> None:
    expected = json.loads((EARLIER / "translations.json").read_text())
    found = translator.translate([source for source, _, _ in expected], beam_size=4)
    assert [translation.text for translation in found] == [text for _, text, _ in expected]
    np.testing.assert_allclose([translation.score for translation in found], [score for _, _, score in expected], rtol=1e-5)


def test_a_bundle_translates_as_it_did():
    from tfk_transformer import Translator

    check_translations(Translator.load(EARLIER / "bundle"))


def test_an_onnx_file_translates_as_it_did():
    from tfk_transformer import OnnxTranslator

    check_translations(OnnxTranslator(EARLIER / "translate.onnx"))


@pytest.mark.parametrize("imports", ["keras, tfk_transformer", "tfk_transformer, keras"])
def test_a_keras_file_loads_in_a_new_process_and_goes_on_training(imports):
    code = f"""
import {imports}
import numpy as np
model = keras.saving.load_model({str(EARLIER / "model.keras")!r})
saved = np.load({str(EARLIER / "logits.npz")!r})
inputs = {{name: saved[name] for name in ("source", "target")}}
np.testing.assert_allclose(model(inputs), saved["logits"], atol=1e-5)
assert int(model.optimizer.iterations) == 6, model.optimizer.iterations
history = model.fit(inputs, saved["target"], epochs=3, verbose=0).history["loss"]
assert history[-1] < history[0], history
assert model.optimizer.get_config()["learning_rate"]["registered_name"] == "tfk_transformer>InverseSquareRoot"
kinds = [model, model.loss, model.optimizer, *model.metrics[1].metrics]
assert {{type(kind).__module__.partition(".")[0] for kind in kinds}} == {{"tfk_transformer"}}, kinds
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_cache_replaces_the_texts(here):
    from tfk_transformer import Recipe, train

    shutil.copytree(EARLIER / "cache", here / "cache")
    recipe = Recipe.read(EARLIER / "bundle" / "recipe.toml")
    lines = []
    train(recipe.replace(epochs=1), here / "bundle", say=lines.append, cache=here / "cache")
    assert "train: 100 pairs, 875 target tokens, 5 batches, 19.7% padding" in lines


def test_an_unfinished_training_goes_on(here):
    from tfk_transformer import Recipe, train

    for name in ("en.txt", "de.txt"):
        shutil.copy(EARLIER / name, here)
    shutil.copytree(EARLIER / "unfinished.training", here / "unfinished.training")
    lines = []
    train(Recipe.read(here / "unfinished.training" / "recipe.toml"), here / "unfinished", resume=True, say=lines.append)
    assert "resumed after epoch 2" in lines
    losses = json.loads((here / "unfinished" / "history.json").read_text())["loss"]
    assert len(losses) == 3 and losses[2] < losses[1] < losses[0]
