"""Batches for `fit` where TensorFlow is not installed."""

import keras


class BatchSequence(keras.utils.PyDataset):
    """The batches of a `TokenBatches`, one epoch after the other.

    Args:
        batches: the `TokenBatches`; its `epoch` says which epoch comes next.
        **kwargs: of `keras.utils.PyDataset`.
    """

    def __init__(self, batches, **kwargs):
        super().__init__(**kwargs)
        self.source = batches
        self._epoch = batches.epoch
        self._place = None  # the batch that comes next from `_batches`

    def __len__(self):
        """Return the batches of an epoch."""
        return len(self.source)

    def __getitem__(self, place):
        """Return a batch as arrays; they are made one after the other, so places in order come fast."""
        if place != self._place:
            self._batches, self._place = self.source.batches(self._epoch, place), place
        self._place += 1
        return next(self._batches)

    def on_epoch_begin(self):
        """Begin with the next epoch."""
        self._epoch, self._place = self.source.epoch, None
        self.source.epoch += 1
