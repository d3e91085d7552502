"""A web folder, exported once a run for all tests of it."""

import json

import pytest
from run_wide import made_once
from web_needs import INSTALL, NODE_MODULES, missing_packages

from tfk_transformer.export.exporting import export
from tfk_transformer.export.to_web.npm_packages import VERSIONS
from tfk_transformer.pipelines.translator import Translator


@pytest.fixture(scope="session")
def export_of_web(translator):
    """The folder of an export of both web formats, and its figures."""
    if missing := missing_packages(*VERSIONS):
        pytest.skip(f"{', '.join(missing)} not installed: {INSTALL}")
    folder = made_once("web", lambda folder: write_web(translator, folder))
    return folder / "numbers", json.loads((folder / "figures.json").read_text())


def write_web(translator, folder):
    """Export to `numbers` in a new folder, and write the figures next to it."""
    origin = {"name": "numbers", "license": "apache-2.0"}
    described = Translator(
        translator.model, translator.source_tokenizer, probes=translator.probes, origin=origin
    )
    described.metrics = {"val_accuracy": 0.875, "epoch": 25}
    folder.mkdir()
    figures = export(described, folder / "numbers", ["web", "web_int8"], NODE_MODULES)
    (folder / "figures.json").write_text(json.dumps(figures))


@pytest.fixture(scope="session")
def web(export_of_web):
    """The web folder with exact weights."""
    return export_of_web[0] / "web"
