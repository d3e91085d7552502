"""Text pairs as ids: sequences of different lengths, in memory and in a cache on disk."""

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self, TypeAlias

import numpy as np

from tfk_transformer.atomic_write import atomic_write
from tfk_transformer.config.array_files import open_npy
from tfk_transformer.config.small_files import one_line_error, read_json_object
from tfk_transformer.config.words import shorten
from tfk_transformer.datasets import Report

META = "cache.json"  # the file of a cache that describes it

Ids = list[list[int]]


class Rows:
    """N sequences of ids."""

    def __init__(self, ids: np.ndarray, ends: np.ndarray):
        self.ids = ids  # integers (sum of lengths,), the concatenated sequences
        self.ends = ends  # int64 (N,), the end of each sequence in `ids`

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
        """Return the sequences at `indices` as int32 of `shape`, with zeros right and below."""
        batch = np.zeros(shape, np.int32)
        for row, index in zip(batch, indices, strict=False):
            sequence = self[index]
            row[: len(sequence)] = sequence
        return batch

    def save(self, stem: Path) -> None:
        """Write STEM.ids.npy, with ids of 16 bits if all of them fit, and STEM.ends.npy."""
        small = not len(self.ids) or self.ids.max() <= np.iinfo(np.uint16).max
        np.save(f"{stem}.ids.npy", self.ids.astype(np.uint16 if small else np.int32))
        np.save(f"{stem}.ends.npy", self.ends)

    @classmethod
    def load(cls, stem: Path) -> Self:
        """Open the files that `save` wrote; ids are read from disk when they are used."""
        ids, ends = (open_npy(Path(f"{stem}.{part}.npy")) for part in ("ids", "ends"))
        is_valid = ids.ndim == ends.ndim == 1 and ids.dtype.kind in "iu" and ends.dtype == np.int64
        if not is_valid or ends[-1:].sum() != len(ids) or (np.diff(ends, prepend=0) < 0).any():
            raise ValueError("expected ids, and the end of each sequence in them")
        return cls(ids, ends)


# A part of the encoded pairs: their sources and their targets.
Shard: TypeAlias = tuple[Rows, Rows]


def join_shards(shards: Sequence[Shard]) -> Shard:
    """Concatenate shards. The arrays of a single shard are not copied."""
    if len(shards) == 1:
        return shards[0]
    sources, targets = zip(*shards, strict=True)
    return Rows.joined(sources), Rows.joined(targets)


class TextEncoder(Protocol):
    """The encoder of one side of the pairs: a `SubwordTokenizer`, or a classifier's `Labels`."""

    model: bytes

    def encode(self, texts: Sequence[str], sampling: float = 0.0, seed: int = 0) -> Ids:
        """Return the ids of each text, without start and end tokens."""


class PairCache:
    """Encode the pairs of a split in the first pass, and read their ids from a folder afterwards.

    The first pass writes the folder atomically. A folder with other `contents` is refused.
    """

    def __init__(
        self, folder: str | Path, contents: str, encode: Callable[[Report], Iterable[Shard]]
    ):
        self.folder = Path(folder)
        self.contents = contents
        self.encode = encode
        if not os.path.lexists(self.folder):
            return
        if not (self.folder / META).is_file():
            raise ValueError(
                "cache: expected a folder that a training run wrote, or a new one, got "
                f"{self.folder} without {META}; name another folder."
            )
        if read_json_object(self.folder / META).get("contents") != contents:
            raise ValueError(
                f"cache: {self.folder} holds other data, another split or other subwords; name "
                "another folder, or remove this one."
            )

    def shards(
        self, report: Report | None = None, random: np.random.Generator | None = None
    ) -> Iterator[Shard]:
        """Yield all pairs; `random` shuffles the shards."""
        if not self.folder.exists():
            self._write()
        refusal = f"cache: {self.folder} does not load: ", "; remove it."
        with one_line_error(*refusal):
            meta = read_json_object(self.folder / META)
            if report is not None:
                report.restore(meta["dropped"])
            count = len([*self.folder.glob("*.1.ends.npy")])
            if meta["shards"] != count:
                raise ValueError(f"expected {shorten(str(meta['shards']))} shards, got {count}")
        for number in range(count) if random is None else random.permutation(count):
            with one_line_error(*refusal):
                sources, targets = (
                    Rows.load(self.folder / f"{number:05d}.{side}") for side in range(2)
                )
            yield sources, targets

    def _write(self) -> None:
        report = Report()
        count = 0
        with atomic_write(self.folder) as new:
            new.mkdir()
            for shard in self.encode(report):
                for number, side in enumerate(shard):
                    side.save(new / f"{count:05d}.{number}")
                count += 1
            meta = {"contents": self.contents, "shards": count, "dropped": report.to_dict()}
            (new / META).write_text(json.dumps(meta), encoding="utf-8")
