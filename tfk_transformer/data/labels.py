"""The labels of a classifier, and batches of texts with labels."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from tfk_transformer.config.small_files import parse_json, read_small_file
from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.data.batches import Length, TokenBatches
from tfk_transformer.data.bucketing import Batch
from tfk_transformer.data.encoding import Ids, Shard

_LABELS_SHOWN = 10


class Labels:
    """The labels of a classifier: the class of a text is the index of its label."""

    def __init__(self, model: bytes):
        self.model = model  # UTF-8 JSON, as `labels.json` in a bundle
        self.names: list[str] = parse_json(model, "labels")
        if not isinstance(self.names, list) or not all(isinstance(n, str) for n in self.names):
            raise ValueError(f"labels: expected a list of texts, got {shorten(str(self.names))}.")
        self.vocab_size = len(self.names)
        self._classes = {name: number for number, name in enumerate(self.names)}

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Return the different labels in `texts`, sorted. Whitespace around a label is ignored."""
        names = sorted({text.strip() for text in texts})
        if len(names) < 2:
            raise ValueError(
                "data: expected at least two different labels, one per text, got "
                f"{', '.join(names) or 'none'}."
            )
        return cls(f"{json.dumps(names, indent=2)}\n".encode())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote."""
        return cls(read_small_file(path))

    def save(self, path: str | Path) -> None:
        """Write the labels as JSON."""
        Path(path).write_bytes(self.model)

    def encode(self, texts: Sequence[str], sampling: float = 0.0, seed: int = 0) -> Ids:
        """Return the class of each label, as a sequence of one id."""
        labels = [text.strip() for text in texts]
        for label in labels:
            if label not in self._classes:
                ellipsis = ", …" if self.vocab_size > _LABELS_SHOWN else ""
                raise ValueError(
                    "data: expected a label that the model has "
                    f"({', '.join(self.names[:_LABELS_SHOWN])}{ellipsis}), got "
                    f"'{label}'.{nearest(label, self.names)}"
                )
        return [[self._classes[label]] for label in labels]


class LabelledBatches(TokenBatches):
    """Batches of texts with labels, for an `EncoderClassifier`.

    A batch is `(ids (B, S), classes (B,), weights (B,))`: int32 tokens of the texts with the end
    token, int32 classes, and float32 sample weights, which are 1 for texts and 0 for rows of
    padding. The second tokenizer is a `Labels`.
    """

    layout: ClassVar[str] = "LabelledBatches._length"

    def _input_lengths(self, source: Length, target: Length) -> tuple[Length, ...]:
        return (source,)

    def _token_counts(self, shard: Shard) -> tuple[int, int]:
        return int(shard[0].lengths.sum()), 0

    def _batch(self, shard: Shard, indices: np.ndarray, rows: int, widths: Sequence[int]) -> Batch:
        classes = shard[1].padded(indices, (rows, 3))[:, 1]  # between start and end token
        weights = (np.arange(rows) < len(indices)).astype(np.float32)
        return shard[0].padded(indices, (rows, widths[0])), classes, weights
