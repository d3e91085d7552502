"""Text pairs to ids, a few thousand at a time: from the texts anew in each pass, or from a cache on disk."""

import hashlib
import itertools
import json
import operator
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfk_transformer.atomic_write import written_whole
from tfk_transformer.constants import END_ID, START_ID
from tfk_transformer.data.ragged import Rows
from tfk_transformer.datasets import Report

ENCODED_AT_ONCE = 1024
PAIRS_A_SHARD = 32_768
META = "cache.json"


class Shard(NamedTuple):
    """Some pairs as ids; a side each."""

    sides: tuple[Rows, ...]

    @property
    def lengths(self) -> list[np.ndarray]:
        """The lengths (N,) of each side."""
        return [side.lengths for side in self.sides]

    @classmethod
    def joined(cls, shards: Sequence["Shard"]) -> "Shard":
        """Put several together."""
        return shards[0] if len(shards) == 1 else cls(tuple(Rows.joined(sides) for sides in zip(*(s.sides for s in shards), strict=True)))


class PairEncoder:
    """Encode the pairs of one split.

    Args:
        data: where pairs come from, of `datasets.load`.
        split: which of its splits.
        source_tokenizer: of the source side.
        target_tokenizer: of the target side.
        max_length: pairs of more tokens are dropped and counted.
        length: of a pair, from the tokens of its source with its end and its target with start and end.
        sampling: of `SubwordTokenizer.encode`, for both sides.
    """

    def __init__(self, data, split: str, source_tokenizer, target_tokenizer, max_length: int, length: Callable, sampling: float = 0.0):
        self.data = data
        self.split = split
        self.tokenizers = (source_tokenizer, target_tokenizer)
        self.max_length = max_length
        self.length = length
        self.sampling = sampling

    def chunks(self, report: Report | None = None, seed: int = 0) -> Iterator[tuple[list, list]]:
        """Yield the ids of about a thousand pairs at a time: sources with their end, targets with start and end."""
        pairs = self.data.pairs(self.split, report)
        for number in itertools.count():
            if not (chunk := list(itertools.islice(pairs, ENCODED_AT_ONCE))):
                return
            texts = ([pair.source for pair in chunk], [pair.target for pair in chunk])
            seeds = np.random.SeedSequence((seed, number)).generate_state(2).tolist() if self.sampling else (0, 0)
            source_ids, target_ids = (
                tokenizer.encode(side, self.sampling, side_seed)
                for tokenizer, side, side_seed in zip(self.tokenizers, texts, seeds, strict=True)
            )
            sources = [[*ids, END_ID] for ids in source_ids]
            targets = [[START_ID, *ids, END_ID] for ids in target_ids]
            fits = [self.length(len(s), len(t)) <= self.max_length for s, t in zip(sources, targets, strict=True)]
            for pair in itertools.compress(chunk, map(operator.not_, fits)):
                if report is not None:
                    report.drop(f"over {self.max_length} tokens", pair.where)
            yield list(itertools.compress(sources, fits)), list(itertools.compress(targets, fits))

    def shards(self, report: Report | None = None, random: np.random.Generator | None = None) -> Iterator[Shard]:
        """Yield all pairs in the order of the data; `random` seeds what is sampled."""
        seed = 0 if random is None else int(random.integers(2**31))
        chunks = (Shard((Rows.of(sources), Rows.of(targets))) for sources, targets in self.chunks(report, seed))
        while together := list(itertools.islice(chunks, PAIRS_A_SHARD // ENCODED_AT_ONCE)):
            yield Shard.joined(together)


class PairCache:
    """The same from a folder that is written in the first pass; its shards come in another order each time.

    Args:
        folder: of the cache; made where it is missing, whole or not at all.
        encoder: what is cached.

    Raises:
        ValueError: if the folder holds something else, or if what is encoded changes from pass to pass.
    """

    def __init__(self, folder, encoder: PairEncoder):
        if encoder.sampling:
            raise ValueError("cache: expected subwords that do not change, got subword sampling; leave out one of the two.")
        self.folder = Path(folder)
        self.encoder = encoder
        self.contents = _fingerprint(encoder)
        if self.folder.exists():
            self._check()

    def shards(self, report: Report | None = None, random: np.random.Generator | None = None) -> Iterator[Shard]:
        """Yield all pairs, the shards mixed by `random`."""
        if not self.folder.exists():
            self._write()
        meta = json.loads((self.folder / META).read_text())
        if report is not None:
            report.restore(meta["dropped"])
        count = meta["shards"]
        for number in range(count) if random is None else random.permutation(count):
            yield Shard(tuple(Rows.load(self.folder / f"{number:05d}.{side}") for side in range(2)))

    def _write(self) -> None:
        report, count = Report(), 0
        with written_whole(self.folder) as new:
            new.mkdir()
            for shard in self.encoder.shards(report):
                for number, side in enumerate(shard.sides):
                    side.save(new / f"{count:05d}.{number}")
                count += 1
            (new / META).write_text(json.dumps({"contents": self.contents, "shards": count, "dropped": report.to_dict()}))

    def _check(self) -> None:
        meta = self.folder / META
        if not meta.is_file():
            raise ValueError(f"cache: expected a folder that a training wrote, or none yet, got {self.folder} without {META}.")
        if json.loads(meta.read_text())["contents"] != self.contents:
            raise ValueError(f"cache: {self.folder} holds other data, another split or other subwords; name another folder, or remove it.")


def _fingerprint(encoder: PairEncoder) -> str:
    """Tell caches apart: by the data's name, not by its text."""
    known = hashlib.sha256()
    for part in (encoder.data.name, encoder.split, encoder.max_length, encoder.length.__qualname__):
        known.update(f"{part}\n".encode())
    for tokenizer in encoder.tokenizers:
        known.update(tokenizer.model)
    return known.hexdigest()
