"""Models by the names that they have on the Hugging Face hub, from a cache in the hub's own
layout.
"""

import os
import subprocess
import sys

import pytest
from marian_folder import sentences, split_weights, write_folder

from tfk_transformer.importing.model_import import import_model
from tfk_transformer.importing.model_paths import resolve_model_path
from tfk_transformer.pipelines.translator import Translator

pytest.importorskip("huggingface_hub")
NAME, REVISION = "someone/opus-mt-ka-ba", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home of the hub's library with one model, as a download leaves it."""
    home = tmp_path_factory.mktemp("home")
    model = home / "hub" / f"models--{NAME.replace('/', '--')}"
    (model / "snapshots").mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(REVISION)
    # Two searches are traced, layer by layer.
    write_folder(model / "snapshots" / REVISION, encoder_layers=1, decoder_layers=1)
    return home


def run(home, folder, *arguments):
    """Run a command in a process where the hub's library does not use the network.

    No fork of another process: the library reads these variables when it is imported.
    """
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "tfk_transformer", *arguments]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )


def test_hub_name_imports_from_cache(home, tmp_path):
    done = run(home, tmp_path, "import", NAME, "--out", "bundle")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"MarianMT: {NAME}, license: not stated")
    translator = Translator.load(tmp_path / "bundle")
    assert {name: translator.origin[name] for name in ("name", "revision")} == {
        "name": NAME,
        "revision": REVISION,
    }
    assert translator.languages == ("ka", "ba")
    texts = sentences("source", 5, seed=3)
    expected = import_model(
        home / "hub" / f"models--{NAME.replace('/', '--')}" / "snapshots" / REVISION
    )
    assert [actual.text for actual in translator.translate(texts)] == [
        actual.text for actual in expected.translate(texts)
    ]


def test_cached_weights_may_be_split(home):
    name = "someone/large"
    model = home / "hub" / "models--someone--large"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(REVISION)
    folder = model / "snapshots" / REVISION
    folder.parent.mkdir()
    split_weights(write_folder(folder))
    script = (
        "from tfk_transformer.importing.model_paths import resolve_model_path; "
        f"print(resolve_model_path({name!r}))"
    )
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(folder)


def test_unknown_name_is_one_line(home, tmp_path):
    done = run(home, tmp_path, "import", "someone/else", "--out", "bundle")
    assert done.returncode == 1
    message = "someone/else is not a folder, and the hub does not provide a model of that name"
    assert message in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_folder_precedes_hub_name(tmp_path, monkeypatch):
    (tmp_path / "someone" / "else").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert str(resolve_model_path("someone/else")) == "someone/else"
    assert str(resolve_model_path("no-slash")) == "no-slash"


def test_missing_hub_library_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="huggingface_hub"):
        resolve_model_path("someone/else")
