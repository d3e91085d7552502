"""The metrics of each epoch of a training run: the best epochs, early stopping, and a summary."""

import itertools
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

        Among equal epochs, the earlier one comes first.
        """
        sign = -1 if self.monitor == "val_bleu" else 1
        measured = [
            epoch for epoch, row in enumerate(self.rows) if row.get(self.monitor) is not None
        ]
        return sorted(measured, key=lambda epoch: sign * self.rows[epoch][self.monitor])

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
        return (
            f"{line}, best {self.monitor.removeprefix('val_')} "
            f"{self.rows[ranked[0]][self.monitor]:.3f} after epoch {ranked[0] + 1}"
        )


def duration(seconds: float) -> str:
    """Return a time in hours, minutes and seconds, such as "2 h 1 min" or "7 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
