"""Sequences of different lengths, concatenated into one array, in memory or in files."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np


@dataclasses.dataclass(eq=False)
class Rows:
    """N sequences of ids."""

    ids: np.ndarray  # integers (sum of lengths,), the concatenated sequences
    ends: np.ndarray  # int64 (N,), the end of each sequence in `ids`

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Self:
        """Concatenate sequences."""
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        tokens = itertools.chain.from_iterable(sequences)
        return cls(np.fromiter(tokens, np.int32, int(lengths.sum())), np.cumsum(lengths))

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> Self:
        """Concatenate the sequences of several parts, in their order."""
        starts = np.cumsum([0, *(len(part.ids) for part in parts[:-1])])
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.ends + start for part, start in zip(parts, starts, strict=True)]),
        )

    @property
    def lengths(self) -> np.ndarray:
        """The lengths of the sequences, int64 (N,)."""
        return np.diff(self.ends, prepend=0)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.ids[self.ends[index - 1] if index else 0 : self.ends[index]]

    def padded(self, indices: Iterable[int], shape: tuple[int, int]) -> np.ndarray:
        """Return the sequences at `indices` as int32 of `shape`.

        They are padded with zeros on the right and with rows of zeros.
        """
        batch = np.zeros(shape, np.int32)
        for row, index in zip(batch, indices, strict=False):
            sequence = self[index]
            row[: len(sequence)] = sequence
        return batch

    def save(self, stem: Path) -> None:
        """Write STEM.ids.npy, with ids of 16 bits if all of them fit, and STEM.ends.npy."""
        small = not len(self.ids) or self.ids.max() <= np.iinfo(np.uint16).max
        np.save(
            stem.with_name(f"{stem.name}.ids.npy"),
            self.ids.astype(np.uint16 if small else np.int32),
        )
        np.save(stem.with_name(f"{stem.name}.ends.npy"), self.ends)

    @classmethod
    def load(cls, stem: Path) -> Self:
        """Open the files that `save` wrote; ids are read from disk when they are used."""
        return cls(
            *(
                np.load(stem.with_name(f"{stem.name}.{part}.npy"), mmap_mode="r")
                for part in ("ids", "ends")
            )
        )
