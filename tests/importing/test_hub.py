"""Models by the names that they have on the Hugging Face hub, from a cache in the hub's own
layout.
"""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from marian_folder import split_weights, write_folder

from tfk_transformer.importing.model_import import import_model
from tfk_transformer.importing.model_paths import is_hub_name, resolve_model_path
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
    write_folder(model / "snapshots" / REVISION, encoder_layers=1, decoder_layers=1)
    return home


PROGRAM = """
import json, sys
from typer.testing import CliRunner
from tfk_transformer.apps.cli import main
from tfk_transformer.importing.model_paths import resolve_model_path

name, split, unknown = sys.argv[1:]
runs = [
    CliRunner().invoke(main.app, ["import", each, "--out", out])
    for each, out in ((name, "bundle"), (unknown, "unknown"))
]
outputs = [[run.exit_code, run.stdout, str(run.exception)] for run in runs]
print(json.dumps([*outputs, str(resolve_model_path(split))]))
"""


@pytest.fixture(scope="module")
def answers(home, tmp_path_factory):
    """The folder of a process without the network, two commands' results, and a path.

    No fork of another process: the hub's library reads these variables when it is imported.
    """
    model = home / "hub" / "models--someone--large"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(REVISION)
    (model / "snapshots").mkdir()
    split_weights(write_folder(model / "snapshots" / REVISION))
    folder = tmp_path_factory.mktemp("commands")
    command = [sys.executable, "-c", PROGRAM, NAME, "someone/large", "someone/else"]
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder, *json.loads(done.stdout)


def test_hub_name_imports_from_cache(home, answers):
    folder, (exit_code, output, error), *_ = answers
    assert exit_code == 0, error
    assert output.startswith(f"MarianMT: {NAME}, license: not stated")
    translator = Translator.load(folder / "bundle")
    assert {name: translator.origin[name] for name in ("name", "revision")} == {
        "name": NAME,
        "revision": REVISION,
    }
    assert translator.languages == ("ka", "ba")
    snapshot = home / "hub" / f"models--{NAME.replace('/', '--')}" / "snapshots" / REVISION
    expected = import_model(snapshot, source_language="ka", target_language="ba")
    assert translator.model.config == expected.model.config
    assert translator.target_tokenizer.model == expected.target_tokenizer.model
    for name, weight in expected.model.named_weights.items():
        np.testing.assert_array_equal(translator.model.named_weights[name], weight)


def test_cached_weights_may_be_split(home, answers):
    assert answers[-1] == str(home / "hub" / "models--someone--large" / "snapshots" / REVISION)


def test_offline_hub_is_one_line(answers):
    folder, _, (exit_code, _, error), _ = answers
    assert exit_code == 1
    assert error.startswith("model: someone/else is not a folder here, and the Hugging Face hub ")
    assert "HF_HUB_OFFLINE" in error
    assert "\n" not in error
    assert [path.name for path in folder.iterdir()] == ["bundle"]


def test_unreachable_hub_is_named():
    """In a process of its own: the hub's library reads its address when it is imported."""
    program = (
        "from tfk_transformer.importing.model_paths import resolve_model_path\n"
        "try: resolve_model_path('someone/else')\n"
        "except ValueError as error: print(error)"
    )
    with socket.socket() as closed:  # a port that accepts no connection
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )
    assert done.stderr == ""
    assert "the Hugging Face hub cannot be reached (" in done.stdout
    assert "; check the connection, or pass a local folder." in done.stdout


def test_name_that_the_hub_refuses_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="does not provide a model of that name: .*a--b/c"):
        resolve_model_path("a--b/c")


@pytest.mark.parametrize("path", ["./else", "../else", "~/else", "/else", "-x/else"])
def test_path_is_no_hub_name(path):
    assert not is_hub_name(path)


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
