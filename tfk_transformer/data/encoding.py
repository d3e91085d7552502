"""The text pairs of a split as ids, which are encoded in chunks and cached on disk."""

import dataclasses
import hashlib
import itertools
import json
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias

import numpy as np

from tfk_transformer.atomic_write import atomic_write
from tfk_transformer.config.small_files import read_json_object
from tfk_transformer.constants import END_ID, START_ID
from tfk_transformer.datasets import Report, Source

CHUNK_SIZE = 1024  # pairs that are encoded together
SHARD_SIZE = 32_768  # pairs
META = "cache.json"  # the file of a cache that describes it

Ids = list[list[int]]


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


# A part of the encoded pairs: their sources and their targets.
Shard: TypeAlias = tuple[Rows, Rows]


def shard_of(sources: Ids, targets: Ids) -> Shard:
    """Return encoded pairs as a shard."""
    return Rows.of(sources), Rows.of(targets)


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


@dataclasses.dataclass(frozen=True)
class PairEncoder:
    """Encode the pairs of one split."""

    data: Source
    split: str
    tokenizers: tuple[TextEncoder, TextEncoder]  # of the source side and of the target side
    max_length: int  # longer pairs are dropped and counted
    # Returns the lengths of a pair in the model's inputs, given the number of tokens of its source
    # with the end token, and of its target with start and end tokens.
    lengths: Callable[[int, int], tuple[int, ...]]
    layout: str  # names the function `lengths` in the fingerprint of a cache
    sampling: float  # of both sides, see `SubwordTokenizer.encode`

    def chunks(self, report: Report | None = None, seed: int = 0) -> Iterator[tuple[Ids, Ids]]:
        """Yield the ids of about a thousand pairs at a time.

        Sources have the end token, and targets have start and end tokens.
        """
        pairs = self.data.pairs(self.split, report)
        chunks = iter(lambda: list(itertools.islice(pairs, CHUNK_SIZE)), [])
        for number, chunk in enumerate(chunks):
            texts = ([pair.source for pair in chunk], [pair.target for pair in chunk])
            seeds = (
                np.random.SeedSequence((seed, number)).generate_state(2).tolist()
                if self.sampling
                else (0, 0)
            )
            source_ids, target_ids = (
                tokenizer.encode(side, self.sampling, side_seed)
                for tokenizer, side, side_seed in zip(self.tokenizers, texts, seeds, strict=True)
            )
            sources = [[*ids, END_ID] for ids in source_ids]
            targets = [[START_ID, *ids, END_ID] for ids in target_ids]
            fits = [
                max(self.lengths(len(s), len(t))) <= self.max_length
                for s, t in zip(sources, targets, strict=True)
            ]
            for pair in itertools.compress(chunk, map(operator.not_, fits)):
                if report is not None:
                    report.drop(f"over {self.max_length} tokens", pair.where)
            yield list(itertools.compress(sources, fits)), list(itertools.compress(targets, fits))

    def shards(
        self, report: Report | None = None, random: np.random.Generator | None = None
    ) -> Iterator[Shard]:
        """Yield all pairs in the order of the data; `random` seeds the subword sampling."""
        seed = 0 if random is None else int(random.integers(2**31))
        chunks = (shard_of(sources, targets) for sources, targets in self.chunks(report, seed))
        while parts := list(itertools.islice(chunks, SHARD_SIZE // CHUNK_SIZE)):
            yield join_shards(parts)


class PairCache:
    """Encode the pairs of a split in the first pass, and read their ids from a folder afterwards.

    The first pass writes the folder atomically. A folder with other data is refused, and an encoder
    that samples subwords, which gives other ids in each pass.
    """

    def __init__(self, folder: str | Path, encoder: PairEncoder):
        if encoder.sampling:
            raise ValueError(
                "cache: expected the same subwords in every pass, got subword sampling; leave out "
                "the cache or set the sampling to 0."
            )
        self.folder = Path(folder)
        self.encoder = encoder
        self.contents = fingerprint(encoder)
        if not os.path.lexists(self.folder):
            return
        if not (self.folder / META).is_file():
            raise ValueError(
                "cache: expected a folder that a training run wrote, or a new one, got "
                f"{self.folder} without {META}; name another folder."
            )
        if self._meta().get("contents") != self.contents:
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
        meta = self._meta()
        if report is not None:
            report.restore(meta["dropped"])
        count = meta["shards"]
        for number in range(count) if random is None else random.permutation(count):
            sources, targets = (
                Rows.load(self.folder / f"{number:05d}.{side}") for side in range(2)
            )
            yield sources, targets

    def _write(self) -> None:
        report = Report()
        count = 0
        with atomic_write(self.folder) as new:
            new.mkdir()
            for shard in self.encoder.shards(report):
                for number, side in enumerate(shard):
                    side.save(new / f"{count:05d}.{number}")
                count += 1
            meta = {"contents": self.contents, "shards": count, "dropped": report.to_dict()}
            (new / META).write_text(json.dumps(meta), encoding="utf-8")

    def _meta(self) -> dict[str, Any]:
        return read_json_object(self.folder / META)


def fingerprint(encoder: PairEncoder) -> str:
    """Return a hash of everything that the ids depend on, except the texts.

    These are the name of the data, the split, the maximum length, the layout and the tokenizers.
    Caches on disk contain this hash, so its input must not change from version to version.
    """
    parts = (encoder.data.name, encoder.split, encoder.max_length, encoder.layout)
    lines = [f"{part}\n".encode() for part in parts]
    models = [tokenizer.model for tokenizer in encoder.tokenizers]
    return hashlib.sha256(b"".join(lines + models)).hexdigest()
