"""Group sequences into batches by length, within a budget of tokens."""

import math
from collections.abc import Sequence

import numpy as np


def bucket_lengths(max_length: int) -> list[int]:
    """Return the lengths that sequences are padded to, up to `max_length`.

    The first lengths are 8, 10 and 12. Each further length is about a fifth longer.
    """
    lengths = [min(8, max_length)]
    while lengths[-1] < max_length:
        longer = max(lengths[-1] + 2, lengths[-1] * 6 // 5)
        lengths.append(min(longer + longer % 2, max_length))
    return lengths


def plan(
    sides: Sequence[np.ndarray], budget: int, random: np.random.Generator | None = None
) -> list[np.ndarray]:
    """Group pairs of similar lengths into batches that are as large as the budget allows.

    Args:
        sides: for each side of the pairs, the lengths (N,).
        budget: maximum number of tokens per batch and side, padding included.
        random: shuffles pairs of the same lengths, and the batches. None: no shuffling.

    Returns:
        For each batch, the indices of its pairs.
    """
    order = _by_length(sides, random)
    longest = np.maximum.reduce(sides)[order]
    batches: list[np.ndarray] = []
    first = width = 0
    for index, length in enumerate(longest.tolist()):
        width = max(width, length)
        if (index + 1 - first) * width > budget:
            batches.append(order[first:index])
            first = index
            width = length
    return _shuffle([*batches, order[first:]] if len(order) else [], random)


def plan_few_shapes(
    lengths: np.ndarray,
    buckets: Sequence[int],
    budget: int,
    random: np.random.Generator | None = None,
) -> list[np.ndarray]:
    """Group pairs of the same bucket into batches of `budget // bucket` pairs.

    Args:
        lengths: the length of the longer side of each pair, (N,).
        buckets: the lengths to pad to, ascending. The last one must be at least `max(lengths)`.
        budget: maximum number of tokens per batch and side, padding included.
        random: shuffles the pairs of a bucket, and the batches. None: no shuffling.

    Returns:
        For each batch, the indices of its pairs. The last batch of a bucket may have fewer.
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


def _by_length(sides: Sequence[np.ndarray], random: np.random.Generator | None) -> np.ndarray:
    """Return the indices of the pairs, sorted by the lengths of the last and the first side.

    The order of the first side's lengths alternates between ascending and descending, so that no
    batch spans their whole range.
    """
    ties = np.arange(len(sides[0])) if random is None else random.random(len(sides[0]))
    if len(sides) == 1:
        return np.lexsort((ties, sides[0]))
    first, last = sides
    return np.lexsort((ties, np.where(last % 2, first, -first), last))


def _shuffle(batches: list[np.ndarray], random: np.random.Generator | None) -> list[np.ndarray]:
    return batches if random is None else [batches[i] for i in random.permutation(len(batches))]
