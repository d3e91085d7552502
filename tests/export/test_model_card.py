"""Descriptions in ONNX files, which viewers and programs in any language read."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.config.model_options import ClassifierConfig, LanguageModelConfig
from tfk_transformer.constants import __version__
from tfk_transformer.export.exporting import with_shortlist
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.to_onnx.onnx_file import OnnxFiles, describe, model_card
from tfk_transformer.export.to_onnx.onnx_models import (
    classify_graph,
    generate_graph,
    probabilities_graph,
)
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator

SAVED = Path(__file__).parents[1] / "saved_files"
SENTENCES = {
    "translate.onnx": (
        "Translates texts from en to de; the tokenizers and the beam search are in the graph."
    ),
    "generate.onnx": "Translates token ids from en to de; the beam search is in the graph.",
    "score.onnx": (
        "Computes the log-probability of each token of given target ids, and the attention."
    ),
    "tokenizer.onnx": (
        "Splits texts into the token ids that encoder.onnx or decoder_step.onnx reads."
    ),
    "encoder.onnx": "Encodes source ids into the memory that decoder_step.onnx reads.",
    "decoder_step.onnx": (
        "Computes one decoding step: logits, the next token and the next KV cache."
    ),
}
CARD_OF_NUMBERS = {
    "task": "translation",
    "source_language": "en",
    "target_language": "de",
    "input": "one sentence of at most 32 tokens, including the end token",
    "weights": "32-bit floats",
    "written_by": f"tfk-transformer {__version__}",
}
CARD_OF_SAVED_BUNDLE = {
    "task": "translation",
    "input": "one sentence of at most 24 tokens, including the end token",
    "parameters": 5872,
    "weights": "32-bit floats",
    "metrics": {
        "val_accuracy": 0.9988571405410767,
        "val_loss": 0.8326520323753357,
        "val_perplexity": 1.1685229539871216,
    },
    "written_by": f"tfk-transformer {__version__}",
}


@pytest.fixture(scope="module")
def small():
    """A translator of 6,000 parameters, trained by an earlier version."""
    return Translator.load(SAVED / "bundle")


@pytest.mark.parametrize("name", SENTENCES)
def test_file_names_its_producer_and_purpose(exported, name):
    model = onnx.load(exported / name)
    assert (model.producer_name, model.producer_version) == ("tfk_transformer", __version__)
    assert (model.domain, model.model_version) == ("tfk_transformer", 1)
    assert model.graph.doc_string == SENTENCES[name]


@pytest.mark.parametrize("name", SENTENCES)
def test_file_has_languages_and_card(exported, translator, name):
    metadata = {entry.key: entry.value for entry in onnx.load(exported / name).metadata_props}
    assert (metadata["source_language"], metadata["target_language"]) == ("en", "de")
    assert "model_license" not in metadata
    card = json.loads(metadata["model_card"])
    parameters = translator.model.count_params()
    assert card == {**CARD_OF_NUMBERS, "description": SENTENCES[name], "parameters": parameters}
    assert inspect(exported / name)["model_card"] == card


def test_onnxruntime_reads_the_description(exported):
    session = onnxruntime.InferenceSession(exported / "generate.onnx")
    description = session.get_modelmeta()
    assert description.graph_description == SENTENCES["generate.onnx"]
    assert (description.producer_name, description.domain, description.version) == (
        "tfk_transformer",
        "tfk_transformer",
        1,
    )


def test_description_does_not_change_ids(exported, tmp_path):
    model = onnx.load(exported / "generate.onnx")
    model.graph.ClearField("doc_string")
    for field in ("producer_name", "producer_version", "domain", "model_version"):
        model.ClearField(field)
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "plain.onnx")
    inputs = {
        "source_ids": np.array([[17, 4, 55, 2], [9, 2, 0, 0]], "int32"),
        "n_best": np.array(3, "int32"),
    }
    described, plain = (
        open_session(path).run(None, inputs)
        for path in (exported / "generate.onnx", tmp_path / "plain.onnx")
    )
    np.testing.assert_array_equal(described[0], plain[0])
    np.testing.assert_array_equal(described[1], plain[1])


def test_file_of_earlier_version_has_no_card():
    path = SAVED / "translate.onnx"
    assert inspect(path)["model_card"] is None
    assert OnnxTranslator(path).translate(["seven"])[0].text == "sieben"


def test_card_of_unknown_languages(small):
    assert model_card(small) == CARD_OF_SAVED_BUNDLE
    assert model_card(small, has_int8_weights=True)["weights"] == "8-bit integers"


def test_shortlist_keeps_metrics(small):
    pairs = f"files:{SAVED / 'en.txt'},{SAVED / 'de.txt'}"
    card = model_card(with_shortlist(small, pairs))
    assert card["metrics"] == CARD_OF_SAVED_BUNDLE["metrics"]


def test_card_of_whole_texts(small):
    config = small.model.config.replace(split_sentences=False)
    model = type(small.model)(config)
    model.build()
    card = model_card(Translator(model, small.source_tokenizer, small.target_tokenizer))
    assert card["task"] == "text2text-generation"
    assert card["input"] == "one text of at most 24 tokens, including the end token"


def test_card_of_prompts(small):
    sizes = {"model_dim": 18, "ff_dim": 13, "num_heads": 3, "decoder_layers": 1, "max_length": 23}
    vocab_size = small.source_tokenizer.vocab_size
    model = LanguageModel(LanguageModelConfig(vocab_size=vocab_size, **sizes))
    model.build()
    continuer = Translator(model, small.source_tokenizer)
    graph = generate_graph(continuer)
    describe([graph], model_card(continuer))
    card = json.loads(graph.metadata_props["model_card"])
    assert card["task"] == "text-generation"
    assert card["input"] == "one prompt of at most 23 tokens, including the end token"
    assert card["description"] == "Continues token ids; the beam search is in the graph."


def test_card_of_classifier(small):
    keras.utils.set_random_seed(0)
    sizes = {"model_dim": 18, "ff_dim": 13, "num_heads": 3, "encoder_layers": 1, "max_length": 23}
    model = EncoderClassifier(ClassifierConfig(vocab_size=60, num_classes=3, **sizes))
    model.build()
    classifier = TextClassifier(model, small.source_tokenizer, ["a", "b", "c"])
    probabilities = probabilities_graph(classifier)
    classify = classify_graph(probabilities, classifier)
    describe([probabilities, classify], model_card(classifier))
    assert probabilities.graph.doc_string == (
        "Computes the probabilities of 3 labels from token ids."
    )
    assert json.loads(classify.metadata_props["model_card"]) == {
        "description": "Classifies texts by 3 labels.",
        "task": "text-classification",
        "labels": ["a", "b", "c"],
        "input": "one text of at most 23 tokens, including the end token",
        "parameters": model.count_params(),
        "weights": "32-bit floats",
        "written_by": f"tfk-transformer {__version__}",
    }


@pytest.fixture(scope="module")
def imported_file(small, tmp_path_factory):
    """A file of a model whose license forbids commercial use."""
    origin = {
        "family": "marian",
        "name": "opus",
        "license": "cc-by-nc-4.0",
        "notes": ["no string"],
        "description": "no fact of a card",
    }
    translator = Translator(
        small.model, small.source_tokenizer, small.target_tokenizer, origin=origin
    )
    models = {"generate.onnx": generate_graph(translator)}
    describe(models.values(), model_card(translator))
    folder = tmp_path_factory.mktemp("imported")
    OnnxFiles(models, folder, small.model.config, {"search": translator.runtime.rules})
    return folder / "generate.onnx"


def test_card_of_imported_model(imported_file):
    metadata = {entry.key: entry.value for entry in onnx.load(imported_file).metadata_props}
    assert metadata["model_license"] == "cc-by-nc-4.0"
    card = inspect(imported_file)["model_card"]
    assert (card["family"], card["name"], card["license"]) == ("marian", "opus", "cc-by-nc-4.0")
    assert card["description"] == "Translates token ids; the beam search is in the graph."
    assert "notes" not in card


def test_inspect_prints_card_and_warns_of_license(imported_file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    done = CliRunner().invoke(main.app, ["inspect", str(imported_file)])
    assert done.exit_code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines()]
    assert ["license", "cc-by-nc-4.0"] in rows
    assert ["task", "translation"] in rows
    assert done.stderr.startswith("warning: the license of opus, cc-by-nc-4.0, forbids commercial")


def test_broken_card_is_refused(imported_file, tmp_path):
    path = shutil.copy(imported_file, tmp_path)
    model = onnx.load(path)
    (entry,) = (entry for entry in model.metadata_props if entry.key == "model_card")
    entry.value = "[1]"
    onnx.save(model, path)
    with pytest.raises(ValueError, match=r"the model card of .*: expected a JSON object, got list"):
        inspect(path)
