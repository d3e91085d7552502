"""Select the hypotheses that a step of a search continues, and the ones that end."""

import functools
from collections.abc import Callable

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import PENALTY_FORMS, length_penalty
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.models.token_model import Step
from tfk_transformer.search.next_token import (
    NEG_INF,
    NextTokens,
    TokenChoice,
    num_next_tokens,
)
from tfk_transformer.search.search_state import Limits, LoopBounds, SearchRows, SearchState
from tfk_transformer.search.vocabulary import Candidates, VocabularyBlocks, top_k

MIN_ATTENTION = 1e-6  # to a source token, since the coverage penalty takes a logarithm


class Selection:
    """The selection of hypotheses in every step of a search.

    Scores and the end of a search depend on numbers that are computed here, before the first step.
    The `candidates` are the tokens that logits are of; None: the whole vocabulary.
    """

    def __init__(
        self, limits: Limits, vocabulary: VocabularyBlocks, candidates: Candidates | None
    ) -> None:
        self.limits = limits
        self.vocabulary = vocabulary
        self.candidates = candidates
        self.alpha = tf.cast(limits.length_penalty, tf.float32)
        self.penalty_form = PENALTY_FORMS["gnmt"]
        for index, numbers in enumerate(PENALTY_FORMS.values()):
            is_form = tf.equal(limits.length_penalty_form, index)
            choose = functools.partial(tf.where, is_form)
            self.penalty_form = tuple(map(choose, numbers, self.penalty_form))
        # Greedy search ends with the first end token.
        ends_when_full = tf.equal(limits.early_stopping, 1) | tf.equal(limits.beam_size, 1)
        # float32 (): the score of the M-th finished hypothesis from which on a sentence is done.
        self.full_score = tf.where(ends_when_full, NEG_INF / 2, float("inf"))
        # int32 (1,): the rank of the finished hypothesis that live ones must be able to exceed.
        count = tf.where(ends_when_full, limits.n_best, limits.beam_size)
        self.rank = tf.reshape(count - 1, [1])
        # bool (): whether live hypotheses keep the length penalty of their current length.
        self.at_current_length = tf.equal(limits.early_stopping, 0)

    def penalty(self, length: Tensor) -> Tensor:
        """Return the length penalty of int32 lengths."""
        return length_penalty(tf.cast(length, tf.float32), self.alpha, self.penalty_form)

    def select(
        self,
        ids: Tensor,
        prediction: Step,
        state: SearchState,
        rows: SearchRows,
        bounds: LoopBounds,
    ) -> SearchState:
        """Continue the live hypotheses, and merge those that end into the finished ones.

        The ids (A, M, t+1) are the live hypotheses. The state is the one after this step, except
        for the fields that the selection changes. The usual settings have a branch of few
        operators, because every operator takes a considerable share of the time of a step.
        """
        size = self.vocabulary.size
        if self.candidates is not None:
            # The number of candidates is larger than a small vocabulary.
            size = tf.minimum(tf.size(self.candidates.tokens), tf.size(self.candidates.indices))
        k = num_next_tokens(self.limits, size)
        next_tokens, coverage, coverage_score = tf.cond(
            state.length >= bounds.rare_length,
            lambda: self._choose_with_all_settings(ids, prediction, k, state, rows),
            lambda: self._choose_top_k(prediction, k, state, rows),
        )
        covered = state._replace(coverage=coverage)
        return self._select_beams(covered, next_tokens, k, coverage_score, rows)

    def _choose_top_k(
        self, prediction: Step, k: Tensor, state: SearchState, rows: SearchRows
    ) -> tuple[NextTokens, Tensor, Tensor]:
        """Return next tokens, coverage and coverage score (A, M), for the usual settings."""
        below_min_length = state.length < rows.min_length
        next_tokens = self.from_logits(
            rows,
            lambda tokens, mask: TokenChoice(self.limits, tokens, below_min_length, k).top_k(
                prediction.logits, mask
            ),
        )
        no_score = tf.zeros([tf.size(rows.batch_index), self.limits.beam_size])
        return next_tokens, state.coverage, no_score

    def _choose_with_all_settings(
        self, ids: Tensor, prediction: Step, k: Tensor, state: SearchState, rows: SearchRows
    ) -> tuple[NextTokens, Tensor, Tensor]:
        """Return the same as `_choose_top_k`, for all settings."""
        logits = prediction.logits
        if self.candidates is not None:
            logits = self.candidates.expand_logits(logits, rows.candidate_mask)
        below_min_length = state.length < rows.min_length
        choice = TokenChoice(self.limits, self.vocabulary, below_min_length, k)
        next_tokens = choice.choose(logits, ids)
        prefix_end = tf.shape(rows.prefix)[1] + 1
        prefix = tf.pad(rows.prefix, [[0, 0], [1, 1]])
        token = tf.gather(prefix, tf.minimum(state.length, prefix_end), axis=1)[:, None, None]
        next_tokens = _force(next_tokens, k, tf.not_equal(token, PAD_ID), token)
        cut = tf.equal(self.limits.forced_eos, 1) & (state.length >= rows.max_length)
        next_tokens = _force(next_tokens, k, cut[:, :, None], END_ID)
        coverage = state.coverage + prediction.attention
        # beta * sum over source tokens of log(min(attention to it, 1)) (arXiv:1609.08144,
        # equation 14).
        mask = tf.cast(rows.source_mask[:, None], tf.float32)
        logs = tf.math.log(tf.clip_by_value(coverage, MIN_ATTENTION, 1.0)) * mask  # (A, M, S)
        logs = tf.pad(logs, [[0, 0], [0, 0], [0, 1]])  # onnxruntime cannot sum over an empty axis
        return next_tokens, coverage, self.limits.coverage_penalty * tf.reduce_sum(logs, axis=2)

    def from_logits(
        self, rows: SearchRows, choose: Callable[[VocabularyBlocks, Tensor | None], NextTokens]
    ) -> NextTokens:
        """Choose among the tokens that logits are of, with the mask of candidates if any."""
        if self.candidates is None:
            return choose(self.vocabulary, None)
        return choose(self.candidates.blocks(), rows.candidate_mask)

    def _select_beams(
        self,
        state: SearchState,
        next_tokens: NextTokens,
        k: Tensor,
        coverage_score: Tensor,
        rows: SearchRows,
    ) -> SearchState:
        """Continue the live hypotheses by the best of the k next tokens of each.

        The state has the coverage of the live hypotheses. Their coverage scores (A, M) are added to
        the scores of the continuations that end.
        """
        beams = self.limits.beam_size
        # The best 2M continuations of each sentence, best first: (A, 2M) each.
        log_probs = tf.reshape(state.log_probs[:, :, None] + next_tokens.log_probs, [-1, beams * k])
        log_probs, indices = top_k(log_probs, 2 * beams)
        tokens = tf.gather(tf.reshape(next_tokens.ids, [-1, beams * k]), indices, batch_dims=1)
        parents = indices // tf.cast(k, tf.int64)  # the live hypothesis that each continues
        ending = tf.equal(tokens, END_ID)
        at_max_length = state.length >= rows.max_length
        live_log_probs, live = top_k(tf.where(ending, NEG_INF, log_probs), beams)
        penalty = tf.gather(rows.penalties, state.length, axis=1)  # (A, 1)
        scores = log_probs / penalty
        scores += tf.gather(coverage_score, parents, batch_dims=1)
        # A continuation with an end token ends if it is among the first M, another one if it is
        # cut. Excluded continuations never end.
        may_end = tf.range(2 * beams) < beams
        threshold = tf.where(ending, _end_threshold(may_end), _end_threshold(at_max_length))
        scores = tf.where(log_probs > threshold, scores, NEG_INF)
        scores = tf.concat([state.finished_scores, scores], axis=1)
        finished_scores, finished = top_k(scores, beams)
        compared = tf.where(self.at_current_length, penalty, rows.penalties[:, -1])
        final = self._is_final(finished_scores, live_log_probs, compared)
        done = state.done | at_max_length | final
        changed = state._replace(
            log_probs=tf.where(done, NEG_INF, live_log_probs),
            finished_scores=finished_scores,
            done=done,
        )
        return self._reorder(changed, rows, tokens, parents, finished, live)

    def _is_final(self, finished_scores: Tensor, log_probs: Tensor, penalty: Tensor) -> Tensor:
        """Return whether finished hypotheses are final, from log-probabilities of live ones.

        With an `early_stopping` of true, the best n_best are final if there are M, or if no live
        hypothesis can exceed them: its log-probability only falls, its length penalty grows at most
        to that of the maximum length, and its coverage penalty is never positive. Otherwise there
        must be M, and no live hypothesis that can exceed them all.
        """
        full = finished_scores[:, -1:] > self.full_score
        attainable = log_probs[:, :1] / penalty
        return full | (tf.gather(finished_scores, self.rank, axis=1) >= attainable)

    def _reorder(
        self,
        state: SearchState,
        rows: SearchRows,
        tokens: Tensor,
        parents: Tensor,
        finished: Tensor,
        live: Tensor,
    ) -> SearchState:
        """Reorder the ids, lineages and coverage for the next step.

        Tokens and parents are those of the continuations (A, 2M). `live` (A, M) are the indices of
        the continuations that stay live, and `finished` (A, M) indices of the M previous finished
        hypotheses followed by the continuations. Parents and indices are int64.
        """
        beams = tf.cast(self.limits.beam_size, tf.int64)
        selected = tf.concat([finished, beams + live], axis=1)  # (A, 2M)
        previous = tf.tile(tf.range(beams)[None, :], [tf.size(rows.batch_index), 1])  # (A, M)
        origins = tf.concat([previous, beams + parents], axis=1)
        origins = tf.gather(origins, selected, batch_dims=1)
        tokens = tf.concat([tf.fill(tf.shape(previous), PAD_ID), tokens], axis=1)
        tokens = tf.gather(tokens, selected, batch_dims=1)
        parents = tf.gather(parents, live, batch_dims=1)  # (A, M)
        ids = tf.gather(state.ids, origins, batch_dims=1)
        return state._replace(
            ids=tf.concat([ids, tokens[:, :, None]], axis=2),
            lineage=tf.gather(state.lineage, parents, batch_dims=1),
            coverage=tf.gather(state.coverage, parents, batch_dims=1),
        )


def _force(next_tokens: NextTokens, k: Tensor, forced: Tensor, token: Tensor) -> NextTokens:
    """Where `forced`, bool (A, 1, 1), exclude all tokens but `token`, with log-probability 0."""
    log_probs = tf.where(tf.equal(tf.range(k), 0), 0.0, NEG_INF)  # (k,)
    return NextTokens(
        tf.where(forced, log_probs, next_tokens.log_probs), tf.where(forced, token, next_tokens.ids)
    )


def _end_threshold(may_end: Tensor) -> Tensor:
    """Return the log-probability above which a continuation ends, float32; infinite for never."""
    return tf.where(may_end, NEG_INF / 2, float("inf"))
