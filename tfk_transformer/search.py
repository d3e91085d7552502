"""Beam search over a cached step, as TensorFlow graph code: what Keras runs is what is exported.

The search keeps M open hypotheses a sentence. In each step the best 2M continuations are looked at: those among the
first M that end are finished and frozen, and the best M that do not end stay open. A sentence is done when it has M
finished hypotheses, or when no open one can still enter its best `n_best`. With M = 1 this is greedy search.

The sentences of a batch do not influence each other, and the loop carries plain tensors alone, so that it becomes one
ONNX `Loop`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfk_transformer.config import END_ID, PAD_ID, START_ID

IMPOSSIBLE = -1e9  # a log-probability that no hypothesis has; below half of it there is no hypothesis


class Hypotheses(NamedTuple):
    """The result of a search, best first; where there are fewer than n_best, padding with a score of -1e9."""

    ids: Any  # int32 (B, n_best, T): tokens, the end token unless cut at max_length, padding
    scores: Any  # float32 (B, n_best): log-probability / length penalty


class Limits(NamedTuple):
    """Search settings as tensors or Python numbers; see `SearchSettings`."""

    beam_size: Any
    n_best: Any
    length_penalty: Any
    max_length: Any


class _State(NamedTuple):
    """What the loop carries."""

    length: Any  # int32 (): tokens so far
    last: Any  # int32 (B, M): the token each open hypothesis ends with
    ids: Any  # int32 (B, M, length): open hypotheses
    log_probs: Any  # float32 (B, M): their log-probabilities, falling
    cache: Any  # each layer's keys and values of (B*M, H, length, …)
    finished_ids: Any  # int32 (B, M, length)
    finished_scores: Any  # float32 (B, M), falling
    done: Any  # bool (B,)


class _Candidates(NamedTuple):
    """The best 2M continuations of each sentence, best first."""

    log_probs: Any  # float32 (B, 2M)
    beams: Any  # int32 (B, 2M): which open hypothesis each continues
    tokens: Any  # int32 (B, 2M)


def penalty(length, alpha):
    """Return ((5 + length) / 6) ** alpha (arXiv:1609.08144, equation 14), float32."""
    return tf.pow((5.0 + tf.cast(length, tf.float32)) / 6.0, tf.cast(alpha, tf.float32))


def beam_search(step: Callable, cache, batch_size, limits: Limits) -> Hypotheses:
    """Search for the best translations of a batch.

    Args:
        step: (tokens (B, M), position (), cache) -> (logits (B, M, vocab_size), cache), with the cache's first axis B*M.
        cache: the cache before the first step; its tensors grow along axis 2.
        batch_size: B.
        limits: the settings.

    Returns:
        The n_best hypotheses of each sentence.
    """
    state = tf.while_loop(
        lambda s: _is_open(s, limits),
        lambda s: (_advance(step, s, limits),),
        (_first_state(cache, batch_size, limits.beam_size),),
        shape_invariants=(_invariants(cache),),
    )[0]
    return _best(state, limits)


def _first_state(cache, batch_size, beams) -> _State:
    none = tf.zeros([batch_size, beams, 0], tf.int32)
    start = tf.fill([batch_size, beams], START_ID)
    impossible = tf.fill([batch_size, beams], IMPOSSIBLE)
    # All beams begin alike: only the first is possible, or they would stay copies of each other.
    one_possible = tf.where(tf.equal(tf.range(beams), 0), 0.0, impossible)
    return _State(0, start, none, one_possible, cache, none, impossible, tf.fill([batch_size], False))


def _invariants(cache) -> _State:
    grown = tf.nest.map_structure(lambda t: tf.TensorShape([None, t.shape[1], None, t.shape[3]]), cache)
    ids, scores = tf.TensorShape([None, None, None]), tf.TensorShape([None, None])
    return _State(tf.TensorShape([]), scores, ids, scores, grown, ids, scores, tf.TensorShape([None]))


def _is_open(state: _State, limits: Limits):
    return tf.logical_and(state.length < limits.max_length, tf.logical_not(tf.reduce_all(state.done)))


def _advance(step, state: _State, limits: Limits) -> _State:
    """Extend every open hypothesis by a token."""
    logits, cache = step(state.last, state.length, state.cache)
    candidates = _best_continuations(state.log_probs, tf.nn.log_softmax(tf.cast(logits, tf.float32)), limits.beam_size)
    ids = tf.concat([tf.gather(state.ids, candidates.beams, batch_dims=1), candidates.tokens[:, :, None]], axis=2)  # (B, 2M, length+1)
    ending = tf.equal(candidates.tokens, END_ID)
    finished_ids, finished_scores = _finish(state, candidates, ids, ending, limits)
    log_probs, kept = tf.math.top_k(tf.where(ending, IMPOSSIBLE, candidates.log_probs), k=limits.beam_size)
    beams = tf.gather(candidates.beams, kept, batch_dims=1)
    return _State(
        length=state.length + 1,
        last=tf.gather(candidates.tokens, kept, batch_dims=1),
        ids=tf.gather(ids, kept, batch_dims=1),
        log_probs=log_probs,
        cache=_reorder(cache, beams, limits.beam_size),
        finished_ids=finished_ids,
        finished_scores=finished_scores,
        done=tf.logical_or(state.done, _cannot_improve(finished_scores, log_probs, limits)),
    )


def _best_continuations(open_log_probs, token_log_probs, beams) -> _Candidates:
    """Choose the best 2M of a sentence's M * vocab_size continuations."""
    vocab_size = token_log_probs.shape[-1]
    totals = open_log_probs[:, :, None] + token_log_probs  # (B, M, vocab_size)
    totals = tf.reshape(totals, [-1, beams * vocab_size])
    log_probs, flat = tf.math.top_k(totals, k=2 * beams)
    return _Candidates(log_probs, flat // vocab_size, flat % vocab_size)


def _finish(state: _State, candidates: _Candidates, ids, ending, limits: Limits):
    """Merge the candidates that end into the finished hypotheses and keep the best M; done sentences stay as they are."""
    leading = tf.range(2 * limits.beam_size) < limits.beam_size
    accepted = ending & leading & tf.logical_not(state.done)[:, None] & (candidates.log_probs > IMPOSSIBLE / 2)
    scores = tf.where(accepted, candidates.log_probs / penalty(state.length + 1, limits.length_penalty), IMPOSSIBLE)
    older = tf.pad(state.finished_ids, [[0, 0], [0, 0], [0, 1]], constant_values=PAD_ID)
    return _merge(older, state.finished_scores, ids, scores, limits.beam_size)


def _merge(ids, scores, other_ids, other_scores, count):
    """Return the `count` best of two lists of hypotheses."""
    best, chosen = tf.math.top_k(tf.concat([scores, other_scores], axis=1), k=count)
    return tf.gather(tf.concat([ids, other_ids], axis=1), chosen, batch_dims=1), best


def _reorder(cache, beams, beam_size):
    """Give each open hypothesis the cache rows of the one it continues; beams is (B, M)."""
    sentences = tf.range(tf.shape(beams)[0])[:, None]
    rows = tf.reshape(sentences * beam_size + beams, [-1])  # (B*M,)
    return tf.nest.map_structure(lambda t: tf.gather(t, rows), cache)


def _cannot_improve(finished_scores, log_probs, limits: Limits):
    """Tell which sentences have M finished hypotheses, or n_best that no open one can pass.

    An open hypothesis only loses probability, and its penalty grows at most to that of max_length, so its best possible
    score is known.
    """
    full = finished_scores[:, -1] > IMPOSSIBLE / 2
    attainable = log_probs[:, 0] / penalty(limits.max_length, limits.length_penalty)
    worst_returned = tf.gather(finished_scores, limits.n_best - 1, axis=1)
    return full | (worst_returned >= attainable)


def _best(state: _State, limits: Limits) -> Hypotheses:
    """Let hypotheses cut at max_length compete with the finished ones; return the n_best."""
    cut = tf.where(state.done[:, None], IMPOSSIBLE, state.log_probs / penalty(state.length, limits.length_penalty))
    cut = tf.where(state.log_probs > IMPOSSIBLE / 2, cut, IMPOSSIBLE)
    ids, scores = _merge(state.finished_ids, state.finished_scores, state.ids, cut, limits.n_best)
    real = scores > IMPOSSIBLE / 2
    return Hypotheses(tf.where(real[:, :, None], ids, PAD_ID), tf.where(real, scores, IMPOSSIBLE))
