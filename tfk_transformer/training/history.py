"""The metrics of each epoch of a training run: the best epochs, early stopping, and a summary."""

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

Row: TypeAlias = dict[str, float]


class History:
    """The metrics of each epoch.

    Early stopping and the choice of epochs depend only on these metrics, so that a resumed training
    run makes the same decisions as an uninterrupted one.

    Args:
        monitor: name of the metric by which epochs are compared: "val_loss" (lower is better) or
            "val_bleu" (higher is better).
        rows: the metrics of each finished epoch, by name.
    """

    def __init__(self, monitor: str = "val_loss", rows: Sequence[Row] = ()):
        self.monitor = monitor
        self.rows = list(rows)

    def ranked(self) -> list[int]:
        """Return the epochs for which the monitored metric was measured, best first.

        Among equal epochs, the one with the lower validation loss comes first, or the earlier one.
        So a metric that is equal in all epochs leaves the decision to the loss.
        """

        def key(epoch: int) -> list[float]:
            row = self.rows[epoch]
            sign = -1 if self.monitor == "val_bleu" else 1
            values = [sign * row[self.monitor], row.get("val_loss", 0.0)]
            return [math.inf if math.isnan(value) else value for value in values]

        return sorted(self._measured(), key=key)

    def _measured(self) -> list[int]:
        """Return the epochs for which the monitored metric was measured."""
        return [epoch for epoch, row in enumerate(self.rows) if row.get(self.monitor) is not None]

    def undecided(self) -> str | None:
        """Return a note if BLEU is monitored, and equal in several epochs and different in none."""
        values = [self.rows[epoch][self.monitor] for epoch in self._measured()]
        if self.monitor != "val_bleu" or len(values) < 2 or len(set(values)) > 1:
            return None
        reason = "" if values[0] else " (it is always 0 for targets of fewer than four words)"
        return f"BLEU is {values[0]:.2f} in every epoch{reason}, so the validation loss decides"

    def epochs_to_average(self, count: int, best: bool) -> list[int]:
        """Return the epochs whose weights are averaged: the `count` best ones, or the last ones."""
        epochs = self.ranked() if best else range(len(self.rows))[::-1]
        return sorted(epochs[:count])

    def stale(self, patience: int | None) -> bool:
        """Return whether at least `patience` epochs have passed since the best one.

        Without `patience`, the result is False.
        """
        ranked = self.ranked()
        return patience is not None and bool(ranked) and len(self.rows) - 1 - ranked[0] >= patience

    def columns(self) -> dict[str, list[float | None]]:
        """Return the values of each metric by epoch, as in the `history.json` of a bundle.

        A value is None for an epoch in which the metric was not measured.
        """
        names = dict.fromkeys(itertools.chain.from_iterable(self.rows))
        return {name: [row.get(name) for row in self.rows] for name in names}

    def summary(self, seconds: float) -> str:
        """Return a line with the number of epochs, the training time and the best epoch, if any.

        Args:
            seconds: the training time.
        """
        line = f"{len(self.rows)} epochs in {duration(seconds)}"
        if not (ranked := self.ranked()):
            return line
        metric = "val_loss" if self.undecided() else self.monitor
        return (
            f"{line}, best {metric.removeprefix('val_')} {self.rows[ranked[0]][metric]:.3f} after "
            f"epoch {ranked[0] + 1}"
        )


def duration(seconds: float) -> str:
    """Return a time in hours, minutes and seconds, such as "2 h 1 min" or "7 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
