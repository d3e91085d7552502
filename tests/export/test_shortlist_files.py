"""ONNX files with a shortlist: the ids of the Keras model with the same shortlist."""

import importlib.util
import json
import os
import sys

import numpy as np
import pytest
from forked_programs import run_program
from onnx.reference import ReferenceEvaluator
from random_translators import (
    OPTIONS,
    SIZES,
    V,
    found_by,
    of_transformer,
    opened,
    source_ids,
    translator_of,
)
from sentencepiece import SentencePieceProcessor
from tiers import with_long

from tfk_transformer.config.model_options import ClassifierConfig
from tfk_transformer.config.search_settings import SETTING_DTYPES, SearchSettings
from tfk_transformer.constants import END_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.export.exporting import export
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.to_onnx.calibration import observe_rows
from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import WeightRounding
from tfk_transformer.export.to_onnx.onnx_models import generate_graph
from tfk_transformer.inference.signatures import GENERATE
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.search.signature_functions import signature_function
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

pytestmark = pytest.mark.usefixtures("few_probes")
SEARCHES = (
    {"beam_size": 1},
    {"beam_size": 3, "n_best": 3},
    {"beam_size": 2, "coverage_penalty": 0.4, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3},
    {"beam_size": 2, "n_best": 2, "temperature": 1.3, "top_k": 5, "seed": 3},
)


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)


def a_shortlist(likely=2):
    random = np.random.default_rng(8)
    candidates = random.integers(0, V, (V, likely)).astype("int32")
    candidates[0] = 0  # padding has none
    return Shortlist(np.array([0, 1, 2, 4, 9], "int32"), candidates, V, sentences=1)


def with_shortlist(translator, shortlist):
    return Translator(translator.model, translator.source_tokenizer, shortlist=shortlist)


def assert_equal(translator, session):
    search = signature_function(translator.functions, GENERATE)
    for settings in SEARCHES:
        prefix = np.array([[5], [0], [0], [3], [0]], "int32")
        whole = {name: np.array(value, SETTING_DTYPES[name]) for name, value in settings.items()}
        expected = search(source_ids(), prefix, *SearchSettings(**settings).as_numbers().values())
        ids, scores = session.run(
            ["ids", "scores"], {"source_ids": source_ids(), "prefix_ids": prefix, **whole}
        )
        np.testing.assert_array_equal(ids, expected["ids"])
        np.testing.assert_allclose(scores, expected["scores"], atol=1e-4)
    for shape in ((0, 3), (0, 0)):  # no sentences
        results = session.run(["ids", "scores"], {"source_ids": np.zeros(shape, "int32")})
        assert [len(result) for result in results] == [0, 0]


PROJECTIONS = {name: OPTIONS[name] for name in ("post", "post_dropout", "marian", "mbart")}


# A search each.
@pytest.mark.parametrize("options", with_long(PROJECTIONS, {*PROJECTIONS} - {"marian"}))
def test_projections_match_keras(options, tokenizer, tmp_path):
    translator = with_shortlist(of_transformer(tokenizer, **options), a_shortlist())
    assert_equal(translator, opened(generate_graph(translator), tmp_path / "search.onnx"))


@pytest.mark.long  # traces the search of two members
def test_ensemble_matches_keras(tokenizer, tmp_path):
    other = of_transformer(
        tokenizer, **{**SIZES, "model_dim": 12, "decoder_layers": 1}, output_bias=True
    )
    translator = with_shortlist(
        Translator.ensemble([of_transformer(tokenizer), other]), a_shortlist()
    )
    assert_equal(translator, opened(generate_graph(translator), tmp_path / "two.onnx"))


# Two graphs each.
@pytest.mark.parametrize(
    "options",
    with_long(
        {"table": OPTIONS["post"], "kernel_and_bias": OPTIONS["marian"]}, {"kernel_and_bias"}
    ),
)
def test_int8_candidates_match_whole(options, tokenizer, tmp_path):
    """With all tokens for candidates, the file gives the ids and scores of the file without a
    shortlist.
    """
    translator = of_transformer(tokenizer, **options)
    everything = Shortlist(np.arange(V, dtype="int32"), np.zeros((V, 1), "int32"), V, sentences=1)
    ids = np.where(source_ids() == 0, 0, np.maximum(source_ids(), 2))
    rounding = WeightRounding(observe_rows(translator.model, ids, ids))
    files = [
        opened(generate_graph(each, rounding=rounding), tmp_path / f"{name}.onnx")
        for name, each in (("whole", translator), ("some", with_shortlist(translator, everything)))
    ]
    for settings in SEARCHES:
        (whole, scores), (some, other_scores) = (found_by(file, settings) for file in files)
        np.testing.assert_array_equal(whole, some)
        np.testing.assert_allclose(scores, other_scores, atol=1e-5)


def test_gather_runs_before_the_loops(tokenizer):
    """Otherwise each decoding step would copy them."""
    translator = with_shortlist(of_transformer(tokenizer, **OPTIONS["marian"]), a_shortlist())
    graph = generate_graph(translator).graph
    readers = [
        node
        for node in graph.all_nodes()
        if any(value is not None and value.name.startswith("output/") for value in node.inputs)
    ]
    assert [node.op_type for node in readers] == ["Gather", "Gather"]
    assert all(node.graph is graph for node in readers)


@pytest.fixture(scope="module")
def files(small, recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shortlist") / "files"
    formats = [
        "onnx",
        "onnx_int8",
        *(["ctranslate2"] if importlib.util.find_spec("ctranslate2") else []),
    ]
    export(small, folder, formats, shortlist=recipe.data)
    return folder


def test_export_learns_shortlist(small, files):
    figures = json.loads((files / "parity.json").read_text())
    assert figures["ids"] == "equal"
    assert figures["shortlist"]["learned_from_pairs"] == 200
    for name in ("translate.onnx", "generate.int8.onnx"):
        assert inspect(files / name)["facts"]["shortlist"] == figures["shortlist"]
    texts = ["twenty-three", "fifty-six", "seven"]
    whole = [translation.text for translation in small.translate(texts)]
    for name in ("translate.onnx", "translate.int8.onnx"):
        actual = [translation.text for translation in load(files / name).translate(texts)]
        assert actual == whole, name


def test_ctranslate2_gets_vocabulary_map(small, files):
    pytest.importorskip("ctranslate2")
    actual = json.loads((files / "parity.json").read_text())
    assert (
        actual["ctranslate2"]["same_without_padding_in_beam_search"]
        >= 0.99 * actual["ctranslate2"]["sentences"]
    )
    assert inspect(files / "ctranslate2")["facts"]["shortlist"] == actual["shortlist"]
    lines = (files / "ctranslate2" / "vmap.txt").read_text().splitlines()
    always, *others = (line.split("\t") for line in lines)
    # All but padding.
    assert always[0] == ""
    assert len(always[1].split()) == actual["shortlist"]["for_every_text"] - 1
    source = SentencePieceProcessor(model_proto=small.source_tokenizer.model)
    assert others
    assert {token for token, _ in others} <= {
        source.id_to_piece(i) for i in range(END_ID + 1, len(source))
    }


def test_reference_evaluator_agrees(files):
    inputs = {
        "source_ids": np.array([[9, 12, 2, 0], [30, 7, 21, 2]], "int32"),
        "beam_size": np.array(2, "int32"),
    }
    session = open_session(files / "generate.onnx")
    actual = ReferenceEvaluator(str(files / "generate.onnx")).run(["ids", "scores"], inputs)
    expected = session.run(["ids", "scores"], inputs)
    np.testing.assert_array_equal(actual[0], expected[0])
    np.testing.assert_allclose(actual[1], expected[1], atol=1e-4)


def test_searchless_formats_are_refused(translator, recipe, tmp_path):
    with pytest.raises(
        ValueError,
        match=(
            "formats: expected onnx, onnx_int8, ctranslate2, web, web_int8 with a shortlist, "
            "got saved_model, onnx_steps; "
        ),
    ):
        export(
            translator,
            tmp_path / "out",
            ["onnx", "saved_model", "onnx_steps"],
            shortlist=recipe.data,
        )
    assert not list(tmp_path.iterdir())


# An export in each format that a shortlist allows.
@pytest.mark.long
def test_export_keeps_shortlist(tokenizer, tmp_path):
    translator = with_shortlist(of_transformer(tokenizer), a_shortlist())
    with pytest.raises(
        ValueError, match="with a shortlist, got saved_model; export these without a shortlist"
    ):
        translator.export(tmp_path / "folder")
    assert not list(tmp_path.iterdir())
    export(translator, tmp_path / "files")
    assert (
        inspect(tmp_path / "files" / "generate.onnx")["facts"]["shortlist"]["for_every_text"] == 5
    )


def test_unknown_format_is_refused(translator, recipe, tmp_path):
    with pytest.raises(ValueError, match="formats: unknown.*onnx_in8"):
        export(translator, tmp_path / "out", ["onnx_in8"], shortlist=recipe.data)


def test_shortlist_needs_translator(tokenizer, tmp_path):
    sizes = {name: size for name, size in SIZES.items() if name != "encoder_layers"}
    continuer = translator_of(tokenizer, LanguageModel, **sizes, vocab_size=V)
    with pytest.raises(
        ValueError,
        match="shortlist: expected a model that translates, got architecture 'decoder'",
    ):
        export(continuer, tmp_path / "out", shortlist="numbers:en-de")
    classifier = TextClassifier(
        EncoderClassifier(ClassifierConfig.preset("tiny", vocab_size=V, num_classes=2)),
        tokenizer,
        ["a", "b"],
    )
    with pytest.raises(
        ValueError,
        match="shortlist: expected a model that translates, got architecture 'encoder'",
    ):
        export(classifier, tmp_path / "out", shortlist="numbers:en-de")
    assert not list(tmp_path.iterdir())


@pytest.mark.long  # an export
def test_command_reports_shortlist(bundle, recipe, tmp_path):
    done = tfk("export", bundle, "--out", tmp_path / "out", "--shortlist", recipe.data, "--quiet")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "generate.onnx",
        "parity.json",
        "score.onnx",
        "translate.onnx",
    ]
    printed = " ".join(done.stdout.split())
    assert "for each source token, learned from 200 pairs." in printed
    assert "Checked: the same ids as Keras" in printed


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--shortlist", "numbers"], "nothing follows 'numbers'"),
        (["--shortlist", "files:missing.txt,other.txt"], "missing.txt"),
        (
            ["--shortlist", "numbers:en-de", "-f", "saved_model"],
            (
                "formats: expected onnx, onnx_int8, ctranslate2, web, web_int8 with a shortlist, "
                "got "
                "saved_model;"
            ),
        ),
    ],
)
def test_command_refuses_bad_arguments(arguments, problem, bundle, tmp_path):
    done = tfk("export", bundle, "--out", tmp_path / "out", "--verbose", *arguments)
    assert done.returncode == 1
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def tfk(*arguments):
    command = [sys.executable, "-m", "tfk_transformer", *map(str, arguments)]
    return run_program(command, env={**os.environ, "COLUMNS": "200"})
