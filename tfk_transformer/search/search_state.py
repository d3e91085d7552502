"""The data of a search: its settings and results, and what its steps read and change."""

from collections import namedtuple
from typing import NamedTuple, cast

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.constants import LENGTH_ALLOWANCE

# The fields of `SearchSettings`. Type checkers do not support named tuples with computed fields.
_Settings: Tensor = cast("Tensor", namedtuple("_Settings", SETTING_DTYPES))


class Limits(_Settings):
    """Search settings as tensors or Python numbers, in the order of `SearchSettings`.

    See `SearchSettings.as_numbers`.
    """

    __slots__ = ()

    def max_lengths(self, source_lengths: Tensor) -> Tensor:
        """Return the maximum target lengths (B,) for sources of these lengths (B,)."""
        allowed = tf.math.ceil(tf.cast(source_lengths, tf.float32) * self.max_length_factor)
        return tf.minimum(self.max_length, tf.cast(allowed, tf.int32) + LENGTH_ALLOWANCE)


class Hypotheses(NamedTuple):
    """The result of a search, best first. Missing hypotheses are padding with a score of -1e9."""

    ids: Tensor  # int32 (B, n_best, T): tokens, the end token unless cut at max_length, padding
    scores: Tensor  # float32 (B, n_best): log-probability / length penalty + coverage penalty


class SearchRows(NamedTuple):
    """The data of the A sentences in the batch that do not change from step to step."""

    batch_index: Tensor  # int32 (A,): the index of each sentence in the batch
    max_length: Tensor  # int32 (A, 1)
    prefix: Tensor  # int32 (A, P): forced first tokens, padded
    # int32 (A, 1, 1): the length from which on hypotheses may end. All lengths include the prefix.
    min_length: Tensor
    # float32 (A, T+1, 1): the length penalty of each length, from 0 on, and of the maximum length
    penalties: Tensor
    memory: Tensor  # a structure of tensors (A, …) that each step reads
    # bool (A, S), False for padding, for the coverage penalty; (A, 0) without a source.
    source_mask: Tensor
    candidate_mask: Tensor  # float32 (A, 1, n), `Candidates.mask`; () without a shortlist


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


class LoopBounds(NamedTuple):
    """Numbers that the steps of an inner loop compare with. They are computed before the loop."""

    num_done: Tensor  # int32 (): the loop ends when this many sentences are done
    # int32 (): the length from which on steps read the settings that most searches do not use. It
    # is 0 if a search uses one of them in all steps. With `forced_eos`, it is the length at which
    # hypotheses are forced to end.
    rare_length: Tensor
    num_done_greedily: Tensor  # int32 (): the same for a loop of greedy steps; 0 for no such loop
