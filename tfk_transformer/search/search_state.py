"""The data of a search: its inputs and results, and what its steps read and change."""

import functools
from typing import NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import PENALTY_FORMS, length_penalty
from tfk_transformer.search.limits import Limits
from tfk_transformer.search.next_token import NEG_INF


class Hypotheses(NamedTuple):
    """The result of a search, best first. Missing hypotheses are padding with a score of -1e9."""

    ids: Tensor  # int32 (B, n_best, T): tokens, the end token unless cut at max_length, padding
    scores: Tensor  # float32 (B, n_best): log-probability / length penalty + coverage penalty


class SearchInputs(NamedTuple):
    """The inputs of a search; the first axis is the sentence."""

    memory: Tensor  # a structure of tensors (B, …) that each step reads
    # bool (B, S), False for padding, for the coverage penalty; (B, 0) without a source.
    source_mask: Tensor
    candidate_mask: Tensor = ()  # float32 (B, 1, n), `Candidates.mask`; empty without a shortlist


class SearchRows(NamedTuple):
    """The data of the A sentences in the batch that do not change from step to step."""

    batch_index: Tensor  # int32 (A,): the index of each sentence in the batch
    max_length: Tensor  # int32 (A, 1)
    prefix: Tensor  # int32 (A, P): forced first tokens, padded
    prefix_length: Tensor  # int32 (A, 1)
    source: SearchInputs


class SearchState(NamedTuple):
    """The data that each step changes."""

    length: Tensor  # int32 (): tokens so far
    # int32 (A, 2M, length+1): finished hypotheses, then live ones, the start token first.
    ids: Tensor
    # float32 (A, M, length*M), additive: hides the cache positions of other hypotheses.
    lineage: Tensor
    # float32 (A, M): of live hypotheses, descending; NEG_INF once the sentence is done.
    log_probs: Tensor
    coverage: Tensor  # float32 (A, M, S): the sum of the attention to each source token
    # Each layer's keys and values (A, H, length*M, …), or the states of an SSRU (A, 1, M, D), which
    # has (A, 1, 0, D) before the first step.
    cache: Tensor
    finished_scores: Tensor  # float32 (A, M), descending
    done: Tensor  # bool (A, 1)


class Selection(NamedTuple):
    """The fields of `SearchState` that depend on the tokens that a step selects."""

    ids: Tensor
    lineage: Tensor
    log_probs: Tensor
    coverage: Tensor
    finished_scores: Tensor
    done: Tensor


class EndOfSearch(NamedTuple):
    """What scores and the end of a search depend on, computed before the first step."""

    alpha: Tensor  # float32 ()
    penalty_form: tuple[Tensor, Tensor]  # float32 (): a value of `PENALTY_FORMS`
    # float32 (): the score of the M-th finished hypothesis from which on a sentence is done.
    full_score: Tensor
    # int32 (1,): the rank of the finished hypothesis that live ones must be able to exceed.
    rank: Tensor
    at_current_length: Tensor  # bool (): whether the length penalty of live hypotheses stays

    @classmethod
    def of(cls, limits: Limits) -> "EndOfSearch":
        """Return what the settings say about the end of a search."""
        # Greedy search ends with the first end token.
        ends_when_full = tf.equal(limits.early_stopping, 1) | tf.equal(limits.beam_size, 1)
        form = PENALTY_FORMS["gnmt"]
        for index, numbers in enumerate(PENALTY_FORMS.values()):
            is_form = tf.equal(limits.length_penalty_form, index)
            form = tuple(map(functools.partial(tf.where, is_form), numbers, form))
        count = tf.where(ends_when_full, limits.n_best, limits.beam_size)
        return cls(
            tf.cast(limits.length_penalty, tf.float32),
            form,
            tf.where(ends_when_full, NEG_INF / 2, float("inf")),
            tf.reshape(count - 1, [1]),
            tf.equal(limits.early_stopping, 0),
        )

    def penalty(self, length: Tensor) -> Tensor:
        """Return the length penalty of int32 lengths."""
        return length_penalty(tf.cast(length, tf.float32), self.alpha, self.penalty_form)

    def is_final(self, finished_scores: Tensor, log_probs: Tensor, penalty: Tensor) -> Tensor:
        """Return whether a sentence's finished hypotheses are final, bool (A, 1).

        With an `early_stopping` of true, the best n_best are final if there are M, or if no live
        hypothesis can exceed them. The best attainable score of a live hypothesis is known: its
        log-probability only falls, its length penalty grows at most to the penalty of the maximum
        length, and its coverage penalty is never positive. Otherwise there must be M, and no live
        hypothesis that can exceed them all.

        Args:
            finished_scores: float32 (A, M), descending; NEG_INF for missing hypotheses.
            log_probs: float32 (A, M), of live hypotheses, descending.
            penalty: float32 (A, 1), the length penalty with which live hypotheses are compared.
        """
        full = finished_scores[:, -1:] > self.full_score
        attainable = log_probs[:, :1] / penalty
        worst = tf.gather(finished_scores, self.rank, axis=1)
        return full | (worst >= attainable)


class LoopBounds(NamedTuple):
    """Numbers that the steps of an inner loop compare with. They are computed before the loop."""

    num_done: Tensor  # int32 (): the loop ends when this many sentences are done
    # int32 (): the length from which on steps read the settings that most searches do not use. It
    # is 0 if a search uses one of them in all steps. With `forced_eos`, it is the length at which
    # hypotheses are forced to end.
    rare_length: Tensor
    greedy_length: Tensor  # int32 (): below this length, the best token continues a hypothesis
    last_penalty: Tensor  # float32 (A, 1): the length penalty of the maximum length
