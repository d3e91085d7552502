"""The common parts of the engines: the requested search, and rows of ids as padded arrays."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

START_ID, END_ID = 1, 2


class Search(NamedTuple):
    """What every engine is asked for: the best hypothesis without length penalty, in batches of
    neighbouring rows.
    """

    beam_size: int
    batch_size: int
    max_length: int  # tokens, the end token included
    forced: bool = False  # whether no hypothesis may end before it has max_length tokens


def padded_batches(rows: list[list[int]], size: int) -> Iterator[np.ndarray]:
    """Yield int32 (up to `size`, S), padded with 0 at the end."""
    for first in range(0, len(rows), size):
        batch = rows[first : first + size]
        ids = np.zeros((len(batch), max(map(len, batch))), "int32")
        for target, row in zip(ids, batch, strict=True):
            target[: len(row)] = row
        yield ids


def unpadded(found: list[np.ndarray]) -> list[list[int]]:
    """Return the rows of batches (N, T), each up to its first end or padding."""
    rows = [row for batch in found for row in batch.tolist()]
    return [
        row[: next((i for i, token in enumerate(row) if token in (0, END_ID)), len(row))]
        for row in rows
    ]


def own_settings(search: Search) -> dict:
    """Return a search as this project's settings, see docs/exports.md."""
    return {
        "beam_size": search.beam_size,
        "n_best": 1,
        "length_penalty": 0.0,
        "min_length": search.max_length + 1 if search.forced else 0,
        "max_length": search.max_length,
        # Never the nearer limit: the peers have none by the source's length.
        "max_length_factor": float(search.max_length),
    }
