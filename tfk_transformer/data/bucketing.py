"""Group pairs into batches by length within a budget of tokens, and describe the batches."""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from tfk_transformer.datasets import Report

Inputs: TypeAlias = dict[str, np.ndarray] | np.ndarray
# The third array contains sample weights.
Batch: TypeAlias = tuple[Inputs, np.ndarray] | tuple[Inputs, np.ndarray, np.ndarray]


class Survey(NamedTuple):
    """Counts of one pass over a split."""

    pairs: int
    source_tokens: int  # end tokens included
    target_tokens: int  # end tokens included; 0 if the targets are labels
    steps: int  # batches in a pass
    padded_tokens: int  # source and target tokens in the batches of a pass, padding included
    report: Report  # the dropped pairs

    @property
    def trained_tokens(self) -> int:
        """The number of target tokens, or of source tokens if the targets are labels."""
        return self.target_tokens or self.source_tokens

    @property
    def padding(self) -> float:
        """The proportion of padding in the batches, from 0 to 1."""
        return 1 - (self.source_tokens + self.target_tokens) / self.padded_tokens


class Share(NamedTuple):
    """The part of each batch that a process reads if several processes train together."""

    process: int = 0
    processes: int = 1
    devices: int = 1  # of all processes together; the number of rows of a batch is a multiple of it

    def of(self, rows: int) -> slice:
        """Return the rows of this process."""
        part = rows // self.processes
        return slice(self.process * part, (self.process + 1) * part)


def bucket_lengths(max_length: int) -> list[int]:
    """Return the lengths to pad to: 8, 10, 12, then each about a fifth longer, up to a maximum."""
    lengths = [min(8, max_length)]
    while lengths[-1] < max_length:
        longer = max(lengths[-1] + 2, lengths[-1] * 6 // 5)
        lengths.append(min(longer + longer % 2, max_length))
    return lengths


def plan(
    sides: Sequence[np.ndarray], budget: int, random: np.random.Generator | None = None
) -> list[np.ndarray]:
    """Group pairs of similar lengths into batches that are as large as the budget allows.

    `sides` are the lengths (N,) on each side of the pairs. The budget is the maximum number of
    tokens per batch and side, padding included. `random` shuffles pairs of the same lengths, and
    the batches. A batch is the indices of its pairs.
    """
    first, last = sides[0], sides[-1]
    ties = np.arange(len(first)) if random is None else random.random(len(first))
    # The order of the first side's lengths alternates between ascending and descending, so that no
    # batch spans their whole range.
    keys = (ties, first) if len(sides) == 1 else (ties, np.where(last % 2, first, -first), last)
    order = np.lexsort(keys)
    longest = np.maximum.reduce(sides)[order]
    batches: list[np.ndarray] = []
    begin = width = 0
    for index, length in enumerate(longest.tolist()):
        width = max(width, length)
        if (index + 1 - begin) * width > budget:
            batches.append(order[begin:index])
            begin = index
            width = length
    return _shuffle([*batches, order[begin:]] if len(order) else [], random)


def plan_few_shapes(
    lengths: np.ndarray,
    buckets: Sequence[int],
    budget: int,
    random: np.random.Generator | None = None,
) -> list[np.ndarray]:
    """Group pairs of the same bucket into batches of at most `budget // bucket` pairs; see `plan`.

    `lengths` (N,) are those of the longer side of each pair, and `buckets` the lengths to pad to,
    ascending, up to at least `max(lengths)`.
    """
    batches: list[np.ndarray] = []
    bucket_of_pair = np.searchsorted(buckets, lengths)
    for bucket, length in enumerate(buckets):
        indices = np.flatnonzero(bucket_of_pair == bucket)
        if random is not None:
            random.shuffle(indices)
        size = budget // length
        batches += [indices[first : first + size] for first in range(0, len(indices), size)]
    return _shuffle(batches, random)


def round_up(count: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is at least `count`."""
    return math.ceil(count / multiple) * multiple


def _shuffle(batches: list[np.ndarray], random: np.random.Generator | None) -> list[np.ndarray]:
    return batches if random is None else [batches[i] for i in random.permutation(len(batches))]
