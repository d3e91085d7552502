"""Fixtures that several tests share: a trained model, its bundle and its export."""

import os
import subprocess
from pathlib import Path

import pytest
import run_wide
from number_files import number_files_spec, write_number_files
from run_wide import made_once

os.environ.update(run_wide.ENVIRONMENT)
REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def run_folder(tmp_path_factory):
    """The folder of this run of the tests, which the processes of pytest-xdist share."""
    own = tmp_path_factory.getbasetemp()
    run_wide.folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "made_once"
    yield run_wide.folder
    assert run_wide.changed() == [], "a test changed files that all tests read; it should copy them"


@pytest.fixture(scope="session")
def recipe():
    """A recipe that takes seconds: the numbers below 200."""
    from tfk_transformer.training.trainer import Recipe

    data = made_once("numbers", lambda folder: write_number_files(folder, range(200)))
    return Recipe(
        data=number_files_spec(data),
        preset="tiny",
        vocab_size=80,
        max_length=32,
        batch_tokens=512,
        epochs=25,
        learning_rate=3e-3,
        warmup_steps=30,
        label_smoothing=0.0,
    )


@pytest.fixture(scope="session")
def bundle(recipe):
    """The bundle of that recipe. It is read only, like all that is made once a run."""
    from tfk_transformer.training.trainer import train

    return made_once("bundle/numbers", lambda path: train(recipe, path, say=lambda line: None))


@pytest.fixture(scope="session")
def translator(bundle):
    """That bundle, loaded."""
    from tfk_transformer.pipelines.translator import Translator

    return Translator.load(bundle)


@pytest.fixture(scope="session")
def exported(translator):
    """Its SavedModel and ONNX files."""
    from tfk_transformer.export.exporting import export

    return made_once("export/numbers", lambda path: export(translator, path))


@pytest.fixture
def small_disk(tmp_path):
    """A disk of six megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
