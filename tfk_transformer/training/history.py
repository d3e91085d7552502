"""What a training has reached, epoch by epoch, and what follows from it."""

from collections.abc import Sequence


class History:
    """The figures of each epoch.

    Every decision is made from these figures alone, so that a training that goes on after an interruption decides as it would have.

    Args:
        monitor: the figure by which epochs are compared: "val_loss" (less is better) or "val_bleu".
        rows: a dictionary an epoch, of epochs that are over.
    """

    def __init__(self, monitor: str = "val_loss", rows: Sequence[dict] = ()):
        self.monitor = monitor
        self.rows = list(rows)

    def ranked(self) -> list[int]:
        """Return the epochs that were measured, best first; of equals, the earlier first."""
        sign = -1 if self.monitor == "val_bleu" else 1
        measured = [epoch for epoch, row in enumerate(self.rows) if row.get(self.monitor) is not None]
        return sorted(measured, key=lambda epoch: sign * self.rows[epoch][self.monitor])

    def wanted(self, count: int, best: bool) -> list[int]:
        """Return the epochs whose weights are to be averaged: so many of the best, or of the last."""
        chosen = self.ranked() if best else range(len(self.rows))[::-1]
        return sorted(chosen[:count])

    def stale(self, patience: int | None) -> bool:
        """Tell whether so many epochs have passed since the best."""
        ranked = self.ranked()
        return patience is not None and bool(ranked) and len(self.rows) - 1 - ranked[0] >= patience

    def columns(self) -> dict[str, list]:
        """Return a list a figure, as a bundle's history has it; None where an epoch was not measured."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row.get(name) for row in self.rows] for name in names}
