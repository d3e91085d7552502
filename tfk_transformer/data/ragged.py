"""Sequences of unlike length, stored one behind the other, in memory or in files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np


class Rows:
    """N sequences of ids.

    Args:
        ids: integers (sum of lengths,).
        ends: int64 (N,), where in `ids` each sequence ends.
    """

    def __init__(self, ids: np.ndarray, ends: np.ndarray):
        self.ids = ids
        self.ends = ends

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Self:
        """Store sequences."""
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        ids = np.fromiter((token for sequence in sequences for token in sequence), np.int32, int(lengths.sum()))
        return cls(ids, np.cumsum(lengths))

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> Self:
        """Put several together, in their order."""
        starts = np.cumsum([0, *(len(part.ids) for part in parts[:-1])])
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.ends + start for part, start in zip(parts, starts, strict=True)]),
        )

    @property
    def lengths(self) -> np.ndarray:
        """int64 (N,)."""
        return np.diff(self.ends, prepend=0)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: int) -> np.ndarray:
        return self.ids[self.ends[place - 1] if place else 0 : self.ends[place]]

    def padded(self, places: Iterable[int], shape: tuple[int, int]) -> np.ndarray:
        """Return the sequences at `places` as int32 of `shape`, zeros behind each and below all."""
        batch = np.zeros(shape, np.int32)
        for row, place in zip(batch, places, strict=False):
            sequence = self[place]
            row[: len(sequence)] = sequence
        return batch

    def save(self, stem: Path) -> None:
        """Write STEM.ids.npy and STEM.ends.npy; ids of 16 bits where they fit."""
        small = not len(self.ids) or self.ids.max() <= np.iinfo(np.uint16).max
        np.save(stem.with_name(f"{stem.name}.ids.npy"), self.ids.astype(np.uint16 if small else np.int32))
        np.save(stem.with_name(f"{stem.name}.ends.npy"), self.ends)

    @classmethod
    def load(cls, stem: Path) -> Self:
        """Open what `save` wrote; ids are read from the file as they are asked for."""
        return cls(*(np.load(stem.with_name(f"{stem.name}.{part}.npy"), mmap_mode="r") for part in ("ids", "ends")))
