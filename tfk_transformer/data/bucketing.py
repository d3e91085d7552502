"""Which sequences make a batch: by length, within a budget of tokens."""

import math
from collections.abc import Sequence

import numpy as np


def bucket_lengths(max_length: int) -> list[int]:
    """Return the lengths that sequences are padded to: 8, 10, 12, then about a fifth longer each, up to `max_length`."""
    lengths = [min(8, max_length)]
    while lengths[-1] < max_length:
        longer = max(lengths[-1] + 2, lengths[-1] * 6 // 5)
        lengths.append(min(longer + longer % 2, max_length))
    return lengths


def plan(sides: Sequence[np.ndarray], budget: int, random: np.random.Generator | None = None) -> list[np.ndarray]:
    """Put sequences of like lengths together, as many as the budget holds.

    Args:
        sides: the lengths (N,) of each side of a pair.
        budget: tokens a batch and side, padding included.
        random: mixes pairs of the same lengths, and the batches; None: none of it.

    Returns:
        For each batch, the places of its pairs.
    """
    order = _by_length(sides, random)
    longest = np.maximum.reduce(sides)[order]
    batches, first, width = [], 0, 0
    for place, length in enumerate(longest.tolist()):
        width = max(width, length)
        if (place + 1 - first) * width > budget:
            batches.append(order[first:place])
            first, width = place, length
    return _mixed([*batches, order[first:]] if len(order) else [], random)


def plan_few_shapes(
    lengths: np.ndarray, buckets: Sequence[int], budget: int, random: np.random.Generator | None = None
) -> list[np.ndarray]:
    """Put sequences of one bucket together, `budget // bucket` a batch.

    Args:
        lengths: (N,), of the longer side of each pair.
        buckets: ascending lengths to pad to, the last at least the longest.
        budget: tokens a batch and side, padding included.
        random: mixes the pairs of a bucket, and the batches; None: none of it.

    Returns:
        For each batch, the places of its pairs; a bucket's last batch may have fewer.
    """
    batches, found = [], np.searchsorted(buckets, lengths)
    for bucket, length in enumerate(buckets):
        places = np.flatnonzero(found == bucket)
        if random is not None:
            random.shuffle(places)
        batches += [places[first : first + budget // length] for first in range(0, len(places), budget // length)]
    return _mixed(batches, random)


def rounded_up(count: int, multiple: int) -> int:
    """Return the next multiple."""
    return math.ceil(count / multiple) * multiple


def _by_length(sides, random):
    """Order by the last side's length, then by the first's: up and down in turn, so that no batch spans its whole range."""
    ties = np.arange(len(sides[0])) if random is None else random.random(len(sides[0]))
    if len(sides) == 1:
        return np.lexsort((ties, sides[0]))
    first, last = sides
    return np.lexsort((ties, np.where(last % 2, first, -first), last))


def _mixed(batches, random):
    return batches if random is None else [batches[i] for i in random.permutation(len(batches))]
