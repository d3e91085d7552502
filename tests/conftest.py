"""Fixtures that several tests share: a trained model, its bundle and its export."""

import os
import subprocess
from pathlib import Path

import pytest
from number_files import write_number_files

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def recipe(tmp_path_factory):
    """A recipe that takes seconds: the numbers below 200."""
    from tfk_transformer.training.trainer import Recipe

    data = write_number_files(tmp_path_factory.mktemp("numbers"), range(200))
    return Recipe(
        data=data,
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
def bundle(recipe, tmp_path_factory):
    """The bundle of that recipe."""
    from tfk_transformer.training.trainer import train

    path = tmp_path_factory.mktemp("bundle") / "numbers"
    train(recipe, path, say=lambda line: None)
    return path


@pytest.fixture(scope="session")
def translator(bundle):
    """That bundle, loaded."""
    from tfk_transformer.pipelines.translator import Translator

    return Translator.load(bundle)


@pytest.fixture(scope="session")
def exported(translator, tmp_path_factory):
    """Its SavedModel and ONNX files."""
    from tfk_transformer.export.exporting import export

    path = tmp_path_factory.mktemp("export") / "numbers"
    export(translator, path)
    return path


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
