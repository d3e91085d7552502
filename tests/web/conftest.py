"""A web folder, exported once for all tests of it."""

import pytest
from web_needs import INSTALL, NODE_MODULES, missing_packages

from tfk_transformer.export.exporting import export
from tfk_transformer.export.to_web.npm_packages import VERSIONS
from tfk_transformer.pipelines.translator import Translator


@pytest.fixture(scope="session")
def export_of_web(translator, tmp_path_factory):
    """The folder of an export of both web formats, and its figures."""
    if missing := missing_packages(*VERSIONS):
        pytest.skip(f"{', '.join(missing)} not installed: {INSTALL}")
    origin = {"name": "numbers", "license": "apache-2.0", "source_language": "en", "target_language": "de"}
    described = Translator(translator.model, translator.source_tokenizer, probes=translator.probes, origin=origin)
    described.metrics = {"val_accuracy": 0.875, "epoch": 25}
    path = tmp_path_factory.mktemp("web") / "numbers"
    return path, export(described, path, ["web", "web_int8"], NODE_MODULES)


@pytest.fixture(scope="session")
def web(export_of_web):
    """The web folder with exact weights."""
    return export_of_web[0] / "web"
