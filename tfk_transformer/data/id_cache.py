"""A cache of the ids of a split on disk, so that texts are encoded only once."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfk_transformer.atomic_write import atomic_write
from tfk_transformer.config.small_files import read_json_object
from tfk_transformer.data.encoding import PairEncoder, Shard
from tfk_transformer.data.ragged import Rows
from tfk_transformer.datasets import Report

META = "cache.json"


class PairCache:
    """Encode the pairs of a split in the first pass, and read their ids from a folder afterwards.

    Args:
        folder: the folder of the cache. If it does not exist, the first pass writes it atomically.
        encoder: encodes the pairs.

    Raises:
        ValueError: if the folder contains other data, or if `encoder` samples subwords, which
            gives other ids in each pass.
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
            yield Shard(tuple(Rows.load(self.folder / f"{number:05d}.{side}") for side in range(2)))

    def _write(self) -> None:
        report = Report()
        count = 0
        with atomic_write(self.folder) as new:
            new.mkdir()
            for shard in self.encoder.shards(report):
                for number, side in enumerate(shard.sides):
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
