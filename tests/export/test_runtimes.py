"""The table of the runtimes: every method of a bundle, a SavedModel and an ONNX file gives equal
results or the stated refusal.
"""

import inspect
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tfk_transformer import (
    BaseClassifier,
    BaseTranslator,
    TextClassifier,
    Translator,
    load,
)
from tfk_transformer.export.runtime.onnx_runtime import (
    OnnxClassifier,
    OnnxScorer,
    OnnxStreamer,
    OnnxTranslator,
)
from tfk_transformer.export.runtime.saved_model_runtime import (
    SavedModelClassifier,
    SavedModelTranslator,
)
from tfk_transformer.runtime_environment import install_line

SOURCES = ["forty-two", "one hundred ninety-nine", "", "seven", "Ünïcödé ﬁ ½ 中"]
TARGETS = ["zweiundvierzig", "einhundert", "null", "sechs sieben acht", "½ ein"]
PARAGRAPHS = [
    " forty-two. seven!\n\none hundred ninety-nine 😀 \n",
    "- ...",
    "one " * 40 + "two",
    "🎉 eight Привет",
]
PREFIXES = ["drei", None, "", "acht", "ein"]
CACHED = (
    "use_cache: expected True, got False; exported files hold only the cached decoding step. "
    "Open the bundle"
)

# By a user's call: each runtime gives the bundle's results, or the error of `REFUSED`.
CALLS = {
    "translate": lambda m: m.translate(SOURCES),
    "translate, greedy": lambda m: m.translate(SOURCES, beam_size=1, batch_size=2),
    "translate, n_best": lambda m: m.translate(SOURCES, beam_size=3, n_best=3, length_penalty=0.2),
    "translate, rules of other libraries": lambda m: m.translate(
        SOURCES,
        beam_size=3,
        n_best=3,
        length_penalty=1.0,
        length_penalty_form="length",
        early_stopping=False,
        forced_eos=True,
        renormalize_logits=True,
        max_length=5,
    ),
    "translate, penalties": lambda m: m.translate(
        SOURCES,
        n_best=4,
        coverage_penalty=0.4,
        repetition_penalty=1.5,
        no_repeat_ngram_size=2,
        min_length=3,
    ),
    "translate, greedy penalties": lambda m: m.translate(
        SOURCES, beam_size=1, no_repeat_ngram_size=1, min_length=7
    ),
    "translate, drawn": lambda m: m.translate(
        SOURCES, beam_size=5, n_best=5, temperature=1.3, top_k=20, top_p=0.9, seed=7
    ),
    "translate, never": lambda m: m.translate(
        SOURCES,
        length_penalty_form="length_with_start",
        early_stopping="never",
        renormalize_logits=True,
        min_length=4,
        no_repeat_ngram_size=2,
    ),
    "stream, forced end": lambda m: [
        "".join(m.stream(source, forced_eos=True, max_length=2)) for source in SOURCES
    ],
    "translate, prefixes": lambda m: m.translate(SOURCES, prefixes=PREFIXES),
    "translate, token_scores": lambda m: m.translate(
        SOURCES, token_scores=True, beam_size=3, n_best=2, batch_size=2
    ),
    "translate, attention": lambda m: m.translate(SOURCES, attention=True, prefixes=PREFIXES),
    "translate, paragraphs": lambda m: m.translate(PARAGRAPHS, beam_size=2, n_best=2),
    "translate, whole texts": lambda m: m.translate(SOURCES, split_sentences=False),
    "stream, paragraphs": lambda m: ["".join(m.stream(text)) for text in PARAGRAPHS],
    "translate, use_cache=False": lambda m: m.translate(SOURCES, use_cache=False),
    "stream": lambda m: ["".join(m.stream(source)) for source in SOURCES],
    "stream, temperature": lambda m: [
        "".join(m.stream(source, temperature=1.5, seed=3)) for source in SOURCES
    ],
    "score": lambda m: m.score(SOURCES, TARGETS, batch_size=2),
    "score_tokens": lambda m: m.score_tokens(SOURCES, TARGETS, batch_size=3),
    "score_tokens, attention": lambda m: m.score_tokens(SOURCES, TARGETS, attention=True),
}
ONLY_SCORES = (
    "expected a file that translates, got score.onnx, which only scores pairs; open translate.onnx"
)
REFUSED = {
    ("translate, use_cache=False", "saved_model"): CACHED,
    ("translate, use_cache=False", "translate.onnx"): CACHED,
    **{
        (call, "score.onnx"): f"{call.split(',')[0]}: {ONLY_SCORES}"
        for call in CALLS
        if "score" not in call.split(",")[0]
    },
}
KINDS = ("bundle", "saved_model", "translate.onnx", "score.onnx")


@pytest.fixture(scope="module")
def expected(translator):
    """Results of the bundle, by call."""
    compared = {call: run for call, run in CALLS.items() if (call, "saved_model") not in REFUSED}
    return {call: run(translator) for call, run in compared.items()}


def assert_same(one, other):
    """Compare results: texts exactly, numbers within rounding."""
    if isinstance(one, (list, tuple)):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for part, counterpart in zip(one, other, strict=True):
            assert_same(part, counterpart)
    elif isinstance(one, (float, np.ndarray)):
        np.testing.assert_allclose(other, one, atol=1e-4)
    else:
        assert one == other


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("call", CALLS)
def test_runtimes_agree_or_refuse(models, expected, call, kind):
    if (call, kind) in REFUSED:
        with pytest.raises(ValueError) as error:
            CALLS[call](models[kind])
        assert str(error.value).startswith(REFUSED[call, kind])
    else:
        assert_same(expected[call], CALLS[call](models[kind]))


def test_load_selects_model_type(models):
    assert [type(model) for model in models.values()] == [
        Translator,
        SavedModelTranslator,
        OnnxTranslator,
        OnnxScorer,
    ]


@pytest.mark.parametrize(
    ("base", "classes"),
    [
        (BaseTranslator, [Translator, SavedModelTranslator, OnnxTranslator, OnnxScorer]),
        (BaseClassifier, [TextClassifier, SavedModelClassifier, OnnxClassifier]),
    ],
)
def test_classes_share_base_arguments(base, classes):
    methods = [name for name in vars(base) if callable(getattr(base, name)) and name[0] != "_"]
    assert len(methods) >= 1
    for each in classes:
        assert issubclass(each, base)
        for name in methods:
            assert inspect.signature(getattr(each, name)) == inspect.signature(getattr(base, name))


def test_only_classifiers_have_classify(models):
    assert not any(hasattr(model, "classify") for model in models.values())
    assert not hasattr(BaseClassifier, "translate")


def test_options_are_keyword_only(models):
    for model in models.values():
        with pytest.raises(TypeError, match="positional argument"):
            model.translate(SOURCES, 64)
        with pytest.raises(TypeError, match="positional argument"):
            model.score(SOURCES, TARGETS, 64)


def test_log_probability_is_token_sum(models):
    for kind in KINDS:
        (actual,) = models[kind].score_tokens(["seven"], ["sieben"])
        assert actual.log_probability == pytest.approx(sum(actual.token_log_probs), abs=1e-4)


# Files next to each other.


def test_lone_onnx_names_missing_files(exported, tmp_path):
    shutil.copy(exported / "translate.onnx", tmp_path)
    alone = load(tmp_path / "translate.onnx")
    assert alone.translate(["seven"])[0].text == "sieben"
    for required, call in (
        (
            "score, score_tokens: expected score.onnx next to",
            lambda: alone.score(["seven"], ["sieben"]),
        ),
        (
            "token_scores, attention: expected score.onnx next to",
            lambda: alone.translate(["seven"], token_scores=True),
        ),
        ("stream: expected decoder_step.onnx in", lambda: alone.stream("seven")),
    ):
        with pytest.raises(ValueError, match=f"^{required}"):
            call()
    shutil.copy(exported / "score.onnx", tmp_path)
    with pytest.raises(
        ValueError,
        match=(
            "^token_scores, attention: expected generate.onnx next to .*; copy it from the same "
            "export"
        ),
    ):
        alone.translate(["seven"], attention=True)


@pytest.mark.parametrize("missing", ["decoder_step.onnx", "tokenizer.onnx", "encoder.onnx"])
def test_stream_names_a_missing_file(exported, tmp_path, missing):
    for name in {"translate.onnx", "decoder_step.onnx", "tokenizer.onnx", "encoder.onnx"}:
        if name != missing:
            shutil.copy(exported / name, tmp_path)
    with pytest.raises(ValueError, match=f"^stream: expected {missing} in .*onnx_steps"):
        load(tmp_path / "translate.onnx").stream("seven")


# What load refuses.


def test_load_of_folder_lists_its_files(exported):
    names = ", ".join(
        str(exported / name) for name in ("saved_model", "translate.onnx", "score.onnx")
    )
    with pytest.raises(ValueError) as error:
        load(exported)
    assert str(error.value).endswith(
        f"got {exported}, the folder of an export; name one of its files: {names}."
    )


def test_load_refuses_non_models(exported, bundle, tmp_path):
    with pytest.raises(
        ValueError,
        match=(
            r"MODEL: expected a bundle \(with config.json\), .* got .*nothing, which does "
            r"not exist"
        ),
    ):
        load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="got a folder without any of these files"):
        load(tmp_path)
    with pytest.raises(
        ValueError,
        match=(
            "expected a file that takes text, got .*generate.onnx, which takes ids; use "
            "translate.onnx"
        ),
    ):
        load(exported / "generate.onnx")
    for path in (bundle, exported / "saved_model"):
        with pytest.raises(
            ValueError, match="threads: expected None for .*, which TensorFlow runs, got 2"
        ):
            load(path, threads=2)


def test_renamed_scorer_still_loads(exported, tmp_path):
    shutil.copy(exported / "score.onnx", tmp_path / "other.onnx")
    assert isinstance(load(tmp_path / "other.onnx", threads=1), OnnxScorer)


# What is imported.

BLOCKED = (
    "tensorflow",
    "keras",
    "tensorflow_text",
    "tf2onnx",
    "onnx",
    "onnx_ir",
    "pydantic",
    "sacrebleu",
    "matplotlib",
)


def run_without(modules, code, *arguments):
    blocks = "".join(f"sys.modules[{name!r}] = None\n" for name in modules)
    return subprocess.run(
        [sys.executable, "-c", f"import sys\n{blocks}{code}", *arguments],
        capture_output=True,
        text=True,
    )


def test_onnx_loads_without_tensorflow(exported):
    code = """
from tfk_transformer import BaseClassifier, BaseTranslator, Translation, load
from tfk_transformer.export.runtime.onnx_runtime import OnnxClassifier, OnnxScorer, OnnxStreamer
import pkgutil, importlib, tfk_transformer.inference
for module in pkgutil.iter_modules(tfk_transformer.inference.__path__):
    if module.name != "token_scoring":
        importlib.import_module(f"tfk_transformer.inference.{module.name}")
model = load(sys.argv[1], threads=1)
print(model.translate(["seven"])[0].text, *model.stream("seven"))
"""
    done = run_without((*BLOCKED, "sentencepiece"), code, exported / "translate.onnx")
    assert done.stdout == "sieben sieben\n" or done.stdout.replace(" ", "") == "siebensieben\n", (
        done.stderr
    )


def test_token_scores_need_sentencepiece(exported):
    code = """
from tfk_transformer import load
(best,) = load(sys.argv[1], threads=1).translate(["seven"], token_scores=True)[0].hypotheses
print(len(best.tokens) == len(best.token_log_probs) > 1)
"""
    assert run_without(BLOCKED, code, exported / "translate.onnx").stdout == "True\n"
    done = run_without((*BLOCKED, "sentencepiece"), code, exported / "translate.onnx")
    assert (
        "ImportError: scores of texts need sentencepiece: pip install sentencepiece" in done.stderr
    )


@pytest.mark.parametrize("kind", ["bundle", "saved_model"])
def test_error_has_install_line(bundle, exported, kind):
    code = "from tfk_transformer import load\nload(sys.argv[1])"
    done = run_without(
        ("tensorflow", "keras", "tensorflow_text"),
        code,
        bundle if kind == "bundle" else exported / kind,
    )
    line = f"needs TensorFlow: {install_line('tensorflow')}"
    assert line in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["saved_model", "translate.onnx", "score.onnx"])
def test_files_name_the_languages(models, translator, exported, name):
    assert models[name].languages == translator.languages == ("en", "de")
    assert OnnxStreamer(exported).languages == ("en", "de")
