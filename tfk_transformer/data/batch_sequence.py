"""Batches as a `keras.utils.PyDataset`, for backends without TensorFlow."""

from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from tfk_transformer.data.batches import Batch, TokenBatches


class BatchSequence(keras.utils.PyDataset):
    """The batches of a `TokenBatches`, one epoch after the other.

    Args:
        batches: the `TokenBatches`; its `epoch` is the number of the next epoch.
        **kwargs: of `keras.utils.PyDataset`.
    """

    def __init__(self, batches: "TokenBatches", **kwargs: Any):
        super().__init__(**kwargs)
        self.source = batches
        self._epoch = batches.epoch
        self._place: int | None = None  # the number of the next batch of `_batches`

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self.source)

    def __getitem__(self, place: int) -> "Batch":
        """Return a batch as arrays; reading batches in order is fast, since each is made after the
        one before.
        """
        if place != self._place:
            self._batches, self._place = self.source.batches(self._epoch, place), place
        self._place += 1
        return next(self._batches)

    def on_epoch_begin(self) -> None:
        """Start the next epoch."""
        self._epoch, self._place = self.source.epoch, None
        self.source.epoch += 1
