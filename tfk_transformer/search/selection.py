"""Select the hypotheses that a step of a search continues, and the ones that end."""

from typing import NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.search.candidates import Candidates
from tfk_transformer.search.limits import Limits
from tfk_transformer.search.next_token import (
    NEG_INF,
    NextTokens,
    choose,
    choose_best,
    choose_top_k,
    num_next_tokens,
)
from tfk_transformer.search.search_state import (
    EndOfSearch,
    LoopBounds,
    SearchRows,
    SearchState,
    Selection,
)
from tfk_transformer.search.top_k import VocabularyBlocks

MIN_ATTENTION = 1e-6  # to a source token, since the coverage penalty takes a logarithm


class Continuations(NamedTuple):
    """The best continuations of the live hypotheses, 2M for each sentence, best first."""

    log_probs: Tensor  # float32 (A, 2M)
    tokens: Tensor  # int32 (A, 2M)
    parents: Tensor  # int32 (A, 2M): the live hypothesis that each continues
    ending: Tensor  # bool (A, 2M): whether its token is the end token


class Prediction(NamedTuple):
    """What a decoding step predicts for the live hypotheses."""

    ids: Tensor  # int32 (A, M, t+1): the live hypotheses, the start token first
    logits: Tensor  # (A, M, V), or (A, M, n) of candidates; for an ensemble, a list of logits
    attention: Tensor  # float32 (A, M, S), see `Step`
    vocabulary: VocabularyBlocks  # the whole vocabulary
    candidates: Candidates | None

    def num_next_tokens(self, limits: Limits) -> Tensor:
        """Return k, the number of next tokens that each hypothesis needs."""
        candidates = self.candidates
        size = self.vocabulary.size if candidates is None else candidates.max_k()
        return num_next_tokens(limits, size)


def select(
    prediction: Prediction,
    state: SearchState,
    rows: SearchRows,
    limits: Limits,
    end: EndOfSearch,
    bounds: LoopBounds,
) -> Selection:
    """Continue the live hypotheses, and merge those that end into the finished ones.

    Greedy search needs few of the operators of beam search, and both need few of the operators of
    all settings. Each has a branch, because every operator takes a considerable share of the time
    of such a short step.

    Args:
        prediction: the prediction for the live hypotheses.
        state: the state after this step, except for the fields of the result.
        rows: see `SearchRows`.
        limits: see `Limits`.
        end: see `EndOfSearch`.
        bounds: see `LoopBounds`.
    """

    def search_beams() -> Selection:
        k = prediction.num_next_tokens(limits)
        next_tokens, coverage, coverage_score = tf.cond(
            state.length >= bounds.rare_length,
            lambda: _choose_with_all_settings(prediction, k, state, rows, limits),
            lambda: _choose_top_k(prediction, k, state, rows, limits),
        )
        covered = state._replace(coverage=coverage)
        return _select_beams(covered, next_tokens, k, coverage_score, rows, limits, end, bounds)

    return tf.cond(
        state.length < bounds.greedy_length,
        lambda: _select_best(prediction, state, rows, limits, end),
        search_beams,
    )


def _select_best(
    prediction: Prediction,
    state: SearchState,
    rows: SearchRows,
    limits: Limits,
    end: EndOfSearch,
) -> Selection:
    """Continue each sentence's only hypothesis by the most probable token, without a prefix."""
    _, logits, _, vocabulary, candidates = prediction
    below_min_length = state.length < limits.min_length
    if candidates is None:
        log_prob, token = choose_best(logits, below_min_length, vocabulary)  # (A, 1)
    else:
        blocks, mask = candidates.blocks(), rows.source.candidate_mask
        log_prob, index = choose_best(logits, below_min_length, blocks, mask)
        token = tf.gather(candidates.tokens, index)
    log_prob = state.log_probs + log_prob
    ends = tf.equal(token, END_ID) | (state.length >= rows.max_length)
    done = state.done | ends
    token = tf.where(state.done, PAD_ID, token)
    score = tf.where(ends, log_prob / end.penalty(state.length), NEG_INF)
    return Selection(
        ids=tf.concat(
            [state.ids, tf.tile(token[:, :, None], [1, 2 * limits.beam_size, 1])], axis=2
        ),
        lineage=state.lineage,
        log_probs=tf.where(done, NEG_INF, log_prob),
        coverage=state.coverage,
        finished_scores=tf.where(state.done, state.finished_scores, score),
        done=done,
    )


def _choose_top_k(
    prediction: Prediction, k: Tensor, state: SearchState, rows: SearchRows, limits: Limits
) -> tuple[NextTokens, Tensor, Tensor]:
    """Return the next tokens of each hypothesis, its coverage and its coverage score, for settings
    that only need the k most probable tokens.
    """
    _, logits, _, vocabulary, candidates = prediction
    below_min_length = _below_min_length(state, rows, limits)
    if candidates is None:
        next_tokens = choose_top_k(logits, limits, below_min_length, vocabulary, k)
    else:
        blocks, mask = candidates.blocks(), rows.source.candidate_mask
        top_k = choose_top_k(logits, limits, below_min_length, blocks, k, mask)
        next_tokens = top_k._replace(ids=tf.gather(candidates.tokens, top_k.ids))
    return next_tokens, state.coverage, tf.zeros([tf.size(rows.batch_index), limits.beam_size])


def _choose_with_all_settings(
    prediction: Prediction, k: Tensor, state: SearchState, rows: SearchRows, limits: Limits
) -> tuple[NextTokens, Tensor, Tensor]:
    """Return the same as `_choose_top_k`, for all settings."""
    ids, logits, attention, vocabulary, candidates = prediction
    if candidates is not None:
        logits = candidates.expand_logits(logits, rows.source.candidate_mask)
    below_min_length = _below_min_length(state, rows, limits)
    next_tokens = choose(logits, ids, limits, below_min_length, vocabulary, k)
    next_tokens = _force_prefix(next_tokens, k, state.length, rows.prefix)
    cut = tf.equal(limits.forced_eos, 1) & (state.length >= rows.max_length)
    next_tokens = _force(next_tokens, k, cut[:, :, None], END_ID)
    coverage = state.coverage + attention
    return next_tokens, coverage, _coverage_score(coverage, rows.source.source_mask, limits)


def _below_min_length(state: SearchState, rows: SearchRows, limits: Limits) -> Tensor:
    """Return whether hypotheses are too short to end, bool (A, 1)."""
    return state.length - rows.prefix_length < limits.min_length


def _force_prefix(next_tokens: NextTokens, k: Tensor, length: Tensor, prefix: Tensor) -> NextTokens:
    """Where the last token of this length is in the prefix, exclude all other tokens."""
    token = tf.gather(
        tf.pad(prefix, [[0, 0], [1, 1]]),
        tf.minimum(length, tf.shape(prefix)[1] + 1),
        axis=1,
    )[:, None, None]  # (A, 1, 1)
    return _force(next_tokens, k, tf.not_equal(token, PAD_ID), token)


def _force(next_tokens: NextTokens, k: Tensor, forced: Tensor, token: Tensor) -> NextTokens:
    """Where `forced`, bool (A, 1, 1), exclude all tokens but `token`, with log-probability 0."""
    log_probs = tf.where(tf.equal(tf.range(k), 0), 0.0, NEG_INF)  # (k,)
    return NextTokens(
        tf.where(forced, log_probs, next_tokens.log_probs),
        tf.where(forced, token, next_tokens.ids),
    )


def _select_beams(
    state: SearchState,
    next_tokens: NextTokens,
    k: Tensor,
    coverage_score: Tensor,
    rows: SearchRows,
    limits: Limits,
    end: EndOfSearch,
    bounds: LoopBounds,
) -> Selection:
    """Continue the live hypotheses, and merge those that end into the finished ones.

    Args:
        state: the state after this step, except for the fields of the result, and with the coverage
            of the live hypotheses.
        next_tokens: the tokens that may follow each hypothesis.
        k: int32 (), the number of next tokens.
        coverage_score: float32 (A, M), the coverage score of each live hypothesis. It is added to
            the scores of the continuations that end.
        rows: see `SearchRows`.
        limits: see `Limits`.
        end: see `EndOfSearch`.
        bounds: see `LoopBounds`.
    """
    continuations = _continuations(state, next_tokens, k, limits)
    at_max_length = state.length >= rows.max_length
    log_probs, live = tf.math.top_k(
        tf.where(continuations.ending, NEG_INF, continuations.log_probs),
        k=limits.beam_size,
    )
    penalty = end.penalty(state.length - rows.prefix_length)
    finished_scores, finished = _finish(
        state, continuations, penalty, coverage_score, at_max_length, limits
    )
    compared = tf.where(end.at_current_length, penalty, bounds.last_penalty)
    final = end.is_final(finished_scores, log_probs, compared)
    done = state.done | at_max_length | final
    ids, lineage, coverage = _reorder(state, continuations, finished, live, rows, limits)
    return Selection(
        ids=ids,
        lineage=lineage,
        log_probs=tf.where(done, NEG_INF, log_probs),
        coverage=coverage,
        finished_scores=finished_scores,
        done=done,
    )


def _continuations(
    state: SearchState, next_tokens: NextTokens, k: Tensor, limits: Limits
) -> Continuations:
    """Return the best 2M continuations of a sentence's live hypotheses."""
    beams = limits.beam_size
    log_probs, indices = tf.math.top_k(  # (A, 2M)
        tf.reshape(state.log_probs[:, :, None] + next_tokens.log_probs, [-1, beams * k]),
        k=2 * beams,
    )
    tokens = tf.gather(
        tf.reshape(next_tokens.ids, [-1, beams * k]),
        indices,
        batch_dims=1,
    )
    return Continuations(log_probs, tokens, indices // k, tf.equal(tokens, END_ID))


def _finish(
    state: SearchState,
    continuations: Continuations,
    penalty: Tensor,
    coverage_score: Tensor,
    at_max_length: Tensor,
    limits: Limits,
) -> tuple[Tensor, Tensor]:
    """Merge the continuations that end into the finished hypotheses.

    Returns:
        The scores (A, M) of the best finished hypotheses, and their indices (A, M) in the
        concatenation of the M previous finished hypotheses and the 2M continuations.
    """
    beams = limits.beam_size
    log_probs = continuations.log_probs
    scores = log_probs / penalty
    scores += tf.gather(coverage_score, continuations.parents, batch_dims=1)
    # A continuation with an end token ends if it is among the first M, another one if it is cut.
    # Excluded continuations never end.
    threshold = tf.where(
        continuations.ending,
        _end_threshold(tf.range(2 * beams) < beams),
        _end_threshold(at_max_length),
    )
    scores = tf.where(log_probs > threshold, scores, NEG_INF)
    best, indices = tf.math.top_k(
        tf.concat([state.finished_scores, scores], axis=1),
        k=beams,
    )
    return best, indices


def _reorder(
    state: SearchState,
    continuations: Continuations,
    finished: Tensor,
    live: Tensor,
    rows: SearchRows,
    limits: Limits,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ids, lineages and coverage of the hypotheses of the next step.

    Args:
        state: before the reordering.
        continuations: see `Continuations`.
        finished: int32 (A, M), the indices of finished hypotheses, see `_finish`.
        live: int32 (A, M), the indices of the continuations that stay live.
        rows: see `SearchRows`.
        limits: see `Limits`.
    """
    beams = limits.beam_size
    # Indices of the previous finished hypotheses followed by the continuations.
    selected = tf.concat([finished, beams + live], axis=1)  # (A, 2M)
    previous = tf.tile(tf.range(beams)[None, :], [tf.size(rows.batch_index), 1])  # (A, M)
    origins = tf.gather(
        tf.concat([previous, beams + continuations.parents], axis=1),
        selected,
        batch_dims=1,
    )
    tokens = tf.gather(
        tf.concat([tf.fill(tf.shape(previous), PAD_ID), continuations.tokens], axis=1),
        selected,
        batch_dims=1,
    )
    parents = tf.gather(continuations.parents, live, batch_dims=1)  # (A, M)
    return (
        tf.concat([tf.gather(state.ids, origins, batch_dims=1), tokens[:, :, None]], axis=2),
        tf.gather(state.lineage, parents, batch_dims=1),
        tf.gather(state.coverage, parents, batch_dims=1),
    )


def _end_threshold(may_end: Tensor) -> Tensor:
    """Return the log-probability above which a continuation ends, float32; infinite for never."""
    return tf.where(may_end, NEG_INF / 2, float("inf"))


def _coverage_score(coverage: Tensor, source_mask: Tensor, limits: Limits) -> Tensor:
    """Return the coverage score of each hypothesis, (A, M).

    It is beta * sum over source tokens of log(min(attention to it, 1)) (arXiv:1609.08144,
    equation 14).
    """
    mask = tf.cast(source_mask[:, None], tf.float32)
    logs = tf.math.log(tf.clip_by_value(coverage, MIN_ATTENTION, 1.0)) * mask  # (A, M, S)
    # onnxruntime cannot sum over an empty axis.
    return limits.coverage_penalty * tf.reduce_sum(
        tf.pad(logs, [[0, 0], [0, 0], [0, 1]]),
        axis=2,
    )
