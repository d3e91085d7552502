"""Confidences in the bundle, in every file and on the command line."""

import json
import shutil
import subprocess

import pytest
from number_files import PARAGRAPH, write_number_files
from typer.testing import CliRunner
from web_needs import NODE_MODULES, missing_packages, needs, needs_node

import tfk_transformer
from tfk_transformer import Translator, load
from tfk_transformer.apps.cli import main
from tfk_transformer.datasets.numbers import spell
from tfk_transformer.evaluation import evaluate
from tfk_transformer.export.exporting import with_shortlist
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime.saved_model_runtime import read_saved_model

pytestmark = pytest.mark.long  # the export to all formats takes 40 seconds
NUMBERS = range(0, 400, 2)  # the model has learned those below 200
TEXTS = ["forty-two", "three hundred", "two hundred ninety-seven", "seven"]
KINDS = ["bundle", "saved_model", "translate.onnx"]
WEB_PACKAGES = ("onnxruntime-web", "sentencepiece-js")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The spec of pairs of which the model translates about three quarters."""
    return write_number_files(tmp_path_factory.mktemp("pairs") / "data", NUMBERS)


@pytest.fixture(scope="module")
def own_translator(bundle):
    """A translator of this module, for `calibrated`."""
    translator = Translator.load(bundle)
    translator.probes = translator.probes[:12]
    return translator


@pytest.fixture(scope="module")
def calibrated(own_translator, data, few_probes, tmp_path_factory):
    """The folder of a calibrated bundle and of its files."""
    folder = tmp_path_factory.mktemp("calibrated")
    formats = ["saved_model", "onnx"]
    if shutil.which("node") and not missing_packages(*WEB_PACKAGES):
        formats.append("web")
    tfk_transformer.export(own_translator, folder / "files", formats, NODE_MODULES, calibrate=data)
    own_translator.save(folder / "bundle", metrics={"loss": 1.0})
    return folder


@pytest.fixture(scope="module")
def confident(calibrated, own_translator):
    """The translator that the export has calibrated."""
    return own_translator


@pytest.fixture(scope="module")
def opened(calibrated):
    """The bundle and the files."""
    return {kind: load(calibrated / ("" if kind == "bundle" else "files") / kind) for kind in KINDS}


def confidences(model, texts=TEXTS, **settings):
    return [translation.confidence for translation in model.translate(texts, **settings)]


def test_bundle_keeps_the_calibration(calibrated, opened, confident, translator):
    calibration = confident.calibration
    assert opened["bundle"].calibration == calibration
    assert (calibration.chrf, calibration.pairs) == (50.0, 200)
    assert 0.6 < calibration.right < 0.9
    stored = json.loads((calibrated / "bundle" / "metrics.json").read_text())
    assert stored == {"confidence": calibration._asdict(), "loss": 1.0}
    assert opened["bundle"].metrics == {"loss": 1.0}
    assert translator.calibration is None


def test_confidence_is_computed_from_the_score(confident):
    for translation in confident.translate(TEXTS, n_best=2):
        assert translation.confidence == confident.calibration.confidence(translation)
        assert 0 < translation.confidence < 1


@pytest.mark.parametrize("kind", KINDS)
def test_files_have_the_bundle_s_confidences(opened, confident, kind):
    model = opened[kind]
    texts = [spell(number, "en") for number in NUMBERS[::5]]
    assert model.calibration == confident.calibration
    assert confidences(model, texts) == pytest.approx(confidences(confident, texts), abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_confidence_needs_scores_with_the_same_meaning(opened, kind):
    model = opened[kind]
    assert all(confidences(model, beam_size=1))
    assert confidences(model, length_penalty=0.0) == [None] * 4
    prefixed = confidences(model, prefixes=["zwei", None, None, None])
    assert prefixed[0] is None
    assert all(prefixed[1:])


def test_glossary_s_changes_have_no_confidence(confident):
    plain = confidences(confident)
    changed = confidences(confident, glossary={"forty-two": "zweizig", "seven": "sieben"})
    assert changed[0] is None
    assert changed[1:] == plain[1:]


def test_text_is_as_sure_as_its_least_sure_sentence(confident):
    (text,) = confident.translate([PARAGRAPH])
    by_sentence = [sentence.confidence for sentence in text.sentences]
    assert len(by_sentence) == 5
    assert all(by_sentence)
    assert text.confidence == min(by_sentence)
    unread, blank = confident.translate(["42 😀!", " "])  # stays unchanged; is blank
    assert (unread.text, unread.confidence, blank.confidence) == ("42 😀!", None, None)
    # Kept characters are not a part of what the confidence is about.
    (kept,) = confident.translate(["seven 😀"])
    assert kept.kept_characters == 1
    assert kept.confidence == pytest.approx(confidences(confident, ["seven"])[0])


def test_copies_keep_the_calibration(confident, data):
    assert with_shortlist(confident, data).calibration == confident.calibration
    half = Translator(confident.model, confident.source_tokenizer)
    assert half.calibration is None
    assert confident.in_float32().calibration == confident.calibration


def test_files_without_a_calibration_have_no_confidence(models):
    for model in (models[kind] for kind in KINDS):
        assert model.calibration is None
        assert confidences(model) == [None] * 4


def test_signatures_are_unchanged(calibrated, saved_model):
    calibrated_model = read_saved_model(calibrated / "files" / "saved_model")
    plain, actual = (model.signatures for model in (saved_model, calibrated_model))
    assert sorted(plain) == sorted(actual)
    for name in plain:
        assert plain[name].structured_outputs == actual[name].structured_outputs


def test_inspect_shows_the_calibration(calibrated, confident):
    record = confident.calibration._asdict()
    for path in ("bundle", "files/translate.onnx"):
        assert inspect(calibrated / path)["facts"]["confidence"] == record


@needs_node()
@needs(*WEB_PACKAGES)
def test_node_has_the_same_confidences(calibrated, confident):
    texts = [spell(number, "en") for number in range(0, 400, 7)]
    # Sentences whose ends Intl.Segmenter and sentencex both find; one that stays unchanged.
    texts += [" forty-two.  seven!  two hundred ninety-seven?", "42!"]
    program = calibrated / "files" / "web" / "translate-cli.mjs"

    def run(*options):
        done = subprocess.run(
            ["node", program, "--json", *options],
            input="".join(f"{text}\n" for text in texts),
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line).get("confidence") for line in done.stdout.splitlines()]

    expected = confidences(confident, texts)
    assert expected[-1] is None
    assert run() == pytest.approx(expected, abs=1e-5)
    assert run("--length-penalty", "1") == [None] * len(texts)


def test_export_reports_the_fit(calibrated, confident, bundle, tmp_path):
    figures = json.loads((calibrated / "files" / "parity.json").read_text())
    assert figures["confidence"] == confident.calibration._asdict()
    few = write_number_files(tmp_path / "few", range(50))
    for language in ("en", "de"):
        (tmp_path / f"{language}.train.txt").write_text("one\n")
    # A missing split is refused before TensorFlow is loaded; pairs are counted later.
    for data, problem, is_late in (
        (few, "pairs: expected at least 100 pairs to calibrate with, got 50; use", True),
        (f"folder:{tmp_path}:en-de", "split: expected one of train, which folder:", False),
    ):
        arguments = ["export", str(bundle), "--format", "onnx", "--verbose", "--calibrate", data]
        done = CliRunner().invoke(main.app, [*arguments, "--out", str(tmp_path / "out")])
        assert done.exit_code == 1
        assert problem in str(done.exception)
        assert ("load TensorFlow" in done.stderr) is is_late
        assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="chrf: expected a number above 0 and up to 100, got 0."):
        Translator.load(bundle).calibrate([], chrf=0)


def test_commands_print_confidences(calibrated, confident, exported, data):
    run = CliRunner().invoke

    def translated(model, *options):
        done = run(main.app, ["translate", str(model), "--json", *options, *TEXTS, PARAGRAPH])
        return [json.loads(line) for line in done.stdout.splitlines()]

    model = calibrated / "files" / "translate.onnx"
    rows = translated(model)
    expected = confidences(confident, [*TEXTS, PARAGRAPH])
    assert [row["confidence"] for row in rows] == pytest.approx(expected, abs=1e-4)
    assert min(part["confidence"] for part in rows[4]["sentences"]) == rows[4]["confidence"]
    assert not any(
        "confidence" in row for row in translated(model, "--setting", "length_penalty=1")
    )
    assert not any("confidence" in row for row in translated(exported / "translate.onnx"))
    shown = run(main.app, ["evaluate", str(model), "--data", data, "--json"])
    figures = json.loads(shown.stdout)
    assert 0 < figures["expected_calibration_error"] < 0.15
    assert 0.7 < figures["auroc"] < 1


def test_evaluation_measures_confidences(confident, translator):
    pairs = [(spell(number, "en"), spell(number, "de")) for number in NUMBERS[::2]]
    figures, _ = evaluate(confident, pairs)
    assert 0 < figures.expected_calibration_error < 0.15
    assert 0.7 < figures.auroc < 1
    same, _ = evaluate(confident, [(text, "sieben") for text in ["seven"] * 3])
    assert same.auroc is None  # all are right
    sure = confidences(confident, ["seven"])[0]
    assert same.expected_calibration_error == pytest.approx(1 - sure)
    for plain in (
        evaluate(translator, pairs)[0],
        evaluate(confident, pairs, length_penalty=1.0)[0],
    ):
        assert (plain.expected_calibration_error, plain.auroc) == (None, None)
