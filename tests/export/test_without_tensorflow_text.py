"""Training and ONNX files where TensorFlow Text is not installed, as on Windows."""

import sys

import numpy as np
import pytest
from forked_programs import run_program

import tfk_transformer as tfk
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.runtime_environment import install_line
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

pytestmark = pytest.mark.usefixtures("few_probes")
MISSING = (
    "a SavedModel needs tensorflow_text, which runs its tokenizers, and it is not installed. "
    f"Install it with: {install_line('tensorflow')} (on Windows, which has no "
    "tensorflow_text, only in WSL), or use ONNX files: export --format onnx"
)
COMMANDS = """
import sys
sys.modules["tensorflow_text"] = None
from tfk_transformer.apps.cli.main import main
main()
"""
TEXTS = [
    "",
    " \n",
    "forty-two",
    "Ünïcödé ﬁ ½ 中",
    "one hundred",
    "  seven  three ",
    "\u0085x\u0085",
]


@pytest.fixture
def without_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)


def fresh(tokenizer):
    """The same tokenizer, whose TensorFlow functions are not traced yet."""
    return SubwordTokenizer(tokenizer.model)


def test_ids_and_texts_are_those_of_tensorflow_text(translator, monkeypatch):
    tokenizer = translator.target_tokenizer
    ids = fresh(tokenizer).graph_encode(TEXTS).numpy()
    random_ids = np.random.default_rng(0).integers(0, tokenizer.vocab_size, (101, 7), "int32")
    rows = [ids, random_ids, ids[:, :0]]
    texts = [fresh(tokenizer).graph_decode(part).numpy().tolist() for part in rows]
    no_ids = fresh(tokenizer).graph_encode(np.array([], object)).numpy()

    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    alone = fresh(tokenizer)
    np.testing.assert_array_equal(alone.graph_encode(TEXTS), ids)
    assert alone.graph_encode(TEXTS).dtype == "int32"
    np.testing.assert_array_equal(alone.graph_encode(np.array([], object)), no_ids)
    assert [alone.graph_decode(part).numpy().tolist() for part in rows] == texts


def test_keras_translates_the_same(small, monkeypatch):
    texts = ["one", "forty-two", "one hundred and seven"]
    translations, scores = small.translate(texts, beam_size=3), small.score(texts, texts)
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    alone = Translator(small.model, fresh(small.source_tokenizer))
    assert alone.translate(texts, beam_size=3) == translations
    np.testing.assert_array_equal(alone.score(texts, texts), scores)


@pytest.mark.long  # trains, and exports three formats
def test_commands_train_export_and_translate(tmp_path, recipe):
    def run(*arguments):
        return run_program([sys.executable, "-c", COMMANDS, *arguments], cwd=tmp_path)

    data = ["--data", recipe.data, "--validation-data", recipe.data, "--evaluate-every", "1"]
    sizes = ["--preset", "tiny", "--vocab-size", "80", "--epochs", "1"]
    trained = run("train", *data, *sizes, "--out", "bundle")
    assert trained.returncode == 0, trained.stderr

    refused = run("export", "bundle", "--out", "files")
    assert (refused.returncode, refused.stderr) == (1, f"error: {MISSING}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]

    formats = ["--format", "onnx", "--format", "onnx_steps", "--format", "onnx_int8"]
    exported = run("export", "bundle", "--out", "files", *formats)
    assert exported.returncode == 0, exported.stderr
    for model in ("bundle", "files/translate.onnx", "files/translate.int8.onnx"):
        done = run("translate", model, "forty-two")
        assert (done.returncode, done.stderr) == (0, ""), model
        assert done.stdout.count("\n") == 1


def test_classifier_is_exported_to_onnx(tmp_path, without_text):
    texts = ["eins", "one", "zwei", "two", "drei", "three"]
    tokenizer = SubwordTokenizer.train(texts, vocab_size=20)
    config = tfk.ClassifierConfig.preset(
        "tiny", model_dim=32, ff_dim=64, vocab_size=tokenizer.vocab_size, num_classes=2
    )
    model = tfk.EncoderClassifier(config)
    model.build()
    classifier = TextClassifier(model, tokenizer, ["de", "en"], probes=texts)
    tfk.export(classifier, tmp_path / "files", ["onnx"])
    opened = tfk.load(tmp_path / "files" / "classify.onnx").classify(texts)
    assert [actual.label for actual in opened] == [
        actual.label for actual in classifier.classify(texts)
    ]
    with pytest.raises(ImportError) as error:
        tfk.export(classifier, tmp_path / "more")
    assert str(error.value) == MISSING
    assert [path.name for path in tmp_path.iterdir()] == ["files"]


def test_saved_model_is_refused(exported, translator, tmp_path, without_text):
    with pytest.raises(ImportError) as error:
        tfk.load(exported / "saved_model")
    assert str(error.value) == MISSING
    with pytest.raises(ImportError) as error:
        translator.export(tmp_path / "model")
    assert str(error.value) == MISSING
    assert [*tmp_path.iterdir()] == []
