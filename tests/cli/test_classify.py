"""`classify` on each kind of model."""

import functools
import json
import subprocess
import sys

import pytest
from classifier_folder import classifier_paths

from tfk_transformer.pipelines.text_classifier import TextClassifier


@pytest.fixture(scope="module")
def classifier():
    """The classifier, loaded."""
    return TextClassifier.load(classifier_paths()["bundle"])


@pytest.fixture(params=["bundle", "saved_model", "onnx"])
def model(request):
    return classifier_paths()[request.param]


@pytest.fixture
def classify(run):
    """Run the command `classify`."""
    return functools.partial(run, "classify")


def test_each_text_gets_a_label(classify, model):
    assert classify(model, "sieben", "forty-two") == (0, "de\nen\n", "")


def test_stdin_lines_keep_their_order(classify, model):
    assert classify(model, stdin="forty-two\n\nfünf\n".encode()) == (0, "en\n\nde\n", "")


def test_file_is_classified_to_file(classify, model, tmp_path):
    (tmp_path / "in.txt").write_text("sieben\nseven\n")
    assert classify(model, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt") == (
        0,
        "",
        "",
    )
    assert (tmp_path / "out.txt").read_text() == "de\nen\n"


def test_json_has_all_probabilities(classify, model, classifier):
    status, out, _ = classify(model, "sieben", "forty-two", "--json")
    records = [json.loads(line) for line in out.splitlines()]
    expected = classifier.classify(["sieben", "forty-two"])
    assert status == 0
    assert [(r["text"], r["label"]) for r in records] == [
        ("sieben", "de"),
        ("forty-two", "en"),
    ]
    assert [r["probability"] for r in records] == pytest.approx(
        [c.probability for c in expected], abs=1e-5
    )
    assert [r["probabilities"] for r in records] == [
        pytest.approx(c.probabilities, abs=1e-5) for c in expected
    ]


def test_onnx_needs_no_tensorflow():
    code = (
        "import runpy, sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
        "runpy.run_module('tfk_transformer')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "classify", classifier_paths()["onnx"], "sieben"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "de\n", "")


def test_a_translator_is_refused(classify, exported):
    status, out, error = classify(exported / "translate.onnx", "seven")
    assert (status, out) == (1, "")
    assert error.startswith("error: ")
    assert error.count("\n") == 1
