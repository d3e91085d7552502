"""Searches over scripted logits, and the best hypotheses by trying all."""

import itertools

import numpy as np
import tensorflow as tf
from traced_search import LIMIT_SPECS, setting_tensors

from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import END_ID
from tfk_transformer.models.token_model import Step
from tfk_transformer.search.beam_search import BeamSearch
from tfk_transformer.search.search_state import Limits
from tfk_transformer.search.vocabulary import VocabularyBlocks

VOCAB = 7


def scripted_step(table):
    """A "model" whose logits depend on the sentence, the position and only the last token: table
    (B, T, V, V).
    """

    def step(beams, cache, memory):
        (rows,) = memory  # which sentences are still in the batch
        tokens, position = beams.ids[:, :, -1], tf.shape(beams.ids)[2] - 1
        logits = tf.gather(tf.gather(table, rows)[:, position], tokens, batch_dims=1)  # (A, M, V)
        return Step(logits, cache, tf.zeros([*tf.unstack(tf.shape(tokens)), 0]))

    return step


def search(step, limits, vocab_size=VOCAB):
    return BeamSearch(step, limits, VocabularyBlocks.of(vocab_size))


def limits(beam_size=1, n_best=1, **settings):
    """Return the settings of a search, without the limits that `SearchSettings` has."""
    return Limits(
        **{
            **SearchSettings().as_numbers(),
            "beam_size": beam_size,
            "n_best": n_best,
            "length_penalty": 0.0,
            **settings,
        }
    )


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None, VOCAB, VOCAB], tf.float32),
        tf.TensorSpec([None], tf.int32),
        LIMIT_SPECS,
        tf.TensorSpec([None, None], tf.int32),
    ],
    autograph=False,
)
def scripted_search(table, longest, limits, prefix):
    sentences = tf.shape(table)[0]
    memory, no_source = (tf.range(sentences),), tf.zeros([sentences, 0], tf.bool)
    return search(scripted_step(table), limits).run([], memory, no_source, longest, prefix)


def searched(table, beam_size, n_best=1, length_penalty=0.0, max_length=4, prefix=None, **settings):
    """Search in a graph that is traced once for all tests."""
    longest = np.broadcast_to(np.array(max_length, "int32"), [len(table)])
    settings |= {"beam_size": beam_size, "n_best": n_best, "length_penalty": length_penalty}
    prefix = np.zeros([len(table), 0], "int32") if prefix is None else prefix
    table = tf.constant(table, tf.float32)
    return scripted_search(table, longest, setting_tensors(**settings), prefix)


def all_hypotheses(table, length_penalty, max_length, prefix=()):
    """Every sequence that ends, or is cut at max_length, with its score, best first; table (T, V,
    V).

    All begin with the prefix, which counts neither in the log-probability nor in the length that is
    penalized.
    """
    log_probs = table.astype("float64") - np.log(
        np.exp(table.astype("float64")).sum(-1, keepdims=True)
    )
    actual = []
    for length in range(1, max_length + 1):
        # Padding and start are never chosen.
        for tokens in itertools.product(range(END_ID, VOCAB), repeat=length):
            if END_ID in tokens[:-1] or (length < max_length and tokens[-1] != END_ID):
                continue
            if length <= len(prefix) or tokens[: len(prefix)] != tuple(prefix):
                continue
            steps = list(enumerate(itertools.pairwise((1, *tokens))))[len(prefix) :]
            total = sum(log_probs[t, last, token] for t, (last, token) in steps)
            actual.append((total / ((5 + len(steps)) / 6) ** length_penalty, tokens))
    return sorted(actual, reverse=True)


def random_table(seed, sentences=1, max_length=4):
    return (
        np.random.default_rng(seed)
        .normal(size=(sentences, max_length, VOCAB, VOCAB), scale=2)
        .astype("float32")
    )


def nowhere_to_end(sentences=1):
    """A table whose tokens are all alike, but for an end that is less likely."""
    table = np.full((sentences, 4, VOCAB, VOCAB), -9.0, "float32")
    table[..., END_ID] = -10.0
    return table
