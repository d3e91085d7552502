import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_search import (
    VOCAB,
    all_hypotheses,
    limits,
    nowhere_to_end,
    random_table,
    scripted_step,
    search,
    searched,
)

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.search_settings import SearchSettings, length_penalty
from tfk_transformer.constants import END_ID
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.search.next_token import NEG_INF

SCRIPT = st.integers(0, 2**32 - 1)


def test_search_follows_the_logits():
    table = nowhere_to_end()
    for position, (last, token) in enumerate([(1, 4), (4, 3), (3, END_ID)]):
        table[0, position, last, token] = 9.0
    for beam_size in (1, 2, 3):
        actual = searched(table, beam_size)
        np.testing.assert_array_equal(actual.ids, [[[4, 3, END_ID]]])
        assert actual.scores.numpy()[0, 0] == pytest.approx(0.0, abs=1e-5)


def test_beam_search_beats_greedy():
    table = np.full((1, 4, VOCAB, VOCAB), -99.0, "float32")
    table[0, 0, 1, [3, 4]] = np.log([0.6, 0.4])
    table[0, 1, 3, [3, 4]] = np.log([0.5, 0.5])
    table[0, 1, 4, END_ID] = 0.0
    table[0, 2:, :, END_ID] = 0.0
    greedy, beam = searched(table, 1), searched(table, 2)
    np.testing.assert_array_equal(greedy.ids, [[[3, 3, END_ID]]])
    np.testing.assert_array_equal(beam.ids[0, 0], [4, END_ID])
    assert greedy.scores.numpy()[0, 0] == pytest.approx(np.log(0.3), abs=1e-5)
    assert beam.scores.numpy()[0, 0] == pytest.approx(np.log(0.4), abs=1e-5)


def test_finished_scores_are_final():
    table = np.full((1, 4, VOCAB, VOCAB), -9.0, "float32")
    table[0, 0, 1, [END_ID, 4]] = np.log([0.5, 0.5])
    table[0, 1:, 4, 4] = 1.0
    actual = searched(table, 2, n_best=2)
    ended = actual.scores.numpy()[0][np.array(actual.ids)[0, :, 0] == END_ID]
    assert ended == pytest.approx([np.log(0.5)], abs=1e-3)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_wide_beam_is_exhaustive(seed, length_penalty):
    table, n_best = random_table(seed), 7
    actual = searched(table, beam_size=VOCAB**4, n_best=n_best, length_penalty=length_penalty)
    expected = all_hypotheses(table[0], length_penalty, 4)[:n_best]
    np.testing.assert_allclose(actual.scores[0], [score for score, _ in expected], atol=1e-5)
    assert [tuple(row) for row in actual.ids.numpy()[0]] == [
        tokens + (0,) * (4 - len(tokens)) for _, tokens in expected
    ]


@pytest.mark.parametrize("length_penalty", [0.0, 0.6])
@pytest.mark.parametrize("prefix", [(4,), (3, 3), (3, 4, 3)])
def test_prefix_search_is_exhaustive(prefix, length_penalty):
    table = random_table(7)
    actual = searched(table, VOCAB**4, 7, length_penalty, prefix=tf.constant([prefix]))
    expected = all_hypotheses(table[0], length_penalty, 4, prefix)[:7]
    np.testing.assert_allclose(
        actual.scores.numpy()[0, : len(expected)], [score for score, _ in expected], atol=1e-5
    )
    ids = [tuple(row) for row in actual.ids.numpy()[0]]
    assert ids[: len(expected)] == [tokens + (0,) * (4 - len(tokens)) for _, tokens in expected]


@settings(max_examples=10, deadline=None)
@given(SCRIPT, st.integers(1, 3))
def test_prefix_lengths_may_differ(seed, beam_size):
    table, prefixes = (
        random_table(seed, sentences=3),
        tf.constant([[3, 4, 3], [4, 0, 0], [0, 0, 0]]),
    )
    together = searched(table, beam_size, beam_size, 0.6, prefix=prefixes)
    for sentence in range(3):
        rows = slice(sentence, sentence + 1)
        alone = searched(table[rows], beam_size, beam_size, 0.6, prefix=prefixes[rows])
        length = alone.ids.shape[2]
        np.testing.assert_array_equal(together.ids[sentence, :, :length], alone.ids[0])
        np.testing.assert_allclose(together.scores[sentence], alone.scores[0], atol=1e-5)
    np.testing.assert_allclose(
        together.scores[2], searched(table, beam_size, beam_size, 0.6).scores[2], atol=1e-5
    )


def test_padding_and_start_not_chosen():
    table = np.full((1, 4, VOCAB, VOCAB), -1.0, "float32")
    table[..., :END_ID] = 9.0
    actual = searched(table, 3, 3)
    assert not np.isin(actual.ids.numpy()[actual.ids.numpy() > 0], [0, 1]).any()
    assert np.all(actual.ids.numpy()[0, :, 0] > 1)


@settings(max_examples=15, deadline=None)
@given(SCRIPT, st.integers(1, 3), st.floats(0, 1.5), st.integers(1, 4))
def test_scores_are_log_probabilities(seed, beam_size, length_penalty, max_length):
    table = random_table(seed)
    actual = searched(table, beam_size, beam_size, length_penalty, max_length)
    scores = {
        tokens: score for score, tokens in all_hypotheses(table[0], length_penalty, max_length)
    }
    for row, score in zip(actual.ids.numpy()[0], actual.scores.numpy()[0], strict=True):
        if score > NEG_INF / 2:
            tokens = tuple(row[: list(row).index(END_ID) + 1]) if END_ID in row else tuple(row)
            assert score == pytest.approx(scores[tokens], abs=1e-4)
    assert list(actual.scores[0]) == sorted(actual.scores.numpy()[0], reverse=True)


@settings(max_examples=10, deadline=None)
@given(SCRIPT, st.integers(1, 3))
def test_result_ignores_the_batch(seed, beam_size):
    table = random_table(seed, sentences=3)
    together = searched(table, beam_size, beam_size, 0.6)
    for sentence in range(3):
        alone = searched(table[sentence : sentence + 1], beam_size, beam_size, 0.6)
        length = alone.ids.shape[2]
        np.testing.assert_array_equal(together.ids[sentence, :, :length], alone.ids[0])
        np.testing.assert_array_equal(together.ids[sentence, :, length:], 0)
        np.testing.assert_allclose(together.scores[sentence], alone.scores[0], atol=1e-5)


# Rules on the tokens that may be chosen.


@pytest.mark.parametrize("min_length", [2, 3, 4])
def test_min_length_is_respected(min_length):
    table = random_table(11)
    actual = searched(table, VOCAB**4, 7, 0.6, min_length=min_length)
    expected = [
        (score, tokens)
        for score, tokens in all_hypotheses(table[0], 0.6, 4)
        if len(tokens) >= min_length
    ][:7]
    np.testing.assert_allclose(actual.scores[0], [score for score, _ in expected], atol=1e-5)


def greedy_by_hand(table, change):
    """Follow the best token of `change(logits, tokens so far)`; return the tokens."""
    tokens = [1]
    while len(tokens) < 1 + len(table) and tokens[-1] != END_ID:
        logits = change(table[len(tokens) - 1, tokens[-1]].copy(), tokens[1:])
        tokens.append(END_ID + int(logits[END_ID:].argmax()))
    return tokens[1:]


def endless(seed, length=12):
    """A table whose tokens repeat unless they may not, and hardly ever end."""
    table = random_table(seed, max_length=length)
    table[..., END_ID] = -30.0
    return table


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_no_ngram_comes_twice(size, seed):
    def forbid(logits, tokens):
        for start in range(len(tokens) - size + 1):
            if tokens[start : start + size - 1] == tokens[len(tokens) - size + 1 :]:
                logits[tokens[start + size - 1]] = -np.inf
        return logits

    table = endless(seed)
    (ids,) = searched(table, 1, max_length=12, no_repeat_ngram_size=size).ids.numpy()[0]
    assert [i for i in ids if i] == greedy_by_hand(table[0], forbid)
    for actual in searched(table, 3, 3, max_length=12, no_repeat_ngram_size=size).ids.numpy()[0]:
        ngrams = list(zip(*(actual[actual > 0][place:] for place in range(size)), strict=False))
        assert len(ngrams) == len(set(ngrams))


@pytest.mark.parametrize("seed", range(4))
def test_repeated_tokens_are_penalized(seed):
    def penalize(logits, tokens):
        for token in set(tokens):
            logits[token] = logits[token] / 1.7 if logits[token] > 0 else logits[token] * 1.7
        return logits

    table = endless(seed)
    (ids,) = searched(table, 1, max_length=12, repetition_penalty=1.7).ids.numpy()[0]
    assert [i for i in ids if i] == greedy_by_hand(table[0], penalize)


def test_coverage_counts_attention():
    """Exhaustive search, with attention that depends on the last token."""
    # (V, S)
    table, attention = (
        random_table(13),
        np.random.default_rng(3).dirichlet(np.ones(3), size=VOCAB).astype("float32"),
    )
    real = np.array([[True, True, False]])

    def step(beams, cache, memory):
        scripted = scripted_step(tf.constant(table))(beams, cache, memory)
        return scripted._replace(attention=tf.gather(attention, beams.ids[:, :, -1]))

    required = limits(VOCAB**4, 7, coverage_penalty=0.3)
    no_prefix = tf.zeros([1, 0], tf.int32)
    actual = search(step, required).run(
        [], (tf.range(1),), tf.constant(real), tf.constant([4]), no_prefix
    )
    expected = []
    for score, tokens in all_hypotheses(table[0], 0.0, 4):
        got = np.sum([attention[last] for last in (1, *tokens[:-1])], axis=0)
        expected.append(score + 0.3 * np.sum(np.log(np.minimum(got, 1.0))[real[0]]))
    np.testing.assert_allclose(actual.scores[0], sorted(expected, reverse=True)[:7], atol=1e-5)


# Drawing.


def drawn_first(table, chains, **settings):
    """Draw this many hypotheses, and return the first token of each."""
    actual = searched(
        table,
        chains,
        chains,
        max_length=1,
        temperature=settings.pop("temperature", 1.0),
        **settings,
    )
    return actual.ids.numpy()[0, :, 0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampling_follows_probability(temperature):
    table, chains = random_table(5, max_length=1), 4001
    logits = table[0, 0, 1, END_ID:] / temperature
    expected = np.exp(logits) / np.exp(logits).sum()
    counts = np.bincount(drawn_first(table, chains, temperature=temperature), minlength=VOCAB)[
        END_ID:
    ]
    deviation = (counts - chains * expected) / np.sqrt(chains * expected * (1 - expected))
    assert np.abs(deviation).max() < 4


def test_seed_fixes_the_samples():
    table = random_table(5)
    first, again, other = (searched(table, 5, 5, temperature=1.0, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.ids, again.ids)
    assert not np.array_equal(first.ids, other.ids)


def test_draws_are_independent():
    table = np.zeros((1, 2, VOCAB, VOCAB), "float32")
    table[..., END_ID] = -99.0
    (ids,) = searched(table, 4001, 4001, max_length=2, temperature=1.0).ids.numpy()
    counts = np.zeros((VOCAB, VOCAB))
    np.add.at(counts, (ids[:, 0], ids[:, 1]), 1)
    expected = 4001 / (VOCAB - 3) ** 2
    assert np.abs(counts[3:, 3:] - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}])
def test_draw_from_one_is_greedy(settings):
    table = random_table(5)
    np.testing.assert_array_equal(
        searched(table, 1, **{"temperature": 1.0, **settings}).ids, searched(table, 1).ids
    )


def test_top_k_and_top_p_limit_draws():
    table = random_table(6, max_length=1)
    falling = END_ID + np.argsort(-table[0, 0, 1, END_ID:])
    assert set(drawn_first(table, 501, top_k=2)) == set(falling[:2])
    shares = np.sort(np.exp(table[0, 0, 1, END_ID:]))[::-1]
    reach = float(shares[:2].sum() / shares.sum()) + 1e-4  # two tokens fall just short of it
    assert set(drawn_first(table, 2001, top_p=reach)) == set(falling[:3])


def test_sampling_keeps_min_length():
    table = random_table(6)
    table[..., END_ID] = 5.0
    (ids,) = searched(table, 101, 101, temperature=1.0, min_length=3).ids.numpy()
    assert set(np.count_nonzero(ids, axis=1)) == {3, 4}
    assert not (ids[:, :2] == END_ID).any()


def test_sampling_ignores_the_batch():
    table = random_table(8, sentences=3)
    together = searched(table, 2, 2, temperature=1.0)
    for sentence in range(3):
        alone = searched(table[sentence : sentence + 1], 2, 2, temperature=1.0).ids.numpy()
        np.testing.assert_array_equal(together.ids.numpy()[sentence, :, : alone.shape[2]], alone[0])


def test_samples_score_log_probability():
    table = random_table(9)
    actual = searched(table, 3, 3, temperature=2.0, top_k=3)
    scores = {tokens: score for score, tokens in all_hypotheses(table[0], 0.0, 4)}
    for row, score in zip(actual.ids.numpy()[0], actual.scores.numpy()[0], strict=True):
        tokens = tuple(row[: list(row).index(END_ID) + 1]) if END_ID in row else tuple(row)
        assert score == pytest.approx(scores[tokens], abs=1e-4)


def test_greedy_takes_the_best_token():
    table, tokens = random_table(3, max_length=4), [1]
    while len(tokens) < 5 and tokens[-1] != END_ID:
        tokens.append(END_ID + int(table[0, len(tokens) - 1, tokens[-1], END_ID:].argmax()))
    actual = searched(table, 1)
    assert list(actual.ids.numpy()[0, 0]) == tokens[1:]


def test_cut_hypothesis_has_no_end():
    table = nowhere_to_end()
    table[..., 4] = 9.0
    np.testing.assert_array_equal(searched(table, 2).ids, [[[4, 4, 4, 4]]])


def test_max_length_per_sentence():
    table = nowhere_to_end(3)
    table[..., 4] = 9.0
    np.testing.assert_array_equal(
        searched(table, 2, max_length=[2, 4, 1]).ids[:, 0],
        [[4, 4, 0, 0], [4, 4, 4, 4], [4, 0, 0, 0]],
    )


def test_max_length_follows_source():
    expected = limits(max_length=30, max_length_factor=1.5)
    np.testing.assert_array_equal(
        expected.max_lengths(tf.constant([1, 4, 5, 90])), [12, 16, 18, 30]
    )


def test_length_penalty_formula():
    assert length_penalty(7, 0.6) == pytest.approx(2.0**0.6)
    assert length_penalty(7, 0.0) == 1.0


def test_cached_scores_equal_full_pass():
    """The cache is not reordered: a mask shows each beam the positions that it descends from."""
    config = TransformerConfig(
        source_vocab_size=11,
        target_vocab_size=11,
        model_dim=14,
        ff_dim=13,
        num_heads=2,
        key_dim=3,
        value_dim=5,
        encoder_layers=1,
        decoder_layers=2,
    )
    keras.utils.set_random_seed(1)
    model = Transformer(config)
    model.build()
    # Sharpened, so that hypotheses differ early and beams change places.
    model.set_weights([weight * 3 for weight in model.get_weights()])
    source, beams = np.array([[5, 7, 2, 0], [6, 4, 9, 2]], "int32"), 4
    step, first_cache, memory = model.start_search(source)
    actual = search(step, limits(beams, beams), config.target_vocab_size).run(
        first_cache(2), memory, source != 0, tf.constant([6, 6]), tf.zeros([2, 0], tf.int32)
    )
    # The first step keeps as many first tokens as there are beams. Fewer are left: some beams were
    # replaced by branches of others.
    assert all(len(set(ids[:, 0])) < beams for ids in actual.ids.numpy())
    for sentence, beam in itertools.product(range(2), range(beams)):
        ids = actual.ids.numpy()[sentence, beam]
        length = list(ids).index(END_ID) + 1 if END_ID in ids else len(ids)
        target = np.concatenate([[1], ids[: length - 1]])[None].astype("int32")
        log_probs = tf.nn.log_softmax(
            model({"source": source[sentence : sentence + 1], "target": target})
        )[0]
        total = sum(float(log_probs[t, ids[t]]) for t in range(length))
        assert actual.scores.numpy()[sentence, beam] == pytest.approx(total, abs=1e-4)


def test_n_best_fits_the_beam_size():
    with pytest.raises(
        ValueError, match="n_best: expected at most beam_size, got n_best 5 and beam_size 4"
    ):
        SearchSettings(n_best=5)
