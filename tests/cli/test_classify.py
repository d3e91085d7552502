"""`classify` on each kind of model."""

import functools
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
from run_wide import made_once

from tfk_transformer.config.model_options import ClassifierConfig
from tfk_transformer.datasets.numbers import spell
from tfk_transformer.export.exporting import export
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer


def train_classifier():
    """Return a classifier trained for seconds to tell German from English number words below
    100.
    """
    keras.utils.set_random_seed(0)
    texts, languages = zip(
        *[(spell(n, language), i) for n in range(100) for i, language in enumerate(("de", "en"))],
        strict=True,
    )
    tokenizer = SubwordTokenizer.train(texts, vocab_size=60)
    sizes = {"vocab_size": tokenizer.vocab_size, "num_classes": 2, "max_length": 32}
    sizes |= {"model_dim": 32, "ff_dim": 64, "encoder_layers": 1}
    model = EncoderClassifier(ClassifierConfig.preset("tiny", **sizes))
    model.compile(
        keras.optimizers.Adam(3e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    model.fit(tokenizer.graph_encode(texts), np.array(languages), epochs=12, verbose=0)
    return TextClassifier(model, tokenizer, ["German", "English"], probes=texts)


@pytest.fixture(scope="module")
def paths():
    """Its bundle and its exported files, by kind."""
    folder = made_once("languages", lambda folder: save_and_export(train_classifier(), folder))
    return {
        "bundle": folder / "bundle",
        "saved_model": folder / "export" / "saved_model",
        "onnx": folder / "export" / "classify.onnx",
    }


@pytest.fixture(scope="module")
def classifier(paths):
    """The classifier, loaded."""
    return TextClassifier.load(paths["bundle"])


def save_and_export(classifier, folder):
    classifier.save(folder / "bundle")
    export(classifier, folder / "export", ["saved_model", "onnx"])


@pytest.fixture(params=["bundle", "saved_model", "onnx"])
def model(request, paths):
    return paths[request.param]


@pytest.fixture
def classify(run):
    """Run the command `classify`."""
    return functools.partial(run, "classify")


def test_each_text_gets_a_label(classify, model):
    assert classify(model, "sieben", "forty-two") == (0, "German\nEnglish\n", "")


def test_stdin_lines_keep_their_order(classify, model):
    assert classify(model, stdin="forty-two\n\nfünf\n".encode()) == (0, "English\n\nGerman\n", "")


def test_file_is_classified_to_file(classify, model, tmp_path):
    (tmp_path / "in.txt").write_text("sieben\nseven\n")
    assert classify(model, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt") == (
        0,
        "",
        "",
    )
    assert (tmp_path / "out.txt").read_text() == "German\nEnglish\n"


def test_json_has_all_probabilities(classify, model, classifier):
    status, out, _ = classify(model, "sieben", "forty-two", "--json")
    records = [json.loads(line) for line in out.splitlines()]
    expected = classifier.classify(["sieben", "forty-two"])
    assert status == 0
    assert [(r["text"], r["label"]) for r in records] == [
        ("sieben", "German"),
        ("forty-two", "English"),
    ]
    assert [r["probability"] for r in records] == pytest.approx(
        [c.probability for c in expected], abs=1e-5
    )
    assert [r["probabilities"] for r in records] == [
        pytest.approx(c.probabilities, abs=1e-5) for c in expected
    ]


def test_onnx_needs_no_tensorflow(paths):
    code = (
        "import runpy, sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
        "runpy.run_module('tfk_transformer')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "classify", paths["onnx"], "sieben"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "German\n", "")


def test_a_translator_is_refused(classify, exported):
    status, out, error = classify(exported / "translate.onnx", "seven")
    assert (status, out) == (1, "")
    assert error.startswith("error: ")
    assert error.count("\n") == 1
