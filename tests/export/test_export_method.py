"""`export` of translators and classifiers, with the arguments of `keras.Model.export`."""

import inspect

import keras
import pytest

from tfk_transformer.config.model_options import ClassifierConfig
from tfk_transformer.export import formats
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.to_web.npm_packages import find_packages
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator

pytestmark = pytest.mark.usefixtures("few_probes")


@pytest.fixture(scope="module")
def classifier(small):
    keras.utils.set_random_seed(0)
    sizes = {"model_dim": 18, "ff_dim": 13, "num_heads": 3, "encoder_layers": 1, "max_length": 24}
    model = EncoderClassifier(
        ClassifierConfig(vocab_size=small.source_tokenizer.vocab_size, num_classes=3, **sizes)
    )
    model.build()
    return TextClassifier(model, small.source_tokenizer, ["a", "b", "c"])


def test_export_arguments_match_keras():
    keras_arguments = list(inspect.signature(keras.Model.export).parameters.values())
    for pipeline_class in (Translator, TextClassifier):
        arguments = list(inspect.signature(pipeline_class.export).parameters.values())
        assert [(p.name, p.default) for p in arguments] == [
            (p.name, p.default) for p in keras_arguments[: len(arguments)]
        ]


def test_translator_exports_one_onnx(small, tmp_path, capsys):
    figures = small.export(tmp_path / "made" / "model.onnx", format="onnx", verbose=True)
    assert figures["ids"] == "equal"
    assert figures["onnx"]["largest_score_difference"] < 1e-4
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == f"Saved artifact at '{tmp_path / 'made' / 'model.onnx'}'."
    )
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["model.onnx"]
    texts = ["seven", "forty-two"]
    actual, expected = (
        each.translate(texts) for each in (load(tmp_path / "made" / "model.onnx"), small)
    )
    assert [translation.text for translation in actual] == [
        translation.text for translation in expected
    ]


@pytest.mark.long  # an export; tests/web visits such a page
def test_web_export_is_a_folder(small, tmp_path):
    try:
        find_packages()
    except ValueError as error:
        pytest.skip(str(error))
    figures = small.export(tmp_path / "page", format="web")
    assert figures["ids"] == "equal"
    assert figures["web"]["largest_score_difference"] < 1e-4
    assert [path.name for path in tmp_path.iterdir()] == ["page"]
    assert (tmp_path / "page" / "index.html").is_file()


def test_classifier_default_saved_model(classifier, tmp_path, capsys):
    figures = classifier.export(tmp_path / "model")
    assert figures["labels"] == "equal"
    assert capsys.readouterr().out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "saved_model.pb").is_file()
    texts = ["seven", "forty-two"]
    actual, expected = (each.classify(texts) for each in (load(tmp_path / "model"), classifier))
    assert [result.label for result in actual] == [result.label for result in expected]


def test_bad_format_or_path_is_refused(small, classifier, tmp_path):
    known = "tf_saved_model, onnx, onnx_int8, ctranslate2, huggingface, web, web_int8"
    for format, more in (("litert", ""), ("saved_model", " Did you mean 'tf_saved_model'?")):
        with pytest.raises(ValueError) as error:
            small.export(tmp_path / "model", format)
        assert str(error.value) == f"format: expected one of {known}, got '{format}'.{more}"
    with pytest.raises(
        ValueError, match="^format: expected one of tf_saved_model, onnx, got 'onnx_int8'."
    ):
        classifier.export(tmp_path / "model", "onnx_int8")
    (tmp_path / "model.onnx").write_text("mine")
    with pytest.raises(
        ValueError,
        match=(
            "^filepath: expected a new file, got .*model.onnx, which exists; choose another "
            "name or remove it.$"
        ),
    ):
        small.export(tmp_path / "model.onnx", "onnx")
    with pytest.raises(
        ValueError, match="options that MarianMT of Hugging Face does not support: norm 'pre'"
    ):
        small.export(tmp_path / "model", "huggingface")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert (tmp_path / "model.onnx").read_text() == "mine"


def test_keras_names_cover_formats():
    assert {name for name, _ in formats.keras_formats(is_classifier=False).values()} == set(
        formats.TRANSLATOR_FORMATS
    ) - {"onnx_steps"}
    assert {name for name, _ in formats.keras_formats(is_classifier=True).values()} == set(
        formats.CLASSIFIER_FORMATS
    )
