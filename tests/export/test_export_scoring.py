"""Scores, attention and forced prefixes of exported files, equal to the Keras model's."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx_nodes import all_nodes

from tfk_transformer.export import parity
from tfk_transformer.export.runtime.onnx_runtime import OnnxScorer
from tfk_transformer.export.runtime.sessions import open_session

SOURCES = ["forty-two", "one hundred ninety-nine", "", "seven", "Ünïcödé ﬁ ½ 中"]
TARGETS = ["zweiundvierzig", "einhundert", "null", "sechs sieben acht", "½ ein"]


@pytest.fixture(scope="module")
def ids(translator):
    """Source and target ids."""
    return [
        parity.probe_ids(texts, translator.source_tokenizer, 32) for texts in (SOURCES, TARGETS)
    ]


@pytest.mark.parametrize("kind", ["saved_model", "score.onnx"])
def test_text_scores_match_keras(models, translator, kind):
    np.testing.assert_allclose(
        models[kind].score(SOURCES, TARGETS, batch_size=2),
        translator.score(SOURCES, TARGETS),
        atol=1e-4,
    )
    for one, other in zip(
        translator.score_tokens(SOURCES, TARGETS),
        models[kind].score_tokens(SOURCES, TARGETS, batch_size=3),
        strict=True,
    ):
        assert (other.text, other.tokens) == (one.text, one.tokens)
        np.testing.assert_allclose(other.token_log_probs, one.token_log_probs, atol=1e-4)


@pytest.mark.parametrize("kind", ["saved_model", "score.onnx"])
def test_score_ids_matches_keras(models, translator, ids, kind):
    expected = translator.functions.score_ids(*map(tf.constant, ids))
    token_log_probs, log_probability = models[kind].score_ids(*ids)
    np.testing.assert_allclose(token_log_probs, expected.token_log_probs, atol=1e-4)
    np.testing.assert_allclose(log_probability, expected.log_probability, atol=1e-4)
    np.testing.assert_array_equal(token_log_probs[ids[1] == 0], 0.0)
    attention = models[kind].attention(*ids)
    config = translator.model.config
    assert attention.shape == (
        5,
        config.decoder_layers,
        config.num_heads,
        ids[1].shape[1],
        ids[0].shape[1],
    )
    np.testing.assert_allclose(attention, expected.attention, atol=1e-5)


def test_scorer_attention_matches_keras(models, translator):
    for one, other in zip(
        *(
            s.score_tokens(SOURCES, TARGETS, attention=True)
            for s in (translator, models["score.onnx"])
        ),
        strict=True,
    ):
        assert one.source_tokens == other.source_tokens
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-5)


@pytest.mark.parametrize("kind", ["saved_model", "score.onnx"])
def test_bad_pairs_are_refused(models, kind):
    with pytest.raises(ValueError, match="targets: expected a target for each of 2 sources, got 1"):
        models[kind].score(["one", "two"], ["eins"])
    with pytest.raises(ValueError, match="at most 32 tokens per side, got more in pair number 2"):
        models[kind].score(["one", "two"], ["eins", "zwei " * 99])


def test_score_ids_refuses_bad_shapes(models):
    scorer = models["score.onnx"]
    with pytest.raises(
        ValueError, match=r"expected shapes \(N, S\) and \(N, T\), got \(1, 2\) and \(2, 2\)"
    ):
        scorer.score_ids([[4, 2]], [[4, 2]] * 2)
    with pytest.raises(
        ValueError, match=r"expected shapes \(N, S\) and \(N, T\), got \(2,\) and \(1, 2\)"
    ):
        scorer.score_ids([4, 2], [[4, 2]])


def test_unusable_ids_score_nan(models):
    """Rows that are too long, and ids outside the vocabulary."""
    scorer, long = models["score.onnx"], np.full((1, 33), 5)
    assert np.isnan(scorer.score_ids(long, [[4, 2]])[1]).all()
    assert np.isnan(scorer.score_ids([[4, 2]], long)[0]).all()
    for wrong in ([[4, 999, 2]], [[4, 2, 999]], [[-4, 2, 0]]):
        assert np.isnan(scorer.score_ids([[4, 2]], wrong)[1]).all()


def test_file_that_does_not_score_is_refused(exported):
    with pytest.raises(
        ValueError,
        match=(
            "expected a file that scores, got .*generate.onnx, which does not score; use score.onnx"
        ),
    ):
        OnnxScorer(exported / "generate.onnx")


def test_score_is_portable_and_small(exported, translator):
    model = onnx.load(exported / "score.onnx")
    onnx.checker.check_model(model)
    assert {node.domain for node in all_nodes(model.graph)} <= {""}
    assert not [node for node in all_nodes(model.graph) if node.op_type in ("Loop", "If")]
    weights = 4 * (
        translator.model.count_params()
        + 2 * translator.model.config.max_length * translator.model.config.model_dim
    )
    tokenizers = 8 / 3 * len(translator.source_tokenizer.model)  # two, in base 64
    assert (exported / "score.onnx").stat().st_size < 1.05 * weights + tokenizers + 150_000


def test_scorer_runs_without_tensorflow(exported, translator):
    code = """
import sys
missing = "tensorflow keras tensorflow_text tf2onnx onnx onnxruntime_extensions".split()
sys.modules.update(dict.fromkeys([*missing, *sys.argv[2:]]))
from tfk_transformer.export.runtime.onnx_runtime import OnnxScorer
scorer = OnnxScorer(sys.argv[1])
if len(sys.argv) > 2:
    print(*scorer.score_ids([[4, 5, 2]], [[6, 2]])[1])
else:
    print(*scorer.score(["seven"], ["sieben"]))
"""
    for missing, expected in (
        ([], translator.score(["seven"], ["sieben"])[0]),
        (
            ["pydantic", "sentencepiece"],
            translator.functions.score_ids(
                tf.constant([[4, 5, 2]]), tf.constant([[6, 2]])
            ).log_probability[0],
        ),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, exported / "score.onnx", *missing],
            capture_output=True,
            text=True,
        )
        assert float(done.stdout or "nan") == pytest.approx(float(expected), abs=1e-4), done.stderr


# Forced prefixes.


@pytest.fixture
def opened(models):
    """All kinds that translate."""
    return [models[name] for name in ("bundle", "saved_model", "translate.onnx")]


@pytest.mark.parametrize(
    "settings", [{}, {"beam_size": 1}, {"n_best": 4, "coverage_penalty": 0.4, "min_length": 3}]
)
def test_formats_force_prefixes_alike(opened, settings):
    prefixes = ["drei", None, "eins", "acht", "ein"]
    expected, *others = [
        translator.translate(SOURCES, prefixes=prefixes, batch_size=3, **settings)
        for translator in opened
    ]
    assert [t.text[:4] for t in expected[::3]] == ["drei", "acht"]
    assert expected[2].text == ""  # a blank text stays blank
    for actual in others:
        for one, other in zip(expected, actual, strict=True):
            assert [h.text for h in one.hypotheses] == [h.text for h in other.hypotheses]
            np.testing.assert_allclose(
                [h.score for h in one.hypotheses], [h.score for h in other.hypotheses], atol=1e-4
            )


def test_bad_prefixes_are_refused(opened):
    for translator in opened:
        with pytest.raises(
            ValueError, match="prefixes: expected a prefix or None for each of 2 texts, got 1"
        ):
            translator.translate(["one", "two"], prefixes=["eins"])
        with pytest.raises(
            ValueError,
            match="texts, prefixes: expected at most 32 tokens each, got more in 1: number 2",
        ):
            translator.translate(["one", "two"], prefixes=[None, "zwei " * 99])


def test_prefix_ids_for_all_or_each(opened, exported, translator):
    source = parity.probe_ids(["forty-two", "seven"], translator.source_tokenizer, 32)
    (drei, acht) = translator.target_tokenizer.encode(["drei", "acht"])
    width = max(len(drei), len(acht))
    both = np.array([row + [0] * (width - len(row)) for row in (drei, acht)], "int32")
    session = open_session(exported / "generate.onnx")
    for prefix_ids, starts in (
        (both, (drei, acht)),
        (np.array([drei], "int32"), (drei, drei)),
        (None, ([], [])),
    ):
        ids = session.run(
            ["ids"],
            {"source_ids": source, **({} if prefix_ids is None else {"prefix_ids": prefix_ids})},
        )[0]
        np.testing.assert_array_equal(opened[1].generate(source, prefix_ids)[0], ids)
        assert [
            row[: len(start)].tolist() for row, start in zip(ids[:, 0], starts, strict=True)
        ] == list(starts)
    # Onnxruntime's own word for sizes that do not fit.
    with pytest.raises(Exception, match="axis == 1|invalid expand shape"):
        session.run(["ids"], {"source_ids": source, "prefix_ids": np.array([drei] * 3, "int32")})


def test_prefix_input_is_optional(exported):
    session = open_session(exported / "translate.onnx", text_operators=True)
    optional = {value.name: value for value in session.get_overridable_initializers()}
    assert optional["prefix"].type == "tensor(string)"
    texts = np.array(["forty-two", "seven"], object)
    (plain,) = session.run(["translations"], {"text": texts})
    assert plain[:, 0].tolist() == ["zweiundvierzig", "sieben"]
    (forced,) = session.run(["translations"], {"text": texts, "prefix": np.array(["acht"], object)})
    assert [text[:4] for text in forced[:, 0]] == ["acht", "acht"]


# Parity.


def test_parity_compares_scores():
    expected = [np.array([[-1.0, 0.0]]), np.array([-1.0]), np.full((1, 1, 1, 2, 1), 0.5)]
    batches = [expected, expected]
    assert parity.check_scores("x", batches, batches) == {
        "largest_token_score_difference": 0.0,
        "largest_attention_difference": 0.0,
    }
    for place, change in ((0, 0.01), (1, 0.01), (2, 0.02), (0, np.nan)):
        got = [part + change * (number == place) for number, part in enumerate(expected)]
        with pytest.raises(
            parity.ParityError,
            match=(
                "x: expected the model's log-probabilities of 2 probe pairs, got "
                "differences of up to"
            ),
        ):
            parity.check_scores("x", batches, [expected, got])


def test_score_metadata_has_parity(exported):
    metadata = OnnxScorer(exported / "score.onnx").metadata
    assert 0 <= metadata["parity"]["largest_token_score_difference"] < parity.SCORE_TOLERANCE
    assert 0 <= metadata["parity"]["largest_attention_difference"] < parity.ATTENTION_TOLERANCE
    assert metadata["config"]["architecture"] == "encoder_decoder"
