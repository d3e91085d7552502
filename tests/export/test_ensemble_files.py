"""One SavedModel and one ONNX file hold a whole ensemble, with the ids of the Keras model."""

import numpy as np
import pytest
from random_translators import SIZES, V, of_transformer, source_ids

from tfk_transformer.export import parity
from tfk_transformer.export.exporting import export
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime.onnx_runtime import OnnxScorer, OnnxStreamer
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.to_onnx.calibration import observe_rows
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# The export of two members takes 40 seconds.
pytestmark = [pytest.mark.usefixtures("few_probes"), pytest.mark.long]
TEXTS = ["ab ba", "", "cd dc aab", "bba"]
OTHER = {
    "model_dim": 22,
    "num_heads": 2,
    "decoder_layers": 1,
    "max_length": 13,
    "norm": "post",
    "positions": "learned",
    "output_bias": True,
}
SEARCHES = (
    {"beam_size": 1},
    {
        "beam_size": 3,
        "n_best": 3,
        "coverage_penalty": 0.4,
        "repetition_penalty": 1.5,
        "no_repeat_ngram_size": 2,
        "min_length": 3,
    },
    {"beam_size": 2, "n_best": 2, "temperature": 1.3, "top_k": 7, "seed": 5},
)

FORMATS = ("saved_model", "onnx")


@pytest.fixture(scope="module")
def ensemble():
    tokenizer = SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)
    prefixes = [{"source_prefix": (token,), "target_prefix": (token,)} for token in (5, 9)]
    return Translator.ensemble(
        [
            of_transformer(tokenizer, **prefixes[0]),
            of_transformer(tokenizer, **OTHER, key_dim=5, value_dim=7, **prefixes[1]),
        ]
    )


@pytest.fixture(scope="module")
def files(ensemble, tmp_path_factory):
    """Files in the default formats; the export compares them with the model, and would fail."""
    folder = tmp_path_factory.mktemp("ensemble") / "files"
    figures = export(ensemble, folder, FORMATS)
    assert set(figures) >= set(FORMATS)
    return folder


@pytest.fixture(scope="module")
def saved_model(files):
    return load(files / "saved_model")


def test_runtimes_translate_alike(ensemble, saved_model, files):
    others = [saved_model, load(files / "translate.onnx")]
    for settings in SEARCHES:
        expected = ensemble.translate(TEXTS, **settings)
        for other in others:
            for one, actual in zip(expected, other.translate(TEXTS, **settings), strict=True):
                assert [hypothesis.text for hypothesis in one.hypotheses] == [
                    hypothesis.text for hypothesis in actual.hypotheses
                ]
                np.testing.assert_allclose(
                    [h.score for h in one.hypotheses],
                    [h.score for h in actual.hypotheses],
                    atol=1e-4,
                )
    assert {other.max_length for other in others} == {OTHER["max_length"]}


def test_runtimes_score_pairs_alike(ensemble, saved_model, files):
    scorers = ensemble, saved_model, OnnxScorer(files / "score.onnx")
    actual = [
        scorer.score_tokens(["ab ba", "cd"], ["cd aab", "ab ab ba"], attention=True)
        for scorer in scorers
    ]
    for expected, *others in zip(*actual, strict=True):
        for other in others:
            np.testing.assert_allclose(other.token_log_probs, expected.token_log_probs, atol=1e-4)
            np.testing.assert_allclose(other.attention, expected.attention, atol=1e-5)


@pytest.mark.long  # an export of the step files, and a trace of the steps
def test_runtimes_stream_alike(ensemble, saved_model, tmp_path):
    export(ensemble, tmp_path / "files", ["onnx_steps"])
    for settings in ({}, {"repetition_penalty": 1.7}):
        actual = [
            "|".join(streamer.stream("cd dc aab", **settings))
            for streamer in (ensemble, saved_model, OnnxStreamer(tmp_path / "files"))
        ]
        assert actual == actual[:1] * 3


def test_member_weights_are_stored_once(ensemble, files):
    for name in ("generate.onnx", "score.onnx"):
        more = inspect(files / name)["parameters"] - ensemble.model.count_params()
        # Positions that are no weights, and constants of the search.
        assert 0 <= more < (1 + SIZES["max_length"]) * SIZES["model_dim"] + 6 * V


def test_observe_rows_of_each_member(ensemble):
    targets = np.random.default_rng(2).integers(3, V, (5, 6)).astype("int32")
    rows = observe_rows(ensemble.model, source_ids(), targets)
    # Of an encoder layer, the memory and the step of each decoder layer, the output.
    products = [4 + 2 * (1 + 6) + 1, 4 + (1 + 6) + 1]
    assert [sum(name.startswith(f"member_{i}/") for name in rows) for i in range(2)] == products
    widths = {
        f"member_{i}/encoder/layer_0/feed_forward/inner/kernel": width
        for i, width in enumerate((SIZES["model_dim"], 22))
    }
    assert {name: len(rows[name].moments) for name in widths} == widths


@pytest.mark.long  # four sets of weights in 8 bits
def test_int8_files_agree(ensemble, tmp_path, monkeypatch):
    monkeypatch.setattr(parity, "PROBES", 100)  # agreement on fewer texts depends on chance
    monkeypatch.setattr(ensemble, "probes", parity.probe_texts([], ensemble.source_tokenizer))
    figures = export(ensemble, tmp_path / "files", ["onnx_int8"])
    assert abs(figures["onnx_int8"]["regret_per_token"]) <= 0.01
