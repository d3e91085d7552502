"""Log-probabilities of tokens, attention and forced prefixes, compared with hand-computed values
and with the full pass.
"""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from traced_search import setting_tensors, traced_generate

from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.constants import END_ID
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.search.model_functions import (
    ContinuationFunctions,
    TranslationFunctions,
    join,
    without_end,
)

# Each size is a prime of its own, so that swapped axes cannot pass.
SIZES = {
    "model_dim": 11,
    "num_heads": 3,
    "key_dim": 13,
    "value_dim": 17,
    "ff_dim": 19,
    "decoder_layers": 2,
    "max_length": 23,
}
SOURCE = np.array([[5, 9, 4, 7, 2], [6, 2, 0, 0, 0], [8, 4, 2, 0, 0]], "int32")
TARGET = np.array([[4, 2, 0, 0], [7, 8, 5, 2], [9, 9, 6, 0]], "int32")  # the last one was cut


def sharp(model):
    """Return the model with weights so large that its output depends on its input."""
    model.build()
    random = np.random.default_rng(3)
    model.set_weights([random.normal(size=weight.shape) * 0.7 for weight in model.get_weights()])
    return model


@pytest.fixture(scope="module")
def graph():
    config = TransformerConfig(
        source_vocab_size=10, target_vocab_size=10, encoder_layers=1, **SIZES
    )
    return TranslationFunctions(sharp(Transformer(config)), None, None)


@pytest.fixture(scope="module")
def continuation():
    return ContinuationFunctions(
        sharp(LanguageModel(LanguageModelConfig(vocab_size=10, **SIZES))), None, None
    )


def log_probs_of(logits, labels):
    """Return the log-probability (T,) of each label from logits (T, V), in float64."""
    logits = np.array(logits, "float64")
    return [
        row[label] - np.log(np.sum(np.exp(row))) for row, label in zip(logits, labels, strict=True)
    ]


def real(row):
    return row[row > 0]


def test_token_scores_equal_full_pass(graph):
    scores = graph.score_ids(SOURCE, TARGET)
    for row, (source, target) in enumerate(zip(SOURCE, TARGET, strict=True)):
        source, target = real(source), real(target)
        inputs = {"source": source[None], "target": np.array([[1, *target[:-1]]])}
        expected = log_probs_of(graph.model(inputs)[0], target)
        np.testing.assert_allclose(scores.token_log_probs[row, : len(target)], expected, atol=1e-5)
        np.testing.assert_array_equal(scores.token_log_probs[row, len(target) :], 0.0)
        np.testing.assert_allclose(scores.log_probability[row], sum(expected), atol=1e-5)
        for layer, weights in enumerate(graph.model.attention_maps(inputs).cross):
            actual = scores.attention[row, layer]
            np.testing.assert_allclose(
                actual[:, : len(target), : len(source)], weights[0], atol=1e-5
            )
            np.testing.assert_array_equal(actual[:, len(target) :], 0.0)
            np.testing.assert_array_equal(actual[:, :, len(source) :], 0.0)


def test_continuation_equals_full_pass(continuation):
    scores = continuation.score_ids(SOURCE, TARGET)
    for row, (prompt, target) in enumerate(zip(SOURCE, TARGET, strict=True)):
        prompt, target = real(prompt)[:-1], real(target)
        inputs, given = np.array([[1, *prompt, *target[:-1]]]), len(prompt)
        expected = log_probs_of(continuation.model(inputs)[0, given:], target)
        np.testing.assert_allclose(scores.token_log_probs[row, : len(target)], expected, atol=1e-5)
        np.testing.assert_array_equal(scores.token_log_probs[row, len(target) :], 0.0)
        for layer, weights in enumerate(continuation.model.decode(inputs).self_weights):
            actual = scores.attention[row, layer]
            np.testing.assert_allclose(
                actual[:, : len(target), : inputs.shape[1]], weights[0, :, given:], atol=1e-5
            )
            np.testing.assert_array_equal(actual[:, :, inputs.shape[1] :], 0.0)


@pytest.mark.parametrize("kind", ["graph", "continuation"])
def test_long_pairs_score_nan(kind, request):
    graph = request.getfixturevalue(kind)
    long = np.full((1, 24), 5, "int32")
    source = np.concatenate(
        [np.pad(SOURCE, [(0, 0), (0, 19)]), long, np.pad(SOURCE[:1], [(0, 0), (0, 19)])]
    )
    target = np.concatenate(
        [np.pad(TARGET, [(0, 0), (0, 20)]), np.pad(TARGET[:1], [(0, 0), (0, 20)]), long]
    )
    actual, alone = graph.score_ids(source, target), graph.score_ids(SOURCE, TARGET)
    assert actual.token_log_probs.shape == (5, 24)
    assert actual.attention.shape == (5, 2, 3, 24, 24 if kind == "graph" else 48)
    assert np.isnan(actual.log_probability).tolist() == [False] * 3 + [True] * 2
    np.testing.assert_allclose(actual.token_log_probs[:3, :4], alone.token_log_probs, atol=1e-5)
    np.testing.assert_allclose(
        actual.attention[:3, :, :, :4, : alone.attention.shape[4]], alone.attention, atol=1e-5
    )


def test_prompt_and_target_share_limit(continuation):
    source, target = (
        np.array([[*[5] * 19, 2]] * 2, "int32"),
        np.array([[6, 6, 6, 2, 0], [6, 6, 6, 6, 2]], "int32"),
    )
    assert np.isnan(continuation.score_ids(source, target).log_probability).tolist() == [
        False,
        True,
    ]


def test_join_leaves_no_padding():
    actual = join(
        tf.constant([[5, 6, 0], [7, 0, 0], [0, 0, 0], [4, 5, 6]]),
        tf.constant([[8, 0], [8, 9], [9, 0], [0, 0]]),
    )
    np.testing.assert_array_equal(
        actual, [[5, 6, 8, 0, 0], [7, 8, 9, 0, 0], [9, 0, 0, 0, 0], [4, 5, 6, 0, 0]]
    )
    np.testing.assert_array_equal(without_end(tf.constant([[5, END_ID, 0]])), [[5, 0, 0]])


# A forced prefix.


# Traced once for each model, with and without prefixes.
traced = functools.cache(traced_generate)


def searched(graph, prefix=None, **settings):
    limits = setting_tensors(**{"max_length": 6, "length_penalty": 0.0, **settings})
    prefixes = () if prefix is None else (tf.constant(prefix, tf.int32),)
    return traced(graph, prefixes=prefix is not None)(tf.constant(SOURCE), limits, *prefixes)


def greedily(model, source, prefix, alone):
    """Return the tokens after the prefix, at most six, by full passes."""
    tokens = list(prefix)
    while len(tokens) < len(prefix) + 6 and END_ID not in tokens[len(prefix) :]:
        target = [1, *(source[:-1] if alone else []), *tokens]
        inputs = (
            np.array([target]) if alone else {"source": source[None], "target": np.array([target])}
        )
        tokens.append(END_ID + int(np.argmax(model(inputs)[0, -1, END_ID:])))
    return tokens


PREFIXES = [[7, 3, 5], [8, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("kind", ["graph", "continuation"])
def test_greedy_continues_prefixes(kind, request):
    graph = request.getfixturevalue(kind)
    actual = searched(graph, PREFIXES, beam_size=1)
    for ids, source, prefix in zip(actual.ids.numpy()[:, 0], SOURCE, PREFIXES, strict=True):
        assert real(ids).tolist() == greedily(
            graph.model, real(source), [i for i in prefix if i], kind == "continuation"
        )


@pytest.mark.parametrize("kind", ["graph", "continuation"])
def test_scores_exclude_the_prefix(kind, request):
    graph = request.getfixturevalue(kind)
    actual = searched(graph, PREFIXES, beam_size=3, n_best=3)
    for place in range(3):
        log_probs = graph.score_ids(SOURCE, actual.ids[:, place]).token_log_probs.numpy()
        expected = [
            log_probs[row, sum(i > 0 for i in prefix) :].sum()
            for row, prefix in enumerate(PREFIXES)
        ]
        np.testing.assert_allclose(actual.scores[:, place], expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["graph", "continuation"])
def test_one_prefix_serves_all_rows(kind, request):
    graph = request.getfixturevalue(kind)
    expected = searched(graph, [[7, 3]] * 3)
    for prefix in ([[7, 3]], [[7, 3, 2]], [[7, 3, 0, 0]], [[7, 3, 2, 0]] * 3):
        np.testing.assert_array_equal(searched(graph, prefix).ids, expected.ids)
    plain = searched(graph)
    for prefix in ([[0]], [[2]], np.zeros((1, 0)), [[0], [2], [0]]):
        np.testing.assert_array_equal(searched(graph, prefix).ids, plain.ids)
        np.testing.assert_array_equal(searched(graph, prefix).scores, plain.scores)


@pytest.mark.parametrize(("kind", "room"), [("graph", 23), ("continuation", 19)])
def test_long_prefix_scores_nan(kind, room, request):
    graph = request.getfixturevalue(kind)
    short, long = [8] + [0] * (room - 1), [8] * room
    actual = searched(graph, [long, short, short], max_length=20)
    assert np.isnan(actual.scores.numpy()[:, 0]).tolist() == [True, False, False]
    np.testing.assert_array_equal(actual.ids[0], 0)
    expected = searched(graph, [[0], [8], [8]], max_length=20).ids.numpy()[1:]
    length = min(expected.shape[2], actual.ids.shape[2])
    np.testing.assert_array_equal(actual.ids[1:, :, :length], expected[:, :, :length])
    fits = searched(graph, [[8] * (room - 1), short[:-1], short[:-1]], max_length=20)
    assert not np.isnan(fits.scores.numpy()).any()
    assert real(fits.ids.numpy()[0, 0]).tolist()[: room - 1] == [8] * (room - 1)


def test_bfloat16_scores_are_float32():
    keras.utils.set_random_seed(0)
    model = Transformer(
        TransformerConfig(source_vocab_size=10, target_vocab_size=10, encoder_layers=1, **SIZES),
        dtype="mixed_bfloat16",
    )
    model.build()
    scores = TranslationFunctions(model, None, None).score_ids(SOURCE, TARGET)
    assert scores.token_log_probs.dtype == scores.attention.dtype == tf.float32
    assert np.all(scores.token_log_probs.numpy()[TARGET > 0] < 0)


# Of texts.


def test_hypotheses_have_token_scores(translator):
    texts, config = ["forty-two", "one hundred seven", ""], translator.model.config
    actual = translator.translate(
        texts, token_scores=True, attention=True, n_best=3, length_penalty=0.6
    )
    plain = translator.translate(texts, n_best=3, length_penalty=0.6)
    assert [h[:2] for t in actual for h in t.hypotheses] == [
        h[:2] for t in plain for h in t.hypotheses
    ]
    for translation in actual[:2]:
        source = translation.hypotheses[0].source_tokens
        assert "".join(source) == "▁" + translation.source.replace(" ", "▁") + "</s>"
        for hypothesis in translation.hypotheses:
            # A poor hypothesis may begin within a word.
            assert (
                "".join(hypothesis.tokens).removeprefix("▁")
                == hypothesis.text.replace(" ", "▁") + "</s>"
            )
            length = len(hypothesis.tokens)
            assert sum(hypothesis.token_log_probs) / ((5 + length) / 6) ** 0.6 == pytest.approx(
                hypothesis.score, abs=1e-5
            )
            assert hypothesis.attention.shape == (
                config.decoder_layers,
                config.num_heads,
                length,
                len(source),
            )
            np.testing.assert_allclose(hypothesis.attention.sum(-1), 1.0, atol=1e-5)
    (blank,) = actual[2].hypotheses[:1]
    assert (blank.tokens, blank.token_log_probs, blank.source_tokens) == ([], [], ["</s>"])


def test_details_are_optional(translator):
    (plain,) = translator.translate(["seven"])[0].hypotheses
    assert plain[2:] == (None,) * 4
    (scored,) = translator.translate(["seven"], token_scores=True)[0].hypotheses
    assert scored.attention is None
    assert len(scored.token_log_probs) == len(scored.tokens)
    (attending,) = translator.translate(["seven"], attention=True)[0].hypotheses
    assert attending.token_log_probs is None
    assert attending.attention.shape[2] == len(attending.tokens)


def test_attention_of_cached_steps(translator):
    """What coverage sums up is the mean of the last layer's heads."""
    (actual,) = translator.translate(
        ["ninety-eight"], attention=True, beam_size=1, length_penalty=0.0, coverage_penalty=0.7
    )[0].hypotheses
    covered = np.minimum(actual.attention[-1].mean(axis=0).sum(axis=0), 1.0)
    expected = translator.score(["ninety-eight"], [actual.text])[0] + 0.7 * np.log(covered).sum()
    assert actual.score == pytest.approx(expected, abs=1e-4)


def test_translations_keep_prefixes(translator):
    texts, prefixes = ["forty-two", "forty-two", "seven", "one hundred"], ["drei", None, "acht", ""]
    actual = translator.translate(texts, prefixes=prefixes, batch_size=3)
    plain = translator.translate(texts)
    assert [
        t.text.startswith(prefix or "") for t, prefix in zip(actual, prefixes, strict=True)
    ] == [True] * 4
    assert [actual[1].text, actual[3].text] == [plain[1].text, plain[3].text]
    assert actual[0].text != plain[0].text


def test_bad_prefixes_are_refused(translator):
    with pytest.raises(
        ValueError, match="prefixes: expected a prefix or None for each of 2 texts, got 1"
    ):
        translator.translate(["one", "two"], prefixes=["eins"])
    with pytest.raises(ValueError, match="prefixes: expected a list of strings, got one string"):
        translator.translate(["one", "two"], prefixes="ei")
    with pytest.raises(ValueError, match="prefixes: expected strings, got int at index 1"):
        translator.translate(["one", "two"], prefixes=[None, 2])
    with pytest.raises(
        ValueError,
        match=r"texts, prefixes: expected at most 32 tokens each, got more in 1: number 2 \('two",
    ):
        translator.translate(["one", "two"], prefixes=[None, "zwei " * 99])


def test_pairs_are_scored_in_batches(translator):
    sources, targets = (
        ["one", "one hundred twenty-three", "", "seventeen"],
        ["eins", "hundert", "null", "siebzehn"],
    )
    whole, single = (
        translator.score(sources, targets),
        translator.score(sources, targets, batch_size=1),
    )
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole, single, rtol=1e-6, atol=1e-5)
    for actual, target, score in zip(
        translator.score_tokens(sources, targets, batch_size=3), targets, whole, strict=True
    ):
        assert actual.text == target
        assert actual.log_probability == pytest.approx(score, rel=1e-6, abs=1e-5)
        assert sum(actual.token_log_probs) == pytest.approx(score, rel=1e-6, abs=1e-5)
        assert "".join(actual.tokens) == f"▁{target}</s>"
        assert actual.attention is None
    assert translator.score([], []).shape == (0,)
