import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfk_transformer.config import END_ID, SearchSettings, TransformerConfig
from tfk_transformer.search import IMPOSSIBLE, Limits, beam_search, penalty
from tfk_transformer.transformer import Transformer

VOCAB = 7
SCRIPT = st.integers(0, 2**32 - 1)


def scripted_step(table):
    """A "model" whose logits depend on the sentence, the position and the last token alone: table (B, T, V, V)."""

    def step(tokens, position, cache):
        return tf.gather(table[:, position], tokens, batch_dims=1), cache  # (B, M, V)

    return step


def no_cache(rows):
    return [tf.zeros([rows, 1, 0, 1])]


def searched(table, beam_size, n_best=1, length_penalty=0.0, max_length=4, prefix=None):
    table = tf.constant(table, tf.float32)
    longest = tf.broadcast_to(max_length, [len(table)])
    return beam_search(scripted_step(table), no_cache(len(table) * beam_size), longest, beam_size, n_best, length_penalty, prefix)


def all_hypotheses(table, length_penalty, max_length, prefix=()):
    """Every sequence that ends, or is cut at max_length, with its score, best first; table (T, V, V).

    All begin with the prefix, which counts neither in the log-probability nor in the length that is penalised.
    """
    log_probs = table.astype("float64") - np.log(np.exp(table.astype("float64")).sum(-1, keepdims=True))
    found = []
    for length in range(1, max_length + 1):
        for tokens in itertools.product(range(END_ID, VOCAB), repeat=length):  # padding and start are never said
            if END_ID in tokens[:-1] or (length < max_length and tokens[-1] != END_ID):
                continue
            if length <= len(prefix) or tokens[: len(prefix)] != tuple(prefix):
                continue
            steps = list(enumerate(itertools.pairwise((1, *tokens))))[len(prefix) :]
            total = sum(log_probs[t, last, token] for t, (last, token) in steps)
            found.append((total / ((5 + len(steps)) / 6) ** length_penalty, tokens))
    return sorted(found, reverse=True)


def random_table(seed, sentences=1, max_length=4):
    return np.random.default_rng(seed).normal(size=(sentences, max_length, VOCAB, VOCAB), scale=2).astype("float32")


def nowhere_to_end(sentences=1):
    """A table whose tokens are all alike, but for an end that is less likely."""
    table = np.full((sentences, 4, VOCAB, VOCAB), -9.0, "float32")
    table[..., END_ID] = -10.0
    return table


def test_scripted_logits_give_the_scripted_ids():
    table = nowhere_to_end()
    for position, (last, token) in enumerate([(1, 4), (4, 3), (3, END_ID)]):
        table[0, position, last, token] = 9.0
    for beam_size in (1, 2, 3):
        found = searched(table, beam_size)
        np.testing.assert_array_equal(found.ids, [[[4, 3, END_ID]]])
        assert found.scores.numpy()[0, 0] == pytest.approx(0.0, abs=1e-5)


def test_beam_finds_what_greedy_misses():
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


def test_finished_hypotheses_collect_no_more_score():
    table = np.full((1, 4, VOCAB, VOCAB), -9.0, "float32")
    table[0, 0, 1, [END_ID, 4]] = np.log([0.5, 0.5])
    table[0, 1:, 4, 4] = 1.0
    found = searched(table, 2, n_best=2)
    ended = found.scores.numpy()[0][np.array(found.ids)[0, :, 0] == END_ID]
    assert ended == pytest.approx([np.log(0.5)], abs=1e-3)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_beam_that_covers_everything_equals_exhaustive_search(seed, length_penalty):
    table, n_best = random_table(seed), 7
    found = searched(table, beam_size=VOCAB**4, n_best=n_best, length_penalty=length_penalty)
    expected = all_hypotheses(table[0], length_penalty, 4)[:n_best]
    np.testing.assert_allclose(found.scores[0], [score for score, _ in expected], atol=1e-5)
    assert [tuple(row) for row in found.ids.numpy()[0]] == [tokens + (0,) * (4 - len(tokens)) for _, tokens in expected]


@pytest.mark.parametrize("length_penalty", [0.0, 0.6])
@pytest.mark.parametrize("prefix", [(4,), (3, 3), (3, 4, 3)])
def test_with_a_prefix_it_equals_exhaustive_search_from_there(prefix, length_penalty):
    table = random_table(7)
    found = searched(table, VOCAB**4, 7, length_penalty, prefix=tf.constant([prefix]))
    expected = all_hypotheses(table[0], length_penalty, 4, prefix)[:7]
    np.testing.assert_allclose(found.scores.numpy()[0, : len(expected)], [score for score, _ in expected], atol=1e-5)
    ids = [tuple(row) for row in found.ids.numpy()[0]]
    assert ids[: len(expected)] == [tokens + (0,) * (4 - len(tokens)) for _, tokens in expected]


@settings(max_examples=10, deadline=None)
@given(SCRIPT, st.integers(1, 3))
def test_prefixes_of_unlike_lengths_go_together(seed, beam_size):
    table, prefixes = random_table(seed, sentences=3), tf.constant([[3, 4, 3], [4, 0, 0], [0, 0, 0]])
    together = searched(table, beam_size, beam_size, 0.6, prefix=prefixes)
    for sentence in range(3):
        rows = slice(sentence, sentence + 1)
        alone = searched(table[rows], beam_size, beam_size, 0.6, prefix=prefixes[rows])
        length = alone.ids.shape[2]
        np.testing.assert_array_equal(together.ids[sentence, :, :length], alone.ids[0])
        np.testing.assert_allclose(together.scores[sentence], alone.scores[0], atol=1e-5)
    np.testing.assert_allclose(together.scores[2], searched(table, beam_size, beam_size, 0.6).scores[2], atol=1e-5)


def test_padding_and_start_are_never_said():
    table = np.full((1, 4, VOCAB, VOCAB), -1.0, "float32")
    table[..., :END_ID] = 9.0
    found = searched(table, 3, 3)
    assert not np.isin(found.ids.numpy()[found.ids.numpy() > 0], [0, 1]).any()
    assert np.all(found.ids.numpy()[0, :, 0] > 1)


@settings(max_examples=15, deadline=None)
@given(SCRIPT, st.integers(1, 3), st.floats(0, 1.5), st.integers(1, 4))
def test_scores_are_the_log_probabilities_of_the_ids(seed, beam_size, length_penalty, max_length):
    table = random_table(seed)
    found = searched(table, beam_size, beam_size, length_penalty, max_length)
    scores = {tokens: score for score, tokens in all_hypotheses(table[0], length_penalty, max_length)}
    for row, score in zip(found.ids.numpy()[0], found.scores.numpy()[0], strict=True):
        if score > IMPOSSIBLE / 2:
            tokens = tuple(row[: list(row).index(END_ID) + 1]) if END_ID in row else tuple(row)
            assert score == pytest.approx(scores[tokens], abs=1e-4)
    assert list(found.scores[0]) == sorted(found.scores.numpy()[0], reverse=True)


@settings(max_examples=10, deadline=None)
@given(SCRIPT, st.integers(1, 3))
def test_a_sentence_gives_alone_what_it_gives_in_a_batch(seed, beam_size):
    table = random_table(seed, sentences=3)
    together = searched(table, beam_size, beam_size, 0.6)
    for sentence in range(3):
        alone = searched(table[sentence : sentence + 1], beam_size, beam_size, 0.6)
        length = alone.ids.shape[2]
        np.testing.assert_array_equal(together.ids[sentence, :, :length], alone.ids[0])
        np.testing.assert_array_equal(together.ids[sentence, :, length:], 0)
        np.testing.assert_allclose(together.scores[sentence], alone.scores[0], atol=1e-5)


def test_greedy_takes_the_most_probable_token_each_time():
    table, tokens = random_table(3, max_length=4), [1]
    while len(tokens) < 5 and tokens[-1] != END_ID:
        tokens.append(END_ID + int(table[0, len(tokens) - 1, tokens[-1], END_ID:].argmax()))
    found = searched(table, 1)
    assert list(found.ids.numpy()[0, 0]) == tokens[1:]


def test_a_hypothesis_cut_at_max_length_has_no_end_token():
    table = nowhere_to_end()
    table[..., 4] = 9.0
    np.testing.assert_array_equal(searched(table, 2).ids, [[[4, 4, 4, 4]]])


def test_each_sentence_has_a_greatest_length_of_its_own():
    table = nowhere_to_end(3)
    table[..., 4] = 9.0
    np.testing.assert_array_equal(searched(table, 2, max_length=[2, 4, 1]).ids[:, 0], [[4, 4, 0, 0], [4, 4, 4, 4], [4, 0, 0, 0]])


def test_the_greatest_length_follows_the_source():
    limits = Limits(1, 1, 0.0, max_length=30, max_length_factor=1.5)
    np.testing.assert_array_equal(limits.longest(tf.constant([1, 4, 5, 90])), [12, 16, 18, 30])


def test_penalty_is_googles():
    assert penalty(7, 0.6).numpy() == pytest.approx(2.0**0.6)
    assert penalty(7, 0.0).numpy() == 1.0


def test_the_decoders_cache_is_reordered_with_the_beams():
    """With real caches, each hypothesis's score is that of the full pass over its tokens."""
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
    memory = model.remember(source)
    found = beam_search(
        lambda tokens, position, cache: model.step(tokens, position, cache, memory),
        model.decoder.empty_cache(2 * beams),
        tf.constant([6, 6]),
        beams,
        beams,
        0.0,
    )
    for sentence, beam in itertools.product(range(2), range(beams)):
        ids = found.ids.numpy()[sentence, beam]
        length = list(ids).index(END_ID) + 1 if END_ID in ids else len(ids)
        target = np.concatenate([[1], ids[: length - 1]])[None].astype("int32")
        log_probs = tf.nn.log_softmax(model({"source": source[sentence : sentence + 1], "target": target}))[0]
        total = sum(float(log_probs[t, ids[t]]) for t in range(length))
        assert found.scores.numpy()[sentence, beam] == pytest.approx(total, abs=1e-4)


def test_settings_refuse_more_results_than_beams():
    with pytest.raises(ValueError, match="n_best must not exceed beam_size, got n_best 5 and beam_size 4"):
        SearchSettings(n_best=5)
