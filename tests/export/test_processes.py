"""Translators in other processes: after a fork, and pickled."""

import multiprocessing
import pickle
import sys

import pytest
from forked_programs import run_program

from tfk_transformer.export.runtime.onnx_runtime import OnnxScorer, OnnxStreamer, OnnxTranslator

TEXTS = ["seven", "forty-two", "ninety-one"]


def translated(translator):
    return [translation.text for translation in translator.translate(TEXTS)]


def streamed(streamer):
    return "".join(streamer.stream("forty-two"))


def scored(scorer):
    return scorer.score(TEXTS[:1], TEXTS[:1]).tolist()


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_pickled_objects_work_alike(exported, start):
    """As `multiprocessing`, Beam, Ray and Spark send objects to their workers."""
    translator = OnnxTranslator(exported / "translate.onnx", threads=2)
    scorer, streamer = (
        OnnxScorer(exported / "score.onnx", threads=1),
        OnnxStreamer(exported, threads=1),
    )
    with multiprocessing.get_context(start).Pool(1) as pool:
        assert pool.apply(translated, [translator]) == translated(translator)
        assert pool.apply(scored, [scorer]) == scored(scorer)
        assert pool.apply(streamed, [streamer]) == streamed(streamer)


def test_pickle_has_path_and_threads(exported, monkeypatch):
    monkeypatch.chdir(exported)
    for threads in (3, None):
        pickled = pickle.dumps(OnnxTranslator("translate.onnx", threads))
        assert len(pickled) < 1000
        monkeypatch.chdir(exported.parent)
        again = pickle.loads(pickled)
        monkeypatch.chdir(exported)
        assert again.runtime.path == exported / "translate.onnx"
        assert (
            again.runtime.__reduce__()
            == OnnxTranslator("translate.onnx", threads).runtime.__reduce__()
        )
        assert translated(again)[1] == "zweiundvierzig"


def test_classifier_can_be_pickled(tmp_path):
    """Trained by nobody: only its labels are compared."""
    code = """
import pickle, sys
import tfk_transformer as tfk
tokenizer = tfk.SubwordTokenizer.train(["one two three"] * 9, vocab_size=12)
sizes = {"encoder_layers": 1, "model_dim": 8, "num_heads": 2}
model = tfk.EncoderClassifier(tfk.ClassifierConfig(vocab_size=12, num_classes=2, **sizes))
model.build()
classifier = tfk.TextClassifier(model, tokenizer, ["a", "b"], probes=["one", "two three"])
tfk.export(classifier, sys.argv[1], ["onnx"])
classifier = tfk.load(f"{sys.argv[1]}/classify.onnx")
again = pickle.loads(pickle.dumps(classifier))
assert again.classify(["one two"]) == classifier.classify(["one two"])
"""
    done = run_program([sys.executable, "-c", code, tmp_path / "files"])
    assert done.returncode == 0, done.stderr[-2000:]


IN_A_FORK = """
import multiprocessing, sys, warnings
warnings.simplefilter("ignore")
import tfk_transformer

def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

path, before, uses = sys.argv[1], sys.argv[2].split(), sys.argv[3:]
model = tfk_transformer.load(path)
calls = {
    "translate": lambda: model.translate(["forty-two"] * 3)[2].text,
    "stream": lambda: "".join(model.stream("forty-two")),
    "score": lambda: round(float(model.score(["two"], ["zwei"])[0]), 4),
    "score_tokens": lambda: model.score_tokens(["two"], ["zwei"])[0].tokens,
    "load": lambda: tfk_transformer.load(path).translate(["forty-two"])[0].text,
}
def run(name):
    return calls[name]()

results = {name: outcome(calls[name]) for name in before}
with multiprocessing.get_context("fork").Pool(1) as pool:
    for name in uses:
        print(results.get(name), pool.apply(outcome, [run, name]), sep=" | ")
"""
USES = ("translate", "stream", "score", "score_tokens", "load")


def in_a_fork(path, before=USES):
    """Return the outcomes of calls in a process, and then of all calls in a fork of it.

    A call that waits forever ends the test with an error.
    """
    done = run_program(
        [sys.executable, "-c", IN_A_FORK, path, " ".join(before), *USES], timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [line.split(" | ") for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "kind",
    [pytest.param("bundle", marks=pytest.mark.long), "saved_model"],  # a process each
)
def test_fork_refuses_tensorflow(bundle, exported, kind):
    path = bundle if kind == "bundle" else exported / "saved_model"
    actual = in_a_fork(path, before=["translate"])
    assert len(actual) == len(USES)
    assert "Error" not in actual[0][0]
    for _, after in actual:
        assert after.startswith("RuntimeError: TensorFlow already ran in process ")
        assert after.endswith(
            "start processes by 'spawn', or use OnnxTranslator, which works after a fork."
        )


def test_fork_keeps_onnx_results(exported):
    actual = in_a_fork(exported / "translate.onnx")
    assert len(actual) == len(USES)
    assert all(before == after and "Error" not in after for before, after in actual), actual
