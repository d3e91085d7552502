import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
from forked_programs import run_program
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from tfk_transformer import load
from tfk_transformer.config.model_options import ClassifierConfig, TransformerConfig
from tfk_transformer.datasets.numbers import spell
from tfk_transformer.export import parity
from tfk_transformer.export.exporting import _exact_float32, export
from tfk_transformer.export.runtime import sessions
from tfk_transformer.export.runtime.onnx_runtime import OnnxClassifier, OnnxTranslator
from tfk_transformer.export.runtime.saved_model_runtime import (
    SavedModelClassifier,
    SavedModelTranslator,
)
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.to_saved_model.writer import WARM_UP
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.results import Classification
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

LANGUAGES = ["de", "en"]
MAX_LENGTH = 32
TEXTS = [
    "zweiundvierzig",
    "one hundred ninety-nine",
    "",
    "sieben",
    " \n",
    "seven",
    "no number at all",
    "Ünïcödé ﬁ ½ 中",
]


@pytest.fixture(scope="module")
def classifier():
    """One trained in seconds to tell the language of a number below 300."""
    keras.utils.set_random_seed(0)
    texts, languages = zip(
        *[(spell(n, language), i) for n in range(300) for i, language in enumerate(LANGUAGES)],
        strict=True,
    )
    tokenizer = SubwordTokenizer.train(texts, vocab_size=80)
    sizes = {"vocab_size": tokenizer.vocab_size, "num_classes": 2, "max_length": MAX_LENGTH}
    model = EncoderClassifier(ClassifierConfig.preset("tiny", model_dim=32, ff_dim=64, **sizes))
    model.compile(
        keras.optimizers.Adam(3e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    model.fit(tokenizer.graph_encode(texts), np.array(languages), epochs=4, verbose=0)
    return TextClassifier(model, tokenizer, LANGUAGES, probes=texts[::5])


@pytest.fixture(scope="module")
def saved(classifier, tmp_path_factory):
    """Its bundle."""
    path = tmp_path_factory.mktemp("bundle") / "languages"
    classifier.save(path, {"loss": [0.5, 0.25]}, {"accuracy": 1.0})
    return path


@pytest.fixture(scope="module")
def files(classifier, tmp_path_factory):
    """Its SavedModel and ONNX files."""
    path = tmp_path_factory.mktemp("export") / "languages"
    export(classifier, path)
    return path


@pytest.fixture(scope="module")
def signatures(files):
    return tf.saved_model.load(str(files / "saved_model")).signatures


def closely(classifications: list[Classification]) -> list:
    """Classifications, to be compared up to rounding."""
    return [
        (
            c.source,
            c.label,
            pytest.approx(c.probability, abs=1e-5),
            pytest.approx(c.probabilities, abs=1e-5),
        )
        for c in classifications
    ]


def test_classify_tells_language(classifier):
    actual = classifier.classify([spell(n, language) for n in range(300) for language in LANGUAGES])
    assert (
        np.mean([c.label == language for c, language in zip(actual, LANGUAGES * 300, strict=True)])
        > 0.98
    )


def test_probabilities_are_softmax(classifier):
    (actual,) = classifier.classify(["zweiundvierzig"])
    logits = np.array(
        classifier.model(np.array([[*classifier.tokenizer.encode(["zweiundvierzig"])[0], 2]])),
        "float64",
    )[0]
    expected = np.exp(logits) / np.exp(logits).sum()
    assert list(actual.probabilities) == LANGUAGES
    np.testing.assert_allclose(list(actual.probabilities.values()), expected, atol=1e-6)
    assert (actual.source, actual.label, actual.probability) == (
        "zweiundvierzig",
        "de",
        actual.probabilities["de"],
    )


def test_results_ignore_batch_size(classifier):
    whole, single = classifier.classify(TEXTS), classifier.classify(TEXTS, batch_size=1)
    assert [c.source for c in whole] == TEXTS
    assert whole == closely(single)
    assert classifier.classify([]) == []


def test_blank_text_has_no_label(classifier):
    assert classifier.classify(["", " \n"]) == [
        Classification(text, "", 0.0, {"de": 0.0, "en": 0.0}) for text in ("", " \n")
    ]


@pytest.mark.parametrize("kind", ["bundle", "ONNX"])
def test_bad_texts_are_refused(classifier, files, kind):
    reader = classifier if kind == "bundle" else OnnxClassifier(files / "classify.onnx")
    for texts, message in (
        ("seven", r"texts: expected a list of strings, got one string; write \['seven'\]"),
        (["seven", 7], "texts: expected strings, got int at index 1"),
        (
            ["two", "one " * 999],
            r"at most 32 tokens each, got more in 1: number 2 \('one one .*', 999 words\)",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            reader.classify(texts)
    with pytest.raises(ValueError, match="batch_size: expected at least 1, got 0"):
        reader.classify(["seven"], batch_size=0)


def test_graph_isolates_too_long_text(classifier):
    texts = np.array(["zweiundvierzig", "one " * 99, ""])
    outputs = classifier.runtime.run("classify", {"text": texts})
    assert outputs["label"].numpy().tolist() == [b"de", b"", b""]
    (alone,) = classifier.classify(["zweiundvierzig"])
    np.testing.assert_allclose(
        outputs["probabilities"],
        [list(alone.probabilities.values()), [np.nan] * 2, [0.0] * 2],
        atol=1e-6,
    )
    np.testing.assert_allclose(outputs["probability"], [alone.probability, np.nan, 0.0], atol=1e-6)


def test_longest_text_is_classified(classifier):
    token = classifier.tokenizer.encode(["eins"])[0][0]
    ids = np.zeros((2, MAX_LENGTH + 3), "int32")
    ids[0, :MAX_LENGTH], ids[1, : MAX_LENGTH + 1] = token, token
    probabilities = classifier.functions.probabilities(tf.constant(ids)).numpy()
    assert np.isnan(probabilities).tolist() == [[False] * 2, [True] * 2]


def test_classifier_round_trip(classifier, saved):
    loaded = TextClassifier.load(saved)
    for one, other in zip(classifier.model.get_weights(), loaded.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (loaded.labels, loaded.probes) == (LANGUAGES, classifier.probes)
    assert loaded.classify(TEXTS) == closely(classifier.classify(TEXTS))
    names = [
        "config.json",
        "history.json",
        "labels.json",
        "metrics.json",
        "model.safetensors",
        "probes.txt",
        "source.model",
    ]
    assert sorted(path.name for path in saved.iterdir()) == names
    assert json.loads((saved / "history.json").read_text()) == {"loss": [0.5, 0.25]}
    assert json.loads((saved / "metrics.json").read_text()) == {"accuracy": 1.0}


def test_saving_keeps_labels_and_probes(classifier, tmp_path):
    labels, probes = ["中文 ½", "en\n"], ["eins\nzwei", "three\r\nfour"]
    TextClassifier(classifier.model, classifier.tokenizer, labels, probes).save(tmp_path / "again")
    loaded = TextClassifier.load(tmp_path / "again")
    assert loaded.labels == labels
    assert classifier.tokenizer.encode(loaded.probes) == classifier.tokenizer.encode(probes)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "source.model", "labels.json"]
)
def test_incomplete_bundle_is_refused(saved, tmp_path, name):
    copy = shutil.copytree(saved, tmp_path / "copy")
    (copy / name).write_bytes((copy / name).read_bytes()[:9])
    with pytest.raises(ValueError, match="expected JSON|do not load|SentencePiece"):
        TextClassifier.load(copy)
    (copy / name).unlink()
    with pytest.raises(
        ValueError,
        match=(
            "expected a folder that `train` or `TextClassifier.save` wrote, got .*copy without "
            f"{name}"
        ),
    ):
        TextClassifier.load(copy)


def test_bundle_error_names_its_reader(saved, tmp_path):
    with pytest.raises(
        ValueError,
        match=(
            "that Translator reads, got .*languages, which is for TextClassifier; open it with "
            "TextClassifier.load"
        ),
    ):
        Translator.load(saved)
    tokenizer = SubwordTokenizer.train(["one two three"] * 9, vocab_size=12)
    model = Transformer(
        TransformerConfig.preset("tiny", source_vocab_size=12, target_vocab_size=12)
    )
    model.build()
    Translator(model, tokenizer).save(tmp_path / "numbers")
    with pytest.raises(
        ValueError,
        match=(
            "that TextClassifier reads, got .*numbers, which is for Translator; open it with "
            "Translator.load"
        ),
    ):
        TextClassifier.load(tmp_path / "numbers")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["de"], "labels: expected 2 different strings, one for each class, got 1 in all."),
        (["de", "de", "en"], "got 'de' 2 times, 3 in all"),
        (["de", 7], "got 7, which is not a name"),
        (["de", " "], "got ' ', which is not a name"),
        ("de", "labels: expected a list of strings, got str"),
        ({"de": 0, "en": 1}, "labels: expected a list of strings, got dict"),
    ],
)
def test_bad_labels_are_refused(classifier, labels, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier(classifier.model, classifier.tokenizer, labels)


def test_model_and_tokenizer_must_fit(classifier):
    other = SubwordTokenizer.train(["one two three"] * 9, vocab_size=12)
    with pytest.raises(
        ValueError, match=f"tokenizer: expected {classifier.tokenizer.vocab_size} pieces, .* got 12"
    ):
        TextClassifier(classifier.model, other, LANGUAGES)
    model = Transformer(
        TransformerConfig.preset("tiny", source_vocab_size=12, target_vocab_size=12)
    )
    with pytest.raises(ValueError, match="model: expected an EncoderClassifier, got Transformer"):
        TextClassifier(model, other, LANGUAGES)


def test_onnx_classifies_like_keras(classifier, files):
    actual = OnnxClassifier(files / "classify.onnx", threads=1)
    assert actual.labels == LANGUAGES
    assert actual.classify(TEXTS, batch_size=3) == closely(classifier.classify(TEXTS))


def test_warm_up_covers_text_signatures(files, signatures):
    records = tf.data.TFRecordDataset(str(files / "saved_model" / WARM_UP)).as_numpy_iterator()
    requests = [PredictionLog.FromString(record).predict_log.request for record in records]
    assert {request.model_spec.signature_name for request in requests} == {
        "serving_default",
        "classify",
    }
    for request in requests:
        texts = tf.make_ndarray(request.inputs["text"])
        actual = signatures[request.model_spec.signature_name](text=tf.constant(texts))
        assert set(actual["label"].numpy()) <= {b"de", b"en"}
        assert actual["label"].shape == texts.shape


def test_saved_model_matches_keras(classifier, signatures):
    actual = signatures["serving_default"](text=tf.constant([*TEXTS, "one " * 99]))
    expected = classifier.classify(TEXTS)
    assert [label.decode() for label in actual["label"].numpy()] == [
        *(c.label for c in expected),
        "",
    ]
    np.testing.assert_allclose(
        actual["probability"], [*(c.probability for c in expected), np.nan], atol=1e-5
    )


def test_id_probabilities_match_keras(classifier, files, signatures):
    ids = parity.probe_ids(TEXTS, classifier.tokenizer, MAX_LENGTH)
    expected = [list(c.probabilities.values()) for c in classifier.classify(TEXTS)]
    np.testing.assert_allclose(
        signatures["probabilities"](source_ids=tf.constant(ids))["probabilities"],
        expected,
        atol=1e-5,
    )
    (actual,) = open_session(files / "probabilities.onnx").run(
        ["probabilities"], {"source_ids": ids}
    )
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_onnx_isolates_too_long_text(files):
    session = open_session(files / "classify.onnx", text_operators=True)
    outputs = ["label", "probability", "probabilities"]
    label, probability, probabilities = session.run(
        outputs, {"text": np.array(["zweiundvierzig", "one " * 99, ""], object)}
    )
    assert label.tolist() == ["de", "", ""]
    np.testing.assert_array_equal(np.isnan(probability), [False, True, False])
    np.testing.assert_array_equal(probabilities[1:], [[np.nan] * 2, [0.0] * 2])


def test_classify_without_onnxruntime_extensions(files, monkeypatch):
    texts = ["zweiundvierzig", "one " * 99, "", "seven"]
    inputs = {"text": np.array(texts, object)}
    expected = OnnxClassifier(files / "classify.onnx").runtime.run("classify", inputs)
    monkeypatch.setattr(sessions, "text_operators_library", lambda: None)
    outputs = OnnxClassifier(files / "classify.onnx").runtime.run("classify", inputs)
    assert expected["label"].tolist() == ["de", "", "", "en"]
    for name, values in expected.items():
        np.testing.assert_array_equal(outputs[name], values)


def test_probabilities_is_portable(files):
    model = onnx.load(files / "probabilities.onnx")
    onnx.checker.check_model(model)
    assert {node.domain for node in model.graph.node} <= {""}
    assert [(o.domain, o.version) for o in model.opset_import if not o.domain] == [("", 18)]


def test_half_model_exports_in_float32(classifier, tmp_path):
    """Its weights are those of chance, so that no probability is near 0 or 1."""
    keras.utils.set_random_seed(1)
    sizes = {
        "vocab_size": classifier.tokenizer.vocab_size,
        "num_classes": 5,
        "model_dim": 22,
        "num_heads": 11,
        "ff_dim": 37,
    }
    model = EncoderClassifier(
        ClassifierConfig(**sizes, encoder_layers=1, max_length=31, positions="learned"),
        dtype="mixed_bfloat16",
    )
    model.build()
    half = TextClassifier(model, classifier.tokenizer, list("abcde"))
    figures = export(half, tmp_path / "out", ["onnx"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "classify.onnx",
        "parity.json",
        "probabilities.onnx",
    ]
    assert figures["sentences"] == 100
    assert figures["onnx"]["largest_probability_difference"] < 1e-5
    actual = OnnxClassifier(tmp_path / "out" / "classify.onnx").classify(TEXTS)
    assert len({c.label for c in actual}) > 2
    assert all(0.05 < c.probability < 0.95 for c in actual if c.label)
    assert actual == closely(half.in_float32().classify(TEXTS))


def test_parity_in_json_and_metadata(classifier, files):
    figures = json.loads((files / "parity.json").read_text())
    assert (figures["sentences"], figures["labels"]) == (120, "equal")
    for name in ("saved_model", "onnx"):
        assert figures[name]["largest_probability_difference"] < parity.PROBABILITY_TOLERANCE
    metadata = OnnxClassifier(files / "classify.onnx").metadata
    assert metadata["config"] == classifier.model.config.model_dump(mode="json")
    assert metadata["labels"] == LANGUAGES
    assert metadata["parity"] == {"sentences": 120, "labels": "equal", **figures["onnx"]}


def test_differing_file_is_not_written(classifier, tmp_path, monkeypatch):
    from tfk_transformer.export import model_files

    def write_another(other, functions, *arguments, **constants):
        another = TextClassifier(other.model, other.tokenizer, other.labels[::-1])
        write(another, another.functions, *arguments, **constants)

    write = model_files.write_saved_model
    monkeypatch.setattr(model_files, "write_saved_model", write_another)
    with pytest.raises(
        parity.ParityError,
        match=(
            "SavedModel: expected the model's labels, got 120 of 120 .*'en' instead of 'de' for "
            ".*; .*out has the other formats: onnx"
        ),
    ):
        export(classifier, tmp_path / "out")
    assert not (tmp_path / "out" / "saved_model").exists()


def test_parity_compares_probabilities():
    expected = np.array([[0.25, 0.75], [np.nan, np.nan]])
    check = functools.partial(
        parity.check_difference, "x", "probabilities of 2 probe texts", expected, tolerance=1e-4
    )
    assert check(expected + 5e-5) == pytest.approx(5e-5)
    for other in (expected + 0.01, np.nan_to_num(expected), expected * np.nan):
        with pytest.raises(
            parity.ParityError, match="x: expected the model's probabilities of 2 probe texts"
        ):
            check(other)


def test_exact_float32_is_restored():
    setting = tf.config.experimental.tensor_float_32_execution_enabled
    with pytest.raises(KeyError), _exact_float32():
        assert not setting()
        raise KeyError
    assert setting()


SAVED_MODEL = """
import sys
for name in ("keras", "onnx", "onnxruntime", "tfk_transformer"):
    sys.modules[name] = None
import importlib.util, pathlib
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
# All of TensorFlow Text would import Keras for layers of its own; its operators stand alone.
text = pathlib.Path(importlib.util.find_spec("tensorflow_text").origin).parent
tf.load_op_library(str(text / "python/ops/_sentencepiece_tokenizer.so"))
model = tf.saved_model.load(sys.argv[1])
found = model.signatures["serving_default"](text=tf.constant(["zweiundvierzig", "forty-two"]))
print(found["label"].numpy().tolist(), model.labels().numpy().tolist(), model.max_length().numpy())
"""
ONNX = """
import sys
for name in ("tensorflow", "keras", "tensorflow_text", "tf2onnx", "onnx", "pydantic"):
    sys.modules[name] = None
from tfk_transformer.export.runtime.onnx_runtime import OnnxClassifier
results = OnnxClassifier(sys.argv[1]).classify(["zweiundvierzig", "forty-two"])
print([result.label for result in results])
"""


@pytest.mark.parametrize(
    ("code", "name", "printed"),
    [
        pytest.param(
            SAVED_MODEL,
            "saved_model",
            "[b'de', b'en'] [b'de', b'en'] 32",
            id="SavedModel",
            marks=pytest.mark.long,  # imports TensorFlow in a process of its own
        ),
        pytest.param(ONNX, "classify.onnx", "['de', 'en']", id="ONNX"),
    ],
)
def test_exported_file_runs_alone(files, code, name, printed):
    done = subprocess.run(
        [sys.executable, "-c", code, files / name],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    assert done.stdout == f"{printed}\n", done.stderr


@pytest.mark.parametrize("kind", ["bundle", "saved_model", "classify.onnx"])
def test_runtimes_classify_alike(classifier, saved, files, kind):
    model = load(saved if kind == "bundle" else files / kind)
    assert (
        type(model)
        is {
            "bundle": TextClassifier,
            "saved_model": SavedModelClassifier,
            "classify.onnx": OnnxClassifier,
        }[kind]
    )
    assert model.labels == LANGUAGES
    assert model.classify(TEXTS, batch_size=3) == closely(classifier.classify(TEXTS))
    with pytest.raises(
        ValueError,
        match=f"texts: expected at most {MAX_LENGTH} tokens each, got more in 1: number 2",
    ):
        model.classify(["seven", "one " * 99])
    assert not hasattr(model, "translate")


def test_translator_model_is_refused(exported):
    with pytest.raises(
        ValueError,
        match=(
            "expected the signature 'classify', got .*; it is a translator; open it with "
            "SavedModelTranslator"
        ),
    ):
        SavedModelClassifier(exported / "saved_model")


def test_wrong_kind_of_file_is_refused(saved, files):
    for opened, path, message in (
        (Translator.load, saved, "open it with TextClassifier.load"),
        (
            OnnxTranslator,
            files / "classify.onnx",
            "that OnnxTranslator reads, got .*classify.onnx, which is for OnnxClassifier; open it "
            "with OnnxClassifier",
        ),
        (
            SavedModelTranslator,
            files / "saved_model",
            r"signature 'translate', got \['classify', 'probabilities', 'serving_default'\] in .*; "
            "it is a classifier; open it with",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            opened(path)
    with pytest.raises(ValueError, match="which takes ids; use classify.onnx of the same export"):
        OnnxClassifier(files / "probabilities.onnx")
    with pytest.raises(ValueError, match="which is for OnnxClassifier"):
        OnnxTranslator(files / "probabilities.onnx")


def test_translate_command_is_refused(saved):
    command = [sys.executable, "-m", "tfk_transformer", "translate", saved, "seven"]
    done = run_program(command)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(
        f"error: MODEL: expected a translator, got {saved}, a classifier; use the command classify."
    )


def test_command_exports_classifier(saved, tmp_path):
    command = [
        sys.executable,
        "-m",
        "tfk_transformer",
        "export",
        saved,
        "--out",
        tmp_path / "out",
        "--format",
        "onnx",
    ]
    done = run_program(command)
    assert done.returncode == 0, done.stderr
    checked, run = done.stdout.splitlines()[-2:]
    assert checked.startswith("Checked: the same labels as Keras on ")
    assert run.startswith(f"Run it: tfk-transformer classify {tmp_path / 'out' / 'classify.onnx'}")
    assert (tmp_path / "out" / "classify.onnx").is_file()


def test_translator_refuses_classifier(classifier):
    with pytest.raises(
        ValueError,
        match="model: expected a Transformer, an Ensemble or a LanguageModel, got "
        "EncoderClassifier",
    ):
        Translator(classifier.model, classifier.tokenizer)


@pytest.mark.parametrize("shape", [(0, 3), (0, 0), (2, 0)])
def test_no_ids_give_zero_probabilities(signatures, files, shape):
    source = np.zeros(shape, "int32")
    actual = signatures["probabilities"](source_ids=tf.constant(source))["probabilities"].numpy()
    (other,) = open_session(files / "probabilities.onnx").run(None, {"source_ids": source})
    assert actual.tolist() == other.tolist() == [[0, 0]] * shape[0]


def test_unknown_ids_give_nan(signatures, files, classifier):
    source = np.array([[-1, 2], [classifier.tokenizer.vocab_size, 2], [5, 2]], "int32")
    actual = signatures["probabilities"](source_ids=tf.constant(source))["probabilities"].numpy()
    (other,) = open_session(files / "probabilities.onnx").run(None, {"source_ids": source})
    for probabilities in (actual, other):
        assert np.isnan(probabilities).tolist() == [[True, True], [True, True], [False, False]]


def test_no_texts_give_no_labels(signatures, files):
    """ONNX in a process of its own."""
    actual = signatures["classify"](text=tf.constant([], tf.string))
    assert (actual["label"].shape, actual["probability"].shape, actual["probabilities"].shape) == (
        (0,),
        (0,),
        (0, 2),
    )
    code = """
import sys, numpy as np
from tfk_transformer.export.runtime.sessions import open_session
session = open_session(sys.argv[1], text_operators=True)
print(*(found.shape for found in session.run(None, {"text": np.array([], object)})))
"""
    done = run_program([sys.executable, "-c", code, files / "classify.onnx"])
    assert (done.returncode, done.stdout) == (0, "(0,) (0,) (0, 2)\n"), done.stderr
