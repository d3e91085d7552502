"""What `export --format web` writes, and what it refuses."""

import json
import re
import shutil

import pytest
from web_needs import NODE_MODULES, SCRIPTS, needs, needs_node

from tfk_transformer.config.search_settings import SETTING_DTYPES, setting_rules
from tfk_transformer.export import parity
from tfk_transformer.export.expected_results import ExpectedResults
from tfk_transformer.export.exporting import export
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.to_web import npm_packages, web_files
from tfk_transformer.pipelines.translator import Translator


def test_folders_hold_all_they_import(export_of_web):
    path, _ = export_of_web
    assert sorted(file.name for file in path.iterdir()) == ["parity.json", "web", "web_int8"]
    for folder, search in (("web", "generate.onnx"), ("web_int8", "generate.int8.onnx")):
        assert sorted(file.name for file in (path / folder / "model").iterdir()) == sorted(
            [search, "score.onnx", "model.json", "source.model"]
        )
        for module in (path / folder).glob("*.*js"):
            for imported in re.findall(
                r'(?:from|import\(?|importScripts\(|Worker\()\s*"([^":]+)"', module.read_text()
            ):
                assert (path / folder / imported).is_file(), (module.name, imported)


def test_description_matches_the_model(export_of_web, translator):
    described = json.loads((export_of_web[0] / "web" / "model" / "model.json").read_text())
    assert described["settings"] == setting_rules(32, translator.target_tokenizer.vocab_size)
    assert described["config"] == translator.model.config.model_dump(mode="json")
    assert (described["parameters"], described["int8"]) == (translator.model.count_params(), False)
    assert described["bytes"] == {
        name: (export_of_web[0] / "web" / name).stat().st_size for name in described["bytes"]
    }
    assert (
        json.loads((export_of_web[0] / "web_int8" / "model" / "model.json").read_text())["int8"]
        is True
    )


def test_inspect_shows_the_description(export_of_web, translator, tmp_path):
    path, figures = export_of_web
    for name in ("web", "web_int8"):
        actual = inspect(path / name)
        assert (actual["kind"], actual["parameters"]) == ("web", translator.model.count_params())
        assert actual["facts"]["int8"] is (name == "web_int8")
        assert actual["facts"]["files of the model"]["score"] == "model/score.onnx"
        assert actual["config"] == translator.model.config.model_dump(mode="json")
        assert (
            actual["files"]["model/score.onnx"]
            == (path / name / "model" / "score.onnx").stat().st_size
        )
        assert actual["parity"]["in_node"] == figures[name]["in_node"]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text('{"version": "1", "parameters": 3}')
    with pytest.raises(
        ValueError,
        match=(
            "^FILE: expected the description of an exported folder in .*model.json, got one "
            "without int8, files, config"
        ),
    ):
        inspect(tmp_path)


def test_load_refuses_a_page(export_of_web):
    with pytest.raises(
        ValueError,
        match=(
            "^MODEL: expected a bundle .*, got .*/web, a page for browsers and Node "
            r"\(docs/browser.md\)"
        ),
    ):
        load(export_of_web[0] / "web")


def test_web_figures_have_agreement(export_of_web):
    path, figures = export_of_web
    assert json.loads((path / "parity.json").read_text()) == figures
    assert figures["ids"] == "equal"
    assert figures["web"]["largest_score_difference"] < 1e-3
    assert abs(figures["web_int8"]["regret_per_token"]) <= 0.01
    if shutil.which("node"):
        assert figures["web"]["in_node"] == {"sentences": figures["sentences"], "texts": "equal"}
        assert abs(figures["web_int8"]["in_node"]["regret_per_token"]) <= 0.01


@needs(*npm_packages.VERSIONS)
# Exports two web folders.
@pytest.mark.long
def test_a_page_may_have_a_shortlist(translator, recipe, tmp_path):
    """The export compares both folders in Node with the Keras model and the same shortlist."""
    figures = export(translator, tmp_path / "out", ["web", "web_int8"], NODE_MODULES, recipe.data)
    assert figures["shortlist"]["learned_from_pairs"] == 200
    described = json.loads((tmp_path / "out" / "web_int8" / "model" / "model.json").read_text())
    assert (
        described["shortlist"]
        == inspect(tmp_path / "out" / "web")["facts"]["shortlist"]
        == figures["shortlist"]
    )
    if shutil.which("node"):
        assert figures["web"]["in_node"]["texts"] == "equal"


def test_types_name_every_setting():
    (settings,) = re.findall(
        r"interface Settings \{(.*?)\n\}",
        (web_files.PAGE_FILES / "translate.d.mts").read_text(),
        re.DOTALL,
    )
    assert re.findall(r"(?m)^  (\w+)\?: .+;$", settings) == list(SETTING_DTYPES)


def test_missing_npm_packages_are_named(translator, tmp_path):
    (tmp_path / "onnxruntime-web").mkdir()
    (tmp_path / "onnxruntime-web" / "package.json").write_text('{"version": "1.2.3"}')
    message = (
        "^node_modules: expected the npm packages onnxruntime-web 1.30.0 and sentencepiece-js "
        "1.1.0, got onnxruntime-web 1.2.3 and "
        "sentencepiece-js missing in .*; install them with: npm install --ignore-scripts "
        "onnxruntime-web@1.30.0 sentencepiece-js@1.1.0; "
    )
    with pytest.raises(ValueError, match=message):
        export(translator, tmp_path / "out", ["web"], tmp_path)
    assert not (tmp_path / "out").exists()


def test_npm_versions_match_the_lock():
    lock = json.loads((SCRIPTS / "package-lock.json").read_text())["packages"]
    assert {
        name: lock[f"node_modules/{name}"]["version"] for name in npm_packages.VERSIONS
    } == npm_packages.VERSIONS


@needs("onnxruntime-web", "sentencepiece-js")
def test_find_packages_takes_a_folder():
    assert npm_packages.find_packages(NODE_MODULES) == NODE_MODULES


# Traces the model's functions, and runs Node five times.
@pytest.mark.long
@needs_node()
def test_differing_folder_is_refused(export_of_web, translator, tmp_path, monkeypatch):
    folder = shutil.copytree(export_of_web[0] / "web", tmp_path / "web")
    monkeypatch.setattr(parity, "PROBES", 2)
    probes = ["seven", "eighty"]
    expected = ExpectedResults(
        Translator(translator.model, translator.source_tokenizer, probes=probes)
    )
    assert web_files.check_in_node(folder, expected, exact=True) == {
        "sentences": 2,
        "texts": "equal",
    }
    assert web_files.check_in_node(folder, expected, exact=False)["same_translations"] == 2
    expected.greedy = expected.greedy[::-1]
    message = (
        "^web in Node: expected the model's translations, got 2 of 2 that differ, for "
        "example 'sieben' instead of 'achtzig' for 'seven'"
    )
    with pytest.raises(parity.ParityError, match=message):
        web_files.check_in_node(folder, expected, exact=True)
    expected.best = expected.best[::-1]
    expected.int8_limits = parity.Int8Limits(same=0.5)
    with pytest.raises(
        parity.ParityError, match="^web_int8 in Node: expected a regret .* of 0 of 2 probe sent"
    ):
        web_files.check_in_node(folder, expected, exact=False)
    (folder / "runtime" / "sentencepiece.mjs").unlink()
    with pytest.raises(
        ValueError,
        match=(
            "^web: expected a folder that runs in Node, got the failure: Error .*: Cannot "
            "find module .*sentencepiece.mjs"
        ),
    ):
        web_files.check_in_node(folder, expected, exact=True)
