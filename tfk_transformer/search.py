"""Beam search over a cached step, as TensorFlow graph code: what Keras runs is what is exported.

The search keeps M open hypotheses a sentence. In each step the best 2M continuations are looked at: those among the
first M that end are finished and frozen, and the best M that do not end stay open. A sentence is done when it has M
finished hypotheses, when no open one can still enter its best `n_best`, or when it has reached its greatest length, where
open hypotheses are cut and compete with the finished ones. With M = 1 this is greedy search.

The sentences of a batch do not influence each other, and the loop carries plain tensors alone, so that it becomes one
ONNX `Loop`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfk_transformer.config import END_ID, PAD_ID, START_ID

LENGTH_ALLOWANCE = 10  # tokens that a target may have more than max_length_factor says
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
    max_length_factor: Any

    def longest(self, source_lengths):
        """Return the greatest target length (B,) for sources of so many tokens (B,)."""
        allowed = tf.math.ceil(tf.cast(source_lengths, tf.float32) * self.max_length_factor)
        return tf.minimum(self.max_length, tf.cast(allowed, tf.int32) + LENGTH_ALLOWANCE)


class _Rules(NamedTuple):
    """What stays the same in all steps."""

    beam_size: Any
    n_best: Any
    length_penalty: Any
    longest: Any  # int32 (B,)
    prefix: Any  # None, or int32 (B, P): tokens to begin with, padded
    given: Any  # int32 (B, 1) or 0: how many these are


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


def beam_search(step: Callable, cache, longest, beam_size, n_best, length_penalty, prefix=None) -> Hypotheses:
    """Search for the best translations of a batch.

    Args:
        step: (tokens (B, M), position (), cache) -> (logits (B, M, vocab_size), cache), with the cache's first axis B*M.
        cache: the cache before the first step; its tensors grow along axis 2.
        longest: int32 (B,), the greatest length of each sentence's hypotheses, in tokens, those of the prefix included.
        beam_size: M.
        n_best: hypotheses to return a sentence.
        length_penalty: alpha of `penalty`.
        prefix: int32 (B, P), tokens that every hypothesis of a sentence begins with, padded at the end; fewer than
            `longest`. They count neither in the log-probability nor in the length that is penalised.

    Returns:
        The n_best hypotheses of each sentence, prefix included.
    """
    given = 0 if prefix is None else tf.math.count_nonzero(prefix, axis=1, keepdims=True, dtype=tf.int32)
    rules = _Rules(beam_size, n_best, length_penalty, longest, prefix, given)
    state = tf.while_loop(
        lambda s: tf.logical_not(tf.reduce_all(s.done)),
        lambda s: (_advance(step, s, rules),),
        (_first_state(cache, tf.size(longest), beam_size),),
        shape_invariants=(_invariants(cache),),
    )[0]
    scores = state.finished_scores[:, :n_best]
    return Hypotheses(tf.where((scores > IMPOSSIBLE / 2)[:, :, None], state.finished_ids[:, :n_best], PAD_ID), scores)


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


def _advance(step, state: _State, rules: _Rules) -> _State:
    """Extend every open hypothesis by a token."""
    logits, cache = step(state.last, state.length, state.cache)
    token_log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32)) + _never_said(logits.shape[-1])
    if rules.prefix is not None:
        token_log_probs = _force_prefix(token_log_probs, state.length, rules.prefix)
    candidates = _best_continuations(state.log_probs, token_log_probs, rules.beam_size)
    ids = tf.concat([tf.gather(state.ids, candidates.beams, batch_dims=1), candidates.tokens[:, :, None]], axis=2)  # (B, 2M, length+1)
    ending = tf.equal(candidates.tokens, END_ID)
    log_probs, kept = tf.math.top_k(tf.where(ending, IMPOSSIBLE, candidates.log_probs), k=rules.beam_size)
    open_ids = tf.gather(ids, kept, batch_dims=1)
    reached = state.length + 1 >= rules.longest
    leading = tf.range(2 * rules.beam_size) < rules.beam_size
    finished_ids, finished_scores = _finish(
        state,
        tf.concat([ids, open_ids], axis=1),
        tf.concat(
            [tf.where(ending & leading, candidates.log_probs, IMPOSSIBLE), tf.where(reached[:, None], log_probs, IMPOSSIBLE)], axis=1
        ),
        rules,
    )
    return _State(
        length=state.length + 1,
        last=tf.gather(candidates.tokens, kept, batch_dims=1),
        ids=open_ids,
        log_probs=log_probs,
        cache=_reorder(cache, tf.gather(candidates.beams, kept, batch_dims=1), rules.beam_size),
        finished_ids=finished_ids,
        finished_scores=finished_scores,
        done=state.done | reached | _cannot_improve(finished_scores, log_probs, rules),
    )


def _never_said(vocab_size):
    """Return what makes padding and start impossible: a model that was given too little may find them likely."""
    return tf.constant([IMPOSSIBLE if token < END_ID else 0.0 for token in range(vocab_size)])


def _force_prefix(token_log_probs, length, prefix):
    """Make the prefix's token at this length certain, and every other impossible, where the prefix goes on so far."""
    column = tf.gather(tf.pad(prefix, [[0, 0], [0, 1]]), tf.minimum(length, tf.shape(prefix)[1]), axis=1)  # (B,)
    certain = tf.one_hot(column, token_log_probs.shape[-1], on_value=0.0, off_value=IMPOSSIBLE)  # (B, vocab_size)
    return tf.where(tf.not_equal(column, PAD_ID)[:, None, None], certain[:, None, :], token_log_probs)


def _best_continuations(open_log_probs, token_log_probs, beams) -> _Candidates:
    """Choose the best 2M of a sentence's M * vocab_size continuations."""
    vocab_size = token_log_probs.shape[-1]
    totals = open_log_probs[:, :, None] + token_log_probs  # (B, M, vocab_size)
    totals = tf.reshape(totals, [-1, beams * vocab_size])
    log_probs, flat = tf.math.top_k(totals, k=2 * beams)
    return _Candidates(log_probs, flat // vocab_size, flat % vocab_size)


def _finish(state: _State, ids, log_probs, rules: _Rules):
    """Merge newly finished hypotheses into the finished ones and keep the best M; done sentences stay as they are.

    Args:
        state: before this step.
        ids: (B, n, length+1), hypotheses of this step.
        log_probs: (B, n), impossible for those that are not finished.
        rules: of the search.
    """
    finished = (log_probs > IMPOSSIBLE / 2) & tf.logical_not(state.done)[:, None]
    scores = tf.where(finished, log_probs / penalty(state.length + 1 - rules.given, rules.length_penalty), IMPOSSIBLE)
    older = tf.pad(state.finished_ids, [[0, 0], [0, 0], [0, 1]], constant_values=PAD_ID)
    best, chosen = tf.math.top_k(tf.concat([state.finished_scores, scores], axis=1), k=rules.beam_size)
    return tf.gather(tf.concat([older, ids], axis=1), chosen, batch_dims=1), best


def _reorder(cache, beams, beam_size):
    """Give each open hypothesis the cache rows of the one it continues; beams is (B, M)."""
    sentences = tf.range(tf.shape(beams)[0])[:, None]
    rows = tf.reshape(sentences * beam_size + beams, [-1])  # (B*M,)
    return tf.nest.map_structure(lambda t: tf.gather(t, rows), cache)


def _cannot_improve(finished_scores, log_probs, rules: _Rules):
    """Tell which sentences have M finished hypotheses, or n_best that no open one can pass.

    An open hypothesis only loses probability, and its penalty grows at most to that of its greatest length, so its best
    possible score is known.
    """
    full = finished_scores[:, -1] > IMPOSSIBLE / 2
    attainable = log_probs[:, 0] / penalty(rules.longest - tf.reshape(rules.given, [-1]), rules.length_penalty)
    worst_returned = tf.gather(finished_scores, rules.n_best - 1, axis=1)
    return full | (worst_returned >= attainable)
