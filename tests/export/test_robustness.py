"""Invalid input: the table of docs/exports.md, for Keras, SavedModel and ONNX, through classes and
through bare functions.
"""

import json
import re
import shutil
import sys

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from forked_programs import run_program

from tfk_transformer.config.search_settings import SETTING_DTYPES, SearchSettings
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.inference.signatures import GENERATE, SCORE, TRANSLATE
from tfk_transformer.search.signature_functions import signature_function

KINDS = ("keras", "saved_model", "onnx")
REFUSED = (
    TypeError,
    tf.errors.InvalidArgumentError,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
)
MAX_LENGTH, VOCAB_SIZE = 32, 80
NONE = -1e9  # the score where there is no hypothesis


class Functions:
    """The bare functions of a kind of file, from arrays and settings to arrays."""

    def __init__(self, kind, translator, exported, saved_model):
        self.kind = kind
        if kind == "onnx":
            self._sessions = {
                name: open_session(exported / f"{name}.onnx", text_operators=True)
                for name in ("generate", "translate")
            }
        elif kind == "saved_model":
            self._signatures = saved_model.signatures
        else:
            self._traced = {
                name: signature_function(translator.functions, s)
                for name, s in (("generate", GENERATE), ("translate", TRANSLATE), ("score", SCORE))
            }

    def generate(self, source_ids, prefix_ids=((0,),), **settings):
        inputs = {"source_ids": source_ids, "prefix_ids": np.array(prefix_ids, "int32")}
        return self._run("generate", ("ids", "scores"), inputs, settings)

    def translate(self, text, **settings):
        if self.kind == "onnx" and text.dtype.kind == "S":
            text = text.astype(f"S{text.itemsize + 1}")  # onnxruntime reads each up to a NUL
        return self._run(
            "translate",
            ("translations", "scores"),
            {"text": text, "prefix": np.array([""], object)},
            settings,
        )

    def score(self, source, target):
        return self._run("score", ("log_probability",), {"source": source, "target": target}, None)[
            0
        ]

    def _run(self, name, outputs, inputs, settings):
        changed = {} if settings is None else settings
        if self.kind == "onnx":
            scalars = {
                setting: np.array(value, SETTING_DTYPES[setting])
                for setting, value in changed.items()
            }
            return self._sessions[name].run(outputs, {**inputs, **scalars})
        full = {} if settings is None else {**SearchSettings().as_numbers(), **changed}
        scalars = {
            setting: tf.constant(value, SETTING_DTYPES[setting]) for setting, value in full.items()
        }
        tensors = {key: tf.constant(value) for key, value in inputs.items()}
        if self.kind == "saved_model":
            actual = self._signatures[name](**tensors, **scalars)
        else:
            actual = self._traced[name](*tensors.values(), *scalars.values())
        return [actual[output].numpy() for output in outputs]


@pytest.fixture(scope="module", params=KINDS)
def functions(request, translator, exported, saved_model):
    return Functions(request.param, translator, exported, saved_model)


@pytest.fixture(params=["bundle", "saved_model", "translate.onnx"], ids=KINDS)
def opened(request, models):
    """A translator of each kind."""
    return models[request.param]


def ids(rows, dtype="int32"):
    return np.array(rows, dtype)


def decoded(texts):
    return [[text if isinstance(text, str) else text.decode() for text in row] for row in texts]


@pytest.fixture(scope="module")
def seven(translator):
    """The source ids of "seven", and the ids and score of its translation."""
    source = [*translator.source_tokenizer.encode(["seven"])[0], 2]
    return (
        source,
        [*translator.target_tokenizer.encode(["sieben"])[0], 2],
        translator.translate(["seven"])[0].score,
    )


@pytest.mark.parametrize("wrong", [-1, VOCAB_SIZE, 2**31 - 1, -(2**31)])
def test_unknown_source_ids_score_nan(functions, seven, wrong):
    source, target, score = seven
    actual, scores = functions.generate(ids([[wrong, *source[1:]], source]))
    assert not actual[0].any()
    assert np.isnan(scores[0]).all()
    assert actual[1, 0, : len(target)].tolist() == target
    assert scores[1, 0] == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("wrong", [-1, VOCAB_SIZE])
def test_unknown_prefix_ids_score_nan(functions, seven, wrong):
    source, target, score = seven
    actual, scores = functions.generate(ids([source, source]), [[wrong, 0], [target[0], target[1]]])
    assert np.isnan(scores[0]).all()
    assert not actual[0].any()
    assert actual[1, 0, : len(target)].tolist() == target


def test_last_vocabulary_id_is_valid(functions):
    assert np.isfinite(functions.generate(ids([[VOCAB_SIZE - 1, 2]]))[1]).all()


@pytest.mark.parametrize("shape", [(0, 3), (0, 0), (2, 0)])
@pytest.mark.parametrize("n_best", [1, 3])
def test_empty_ids_give_blank_results(functions, shape, n_best):
    actual, scores = functions.generate(np.zeros(shape, "int32"), n_best=n_best)
    assert actual.shape[:2] == scores.shape == (shape[0], n_best)
    assert not actual.any()
    assert not scores.any()


def test_10000_token_source_scores_nan(functions, seven):
    source, target, _ = seven
    long = np.full((2, 10_000), source[0], "int32")
    long[1] = 0
    long[1, : len(source)] = source
    actual, scores = functions.generate(long)
    assert np.isnan(scores[0]).all()
    assert not actual[0].any()
    assert actual[1, 0, : len(target)].tolist() == target


@pytest.mark.parametrize("beam_size", [-1, 0, 1, 2])
@pytest.mark.parametrize("n_best", [-1, 0, 1, 2, 5])
def test_ids_beyond_beams_are_blank(functions, seven, beam_size, n_best):
    """Bare functions; the classes refuse it."""
    source, target, _ = seven
    actual, scores = functions.generate(ids([source]), beam_size=beam_size, n_best=n_best)
    expected, kept = max(n_best, 1), min(max(n_best, 1), max(beam_size, 1))
    assert actual.shape[:2] == scores.shape == (1, expected)
    assert actual[0, 0, : len(target)].tolist() == target
    assert (scores[0, :kept] > NONE / 2).all()
    assert (scores[0, kept:] == NONE).all()
    assert not actual[0, kept:].any()


def test_texts_beyond_beams_are_blank(functions):
    texts, scores = functions.translate(np.array(["seven", ""], object), beam_size=1, n_best=3)
    assert decoded(texts) == [["sieben", "", ""], ["", "", ""]]
    assert scores[0, 1:].tolist() == [NONE, NONE]
    assert scores[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "source",
    [
        ids([[4, 2]], "int64"),
        ids([[4, 2]], "float32"),
        np.array([["a"]], object),
        ids([4, 2]),
        ids([[[4, 2]]]),
        ids(4),
    ],
)
def test_bad_id_arrays_are_refused(functions, source):
    with pytest.raises(REFUSED):
        functions.generate(source)


@pytest.mark.parametrize(
    "text", [ids([1, 2]), np.array("seven", object), np.array([["seven"]], object)]
)
def test_bad_text_arrays_are_refused(functions, text):
    with pytest.raises(REFUSED):
        functions.translate(text)


def test_blank_texts_stay_blank(functions):
    texts, scores = functions.translate(np.array(["", " ", "seven"], object), n_best=2)
    assert decoded(texts[:2]) == [["", ""], ["", ""]]
    assert scores[:2].tolist() == [[0, 0], [0, 0]]
    assert decoded(texts[2:])[0][0] == "sieben"


def test_invalid_utf8_becomes_unknown(functions, translator):
    """Each kind reads them as any character that the tokenizer does not know, and the other texts
    are not affected.
    """
    texts, scores = functions.translate(np.array([b"se\xffven", b"seven", b"\xc3("], "S"))
    expected = translator.translate(["se\u4e2dven", "seven", "\u4e2d("], split_sentences=False)
    assert decoded(texts) == [[e.text] for e in expected]
    np.testing.assert_allclose(scores[:, 0], [e.score for e in expected], atol=1e-4)


def test_10000_word_text_scores_nan(functions):
    texts, scores = functions.translate(np.array(["one " * 10_000, "seven"], object))
    assert decoded(texts) == [[""], ["sieben"]]
    assert np.isnan(scores[0, 0])
    assert np.isfinite(scores[1, 0])


def test_onnx_translate_of_no_texts(exported):
    """In a process of its own: an operator of onnxruntime-extensions crashes where there is nothing
    to join.
    """
    code = """
import sys, numpy as np
from tfk_transformer.export.runtime.sessions import open_session
session = open_session(sys.argv[1], text_operators=True)
for n_best in (1, 3):
    inputs = {"text": np.array([], object), "n_best": np.array(n_best, "int32")}
    print(*(output.shape for output in session.run(None, inputs)))
"""
    done = run_program([sys.executable, "-c", code, exported / "translate.onnx"])
    assert (done.returncode, done.stdout.splitlines()) == (0, ["(0, 1) (0, 1)", "(0, 3) (0, 3)"]), (
        done.stderr
    )


@pytest.mark.parametrize("functions", KINDS[:2], indirect=True)
def test_no_texts_give_no_results(functions):
    assert [actual.shape for actual in functions.translate(np.array([], "S1"), n_best=3)] == [
        (0, 3),
        (0, 3),
    ]
    assert functions.score(np.array([], "S1"), np.array([], "S1")).shape == (0,)
    blank = functions.score(np.array([b"", b"seven"]), np.array([b"sieben", b""]))
    assert np.isfinite(blank).all()
    assert (blank < 0).all()
    long = functions.score(
        np.array([b"one " * 10_000, b"seven"]), np.array([b"sieben", b"one " * 10_000])
    )
    assert np.isnan(long).all()


def test_scores_of_unknown_ids_are_nan(translator):
    actual = translator.functions.score_ids(
        tf.constant([[4, 2], [-4, 2], [4, 2]]), tf.constant([[5, 2], [5, 2], [VOCAB_SIZE, 2]])
    )
    assert np.isnan(actual.log_probability).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        ("seven", {}, "texts: expected a list of strings, got one string"),
        ([b"seven"], {}, "texts: expected strings, got bytes at index 0"),
        (["seven", None], {}, "texts: expected strings, got NoneType at index 1"),
        ([["seven"]], {}, "texts: expected strings, got list at index 0"),
        (
            ["seven", "se\udcffven"],
            {},
            r"texts: expected text, got the character U\+DCFF at position 3 of the text at index 1",
        ),
        (
            ["se\0ven"],
            {},
            r"texts: expected text, got the character U\+0000 at position 3 of the text at index 0",
        ),
        (
            ["seven", "one " * 10_000],
            {"split_sentences": False},
            "texts: expected at most 32 tokens each, got more in 1: number 2",
        ),
        (
            ["seven"],
            {"beam_size": 2, "n_best": 3},
            "n_best.* beam_size, got n_best 3 and beam_size 2",
        ),
        (["seven"], {"beam_size": 0}, "beam_size"),
        (["seven"], {"beam_size": "4"}, "beam_size.*got '4'"),
        (["seven"], {"beam_size": 4.5}, "beam_size.*got 4.5"),
        (["seven"], {"length_penalty": float("nan")}, "length_penalty.*got nan"),
        (["seven"], {"beams": 4}, "beams"),
        (["seven"], {"batch_size": 0}, "batch_size: expected at least 1, got 0"),
    ],
)
def test_classes_give_same_errors(opened, texts, settings, message):
    with pytest.raises(ValueError, match=message):
        opened.translate(texts, **settings)


def test_classes_take_empty_and_blank(opened):
    assert opened.translate([]) == []
    assert [(t.text, t.score) for t in opened.translate(["", " \n"])] == [("", 0), ("", 0)]


@pytest.mark.parametrize("source", [ids([4, 2]), ids([[4.5, 2]], "float32"), np.array([["a"]])])
def test_saved_model_refuses_non_ids(models, source):
    with pytest.raises(ValueError, match=r"source_ids: expected whole numbers \(N, S\), got "):
        models["saved_model"].generate(source)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam_size": 81}, "beam_size: expected an integer of at least 1 and at most 80, got 81."),
        (
            {"beam_size": 2**31},
            "beam_size: expected an integer of at least 1 and at most 80, got 2147483648.",
        ),
        (
            {"beam_size": 4.0},
            "beam_size: expected an integer of at least 1 and at most 80, got 4.0.",
        ),
        (
            {"beam_size": True},
            "beam_size: expected an integer of at least 1 and at most 80, got True.",
        ),
        ({"n_best": 5}, "n_best: expected at most beam_size, got n_best 5 and beam_size 4."),
        (
            {"seed": 2**31},
            "seed: expected an integer of at least 0 and at most 2147483647, got 2147483648.",
        ),
        (
            {"seed": 10**400},
            "seed: expected an integer of at least 0 and at most 2147483647, got 1000",
        ),
        (
            {"no_repeat_ngram_size": 2**31 - 1},
            (
                "no_repeat_ngram_size: expected an integer of at least 0 and at most 32, got "
                "2147483647."
            ),
        ),
        (
            {"min_length": 33},
            "min_length: expected an integer of at least 0 and at most 32, got 33.",
        ),
        (
            {"max_length": 33},
            "max_length: expected an integer of at least 1 and at most 32, got 33.",
        ),
        ({"top_k": 81}, "top_k: expected an integer of at least 0 and at most 80, got 81."),
        (
            {"length_penalty": float("inf")},
            "length_penalty: expected a finite number of at least 0 and at most 10, got inf.",
        ),
        (
            {"length_penalty": float("nan")},
            "length_penalty: expected a finite number of at least 0 and at most 10, got nan.",
        ),
        (
            {"length_penalty": 10**400},
            "length_penalty: expected a finite number of at least 0 and at most 10, got 1000",
        ),
        (
            {"length_penalty": "1"},
            "length_penalty: expected a finite number of at least 0 and at most 10, got '1'.",
        ),
        (
            {"temperature": 1e30},
            "temperature: expected a finite number of at least 0 and at most 1000 and at least "
            "0.001 if not 0, got 1e+30.",
        ),
        ({"top_p": 0}, "top_p: expected a finite number of above 0 and at most 1, got 0."),
        ({"beam_sise": 2}, "unknown name 'beam_sise'. Did you mean 'beam_size'?"),
    ],
)
def test_impossible_settings_are_refused(opened, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        opened.translate(["seven"], **settings)
    assert len(str(refused.value)) < 300
    with pytest.raises(ValueError, match=re.escape(message.replace("beam_size 4", "beam_size 1"))):
        opened.stream("seven", **settings)


EXTREMES = {
    "beam_size": 80,
    "n_best": 80,
    "max_length": 32,
    "no_repeat_ngram_size": 32,
    "length_penalty": 10,
    "coverage_penalty": 1000,
}


@pytest.mark.parametrize(
    "settings",
    [
        EXTREMES,
        {"temperature": 1000, "top_k": 80, "seed": 2**31 - 1},
        {"max_length_factor": 1000, "repetition_penalty": 1000},
    ],
)
def test_largest_settings_are_allowed(opened, translator, settings):
    """And give finite scores, the same everywhere."""
    (actual,), (expected,) = (
        model.translate(["seven"], **settings) for model in (opened, translator)
    )
    assert [hypothesis.text for hypothesis in actual.hypotheses] == [
        hypothesis.text for hypothesis in expected.hypotheses
    ]
    assert np.isfinite([hypothesis.score for hypothesis in actual.hypotheses]).all()


def broken_files(folder, bundle, exported):
    """Write files that are wrong or cut, and return their paths."""
    paths = []

    def add(name, content):
        (folder / name).write_bytes(content)
        paths.append(folder / name)

    whole = (exported / "translate.onnx").read_bytes()
    for share in (0.001, 0.1, 0.5, 0.9, 0.999):
        add(f"cut_{share}.onnx", whole[: int(len(whole) * share)])
    add("last.onnx", whole[:-1])
    add("empty.onnx", b"")
    add("noise.onnx", np.random.default_rng(0).bytes(9999))
    add("text.onnx", b"no model at all\n")
    (folder / "folder.onnx").mkdir()
    paths.append(folder / "folder.onnx")
    for source, name, kept in (
        (exported / "saved_model", "saved_model.pb", 0.5),
        (exported / "saved_model", "saved_model.pb", 0),
        (exported / "saved_model", "variables/variables.index", 0.5),
        (exported / "saved_model", "variables/variables.data-00000-of-00001", 0.5),
        (bundle, "config.json", 0.5),
        (bundle, "model.safetensors", 0.5),
        (bundle, "source.model", 0.5),
        (bundle, "target.model", 0),
    ):
        copy = shutil.copytree(source, folder / f"{len(paths)}")
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[: int(len(content) * kept)])
        paths.append(copy)
    return paths


def test_broken_files_are_refused(bundle, exported, tmp_path):
    """In a process of their own, which lives on."""
    paths = broken_files(tmp_path, bundle, exported)
    code = """
import json, sys
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.inspection import inspect
for path in sys.argv[1:]:
    for run in (load, inspect):
        try:
            run(path)
            result = "opened"
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        print(json.dumps([path, run.__name__, result]), flush=True)
"""
    done = run_program([sys.executable, "-c", code, *paths])
    assert done.returncode == 0, done.stderr
    actual = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(actual) == 2 * len(paths)
    # What `inspect` does not read it cannot miss: the weights of a SavedModel.
    unread = (str(tmp_path / "13"), "inspect")
    wrong = [
        (path, run, result)
        for path, run, result in actual
        if not result.startswith("ValueError: ") and (path, run) != unread
    ]
    assert wrong == []


def test_replaced_export_is_refused(exported, tmp_path):
    for folder in (tmp_path / "files", tmp_path / "new"):
        folder.mkdir()
        for name in ("translate.onnx", "score.onnx"):
            shutil.copy(exported / name, folder / name)
    model = load(tmp_path / "files" / "translate.onnx")
    (tmp_path / "files").rename(tmp_path / "old")
    (tmp_path / "new").rename(tmp_path / "files")
    with pytest.raises(ValueError, match="^ONNX: expected the export that was opened in .*files, "):
        model.score(["one"], ["eins"])
    load(tmp_path / "files" / "translate.onnx").score(["one"], ["eins"])
