"""Batches as a `keras.utils.PyDataset`, for backends without TensorFlow."""

from collections.abc import Iterator
from typing import Any, Protocol

import keras

from tfk_transformer.data.bucketing import Batch


class Epochs(Protocol):
    """The part of `TokenBatches` that a sequence reads; `TokenBatches` imports this module."""

    epoch: int  # the number of the next epoch

    def __len__(self) -> int: ...

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, from the batch with the index `first`."""


class BatchSequence(keras.utils.PyDataset):
    """The batches of a `TokenBatches`, one epoch after the other."""

    def __init__(self, batches: Epochs, **kwargs: Any):
        super().__init__(**kwargs)
        self.source = batches
        self._epoch = batches.epoch
        self._next_index: int | None = None  # of the next batch in `_batches`

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self.source)

    def __getitem__(self, index: int) -> Batch:
        """Return a batch as arrays; only reading in order is fast."""
        if index != self._next_index:
            self._batches = self.source.batches(self._epoch, index)
        self._next_index = index + 1
        return next(self._batches)

    def on_epoch_begin(self) -> None:
        """Start the next epoch."""
        self._epoch = self.source.epoch
        self._next_index = None
        self.source.epoch += 1
