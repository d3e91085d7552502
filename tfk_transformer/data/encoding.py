"""Encode the text pairs of a split as ids, about a thousand pairs at a time."""

import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tfk_transformer.constants import END_ID, START_ID
from tfk_transformer.data.ragged import Rows
from tfk_transformer.datasets import Report, Source

CHUNK_SIZE = 1024  # pairs that are encoded together
SHARD_SIZE = 32_768  # pairs

Ids = list[list[int]]


class TextEncoder(Protocol):
    """The encoder of one side of the pairs: a `SubwordTokenizer`, or a classifier's `Labels`."""

    model: bytes

    def encode(self, texts: Sequence[str], sampling: float = 0.0, seed: int = 0) -> Ids:
        """Return the ids of each text, without start and end tokens."""


class Shard(NamedTuple):
    """A part of the encoded pairs: the sequences of each side."""

    sides: tuple[Rows, ...]

    @property
    def lengths(self) -> list[np.ndarray]:
        """The lengths of the sequences of each side, int64 (N,)."""
        return [side.lengths for side in self.sides]

    @classmethod
    def joined(cls, shards: Sequence["Shard"]) -> "Shard":
        """Concatenate shards."""
        if len(shards) == 1:
            return shards[0]
        sides = zip(*(shard.sides for shard in shards), strict=True)
        return cls(tuple(Rows.joined(parts) for parts in sides))


@dataclasses.dataclass(frozen=True)
class PairEncoder:
    """Encode the pairs of one split.

    Args:
        data: the source of the pairs, from `datasets.load`.
        split: the name of the split.
        tokenizers: the encoders of the source side and of the target side.
        max_length: longer pairs are dropped and counted.
        lengths: returns the lengths of a pair in the model's inputs, given the number of tokens of
            its source with the end token, and of its target with start and end tokens.
        layout: names the function `lengths` in the fingerprint of a cache.
        sampling: strength of subword sampling on both sides; see `SubwordTokenizer.encode`.
    """

    data: Source
    split: str
    tokenizers: tuple[TextEncoder, TextEncoder]
    max_length: int
    lengths: Callable[[int, int], tuple[int, ...]]
    layout: str
    sampling: float

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
            yield Shard.joined(parts)


def shard_of(sources: Ids, targets: Ids) -> Shard:
    """Return encoded pairs as a shard."""
    return Shard((Rows.of(sources), Rows.of(targets)))
