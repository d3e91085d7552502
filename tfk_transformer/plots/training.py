"""Losses and BLEU of training runs by epoch."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tfk_transformer.plots.figures import PALETTE, axes_or_new, figure_of, new_picture

Runs = Mapping[str, Mapping[str, Sequence[float | None]]]


def training_curve(
    history: Mapping[str, Sequence[float | None]], axes: Axes | None = None
) -> Figure:
    """Plot the training and validation loss of each epoch, and BLEU if it was measured.

    Args:
        history: for each metric, a list of its values by epoch, as in the `history.json` of a
            bundle: "loss" and, optionally, "val_loss" and "val_bleu", which is None for epochs in
            which it was not measured.
        axes: where to draw. Default: the axes of a new figure.

    Returns:
        The figure of the axes.
    """
    axes = axes_or_new(axes, 6, 4)
    for (name, label), colour in zip(
        (("loss", "training"), ("val_loss", "validation")), PALETTE, strict=False
    ):
        if name in history:
            axes.plot(
                *_measured(history[name]), color=colour, marker="o", markersize=3, label=label
            )
    _name(axes, "loss (nats a token)")
    lines = [*axes.lines]
    if "val_bleu" in history:
        right = axes.twinx()
        right.plot(
            *_measured(history["val_bleu"]),
            color=PALETTE[2],
            marker="s",
            markersize=3,
            label="BLEU",
        )
        right.set(ylabel="BLEU of the validation split")
        lines = [*lines, *right.lines]
    if lines:
        axes.legend(handles=lines, loc="center right")
    return figure_of(axes)


def training_curves(runs: Runs, axes: Sequence[Axes] | None = None) -> Figure:
    """Plot the losses of several training runs on one picture, and BLEU below if one of them
    measured it.

    A run has one colour. Its training loss is dashed, and its validation loss is solid.

    Args:
        runs: by the name of each run, its history; see `training_curve`.
        axes: where to draw the losses and BLEU, one axes or two. Default: those of a new figure.

    Returns:
        The figure of the axes.

    Raises:
        ValueError: if there is no run, or not an axes for each of these.
    """
    if not runs:
        raise ValueError("runs: expected at least one history by its name, got none.")
    wanted = 2 if any("val_bleu" in history for history in runs.values()) else 1
    panels = list(
        np.ravel(
            new_picture(7, 1 + 3.2 * wanted).subplots(wanted, sharex=True)
            if axes is None
            else np.array(axes, object)
        )
    )
    if len(panels) != wanted:
        raise ValueError(
            f"axes: expected {wanted}, for the losses{' and BLEU' if wanted == 2 else ''}, got "
            f"{len(panels)}."
        )
    for number, (name, history) in enumerate(runs.items()):
        style = {"color": PALETTE[number % len(PALETTE)], "marker": "o", "markersize": 3}
        for metric, kind, line in (("loss", "training", "--"), ("val_loss", "validation", "-")):
            if metric in history:
                panels[0].plot(
                    *_measured(history[metric]), label=f"{name}, {kind}", linestyle=line, **style
                )
        if "val_bleu" in history:
            panels[-1].plot(*_measured(history["val_bleu"]), label=name, **style)
    for panel, label in zip(
        panels, ("loss (nats a token)", "BLEU of the validation split"), strict=False
    ):
        _name(panel, label)
        # Beside the lines, which it would hide.
        panel.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure_of(panels[0])


def _measured(values: Sequence[float | None]) -> tuple[list[int], list[float]]:
    """Return the epochs, from 1, in which a metric was measured, and its values."""
    pairs = [(epoch, value) for epoch, value in enumerate(values, 1) if value is not None]
    return [epoch for epoch, _ in pairs], [value for _, value in pairs]


def _name(axes: Axes, label: str) -> None:
    axes.set(xlabel="epoch", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
