"""A bundle's own defaults of search settings, in the bundle and in every file made of it."""

import json
import re
import shutil
import subprocess

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from typer.testing import CliRunner
from web_needs import missing_packages, needs, needs_node

from tfk_transformer import Translator, load
from tfk_transformer.apps.cli import main
from tfk_transformer.apps.server.served_model import ServedModel
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.config.search_settings import SearchSettings, own_defaults
from tfk_transformer.export.exporting import export
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime.sessions import text_operators_library
from tfk_transformer.models.transformer import Transformer

pytestmark = pytest.mark.long  # the export to all formats takes 40 seconds
TEXTS = ["forty-two", "one hundred ninety-nine", "one two three", "seven", "two"]
SEARCH = {
    "beam_size": 3,
    "length_penalty": 2.0,
    "length_penalty_form": "length",
    "early_stopping": False,
    "forced_eos": True,
    "max_length": 4,
    "max_length_factor": 1000.0,
}
PARAGRAPH = "seven. forty-two"  # its model reads whole texts
WEB_PACKAGES = ("onnxruntime-web", "sentencepiece-js")
KINDS = ["bundle", "saved_model", "translate.onnx"]


@pytest.fixture(scope="module")
def own(small, few_probes, tmp_path_factory):
    """The folder of a bundle with settings of its own, and of its files."""
    folder = tmp_path_factory.mktemp("own")
    model = small.model
    config = model.config.replace(split_sentences=False)
    with_search = Translator(
        Transformer.from_weights(model.named_weights, config),
        small.source_tokenizer,
        small.target_tokenizer,
        small.probes,
        search=SEARCH,
    )
    with_search.save(folder / "bundle", metrics={"loss": 1.0})
    formats = ["saved_model", "onnx", "onnx_steps"]
    if shutil.which("node") and not missing_packages(*WEB_PACKAGES):
        formats.append("web")
    export(Translator.load(folder / "bundle"), folder / "files", formats)
    return folder


@pytest.fixture(scope="module")
def expected(small):
    """The translations of a translator without settings of its own."""
    return small.translate(TEXTS, **SEARCH)


@pytest.fixture(scope="module")
def opened(own):
    """The bundle and the files."""
    return {kind: load(own / ("" if kind == "bundle" else "files") / kind) for kind in KINDS}


def test_bundle_keeps_search_settings(own, opened, small):
    read = opened["bundle"]
    assert read.search == SEARCH
    assert read.metrics == {"loss": 1.0}
    assert json.loads((own / "bundle" / "metrics.json").read_text())["search"] == SEARCH
    assert read.search_settings == SearchSettings(**SEARCH)
    assert Translator.ensemble([read, small]).search == SEARCH
    assert small.search == {}
    assert small.search_settings == SearchSettings(max_length=24)


@pytest.mark.parametrize("kind", KINDS)
def test_files_have_the_bundle_s_settings(opened, expected, small, kind):
    model = opened[kind]
    assert own_defaults(model.runtime.rules, model.max_length) == SEARCH
    for actual, required in zip(model.translate(TEXTS), expected, strict=True):
        assert actual.text == required.text
        assert actual.score == pytest.approx(required.score, abs=1e-4)
    other = [result.text for result in small.translate(TEXTS)]
    assert [result.text for result in expected] != other
    library = {name: getattr(small.search_settings, name) for name in SEARCH}
    assert [result.text for result in model.translate(TEXTS, **library)] == other


@pytest.mark.parametrize("kind", KINDS)
def test_model_decides_whether_texts_are_split(opened, kind):
    model = opened[kind]
    whole, split = (
        model.translate([PARAGRAPH], split_sentences=splits)[0].text for splits in (False, True)
    )
    assert whole != split
    assert model.translate([PARAGRAPH])[0].text == whole
    greedy = model.translate([PARAGRAPH], beam_size=1)[0].text
    assert "".join(model.stream(PARAGRAPH)) == greedy


@pytest.mark.parametrize("kind", KINDS)
def test_streams_have_the_bundle_s_settings(opened, small, kind):
    greedy = small.translate(TEXTS, **{**SEARCH, "beam_size": 1})
    model = opened[kind]
    assert ["".join(model.stream(text)) for text in TEXTS] == [result.text for result in greedy]


def test_plain_programs_get_own_settings(own, expected):
    """Those that name no settings, without this library."""
    saved = tf.saved_model.load(str(own / "files" / "saved_model"))
    actual = saved.signatures["serving_default"](text=tf.constant(TEXTS))
    texts = [result.text.encode() for result in expected]
    assert actual["translation"].numpy().tolist() == texts
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(text_operators_library())
    session = onnxruntime.InferenceSession(str(own / "files" / "translate.onnx"), options)
    translations, _ = session.run(None, {"text": np.array(TEXTS, object)})
    assert [row[0].encode() for row in translations] == texts


@needs_node()
@needs(*WEB_PACKAGES)
def test_page_has_own_settings(own, expected, small):
    command = ["node", own / "files" / "web" / "translate-cli.mjs", *TEXTS]
    done = subprocess.run([*command, PARAGRAPH], capture_output=True, text=True, check=True)
    whole = small.translate([PARAGRAPH], split_sentences=False, **SEARCH)
    assert done.stdout.splitlines() == [result.text for result in (*expected, *whole)]
    changed = [*command[:2], "--early-stopping", "never", "--forced-eos", "false", *TEXTS]
    done = subprocess.run(changed, capture_output=True, text=True, check=True)
    settings = {**SEARCH, "early_stopping": "never", "forced_eos": False}
    assert done.stdout.splitlines() == [
        result.text for result in small.translate(TEXTS, **settings)
    ]
    wrong = [*command[:2], "--early-stopping", "maybe", "a"]
    done = subprocess.run(wrong, capture_output=True, text=True)
    problem = "early_stopping: expected one of false, true, never, got maybe."
    assert (done.stderr.strip(), done.returncode) == (problem, 1)


def test_translate_uses_own_settings(own, expected):
    path = own / "files" / "translate.onnx"
    done = CliRunner().invoke(main.app, ["translate", str(path), *TEXTS])
    assert done.stdout.splitlines() == [result.text for result in expected]


@pytest.mark.parametrize("file", ["files/translate.onnx", "bundle"])
def test_inspect_shows_own_settings(own, file):
    shown = CliRunner().invoke(main.app, ["inspect", str(own / file)]).stdout
    assert re.search(r"early_stopping +│ false, true, never +│ false", shown)
    assert re.search(r"beam_size +│ integer +│ 3 ", shown)
    assert inspect(own / file)["settings"]["length_penalty_form"]["default"] == "length"


def test_server_uses_own_settings(opened):
    served = ServedModel(opened["translate.onnx"], ServerSettings())
    try:
        assert dict(served.work({}).settings) == SEARCH
        assert dict(served.work({"beam_size": 2}).settings) == {**SEARCH, "beam_size": 2}
    finally:
        served.stop()


@pytest.mark.parametrize(
    ("search", "problem"),
    [
        ({"beams": 4}, "settings: unknown name 'beams'. Did you mean 'beam_size'?"),
        ({"beam_size": 0}, "beam_size: expected an integer of at least 1 and at most 80, got 0."),
        ({"max_length": 33}, "max_length: expected an integer of at least 1 and at most 32, got"),
        ({"forced_eos": "yes"}, "forced_eos: expected one of false, true, got 'yes'."),
    ],
)
def test_impossible_defaults_are_refused(translator, search, problem):
    with pytest.raises(ValueError) as error:
        Translator(translator.model, translator.source_tokenizer, search=search)
    assert str(error.value).startswith(problem)
