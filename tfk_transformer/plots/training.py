"""Curves of training runs: losses and BLEU by epoch, learning rates by step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tfk_transformer.plots.figures import PALETTE, Picture, axes_or_new, figure_of

History = Mapping[str, Sequence[float | None]]
CURVE_POINTS = 400  # of a schedule


def training_curve(history: History, axes: Axes | None = None) -> Figure:
    """Plot the training and validation loss of each epoch, and BLEU if it was measured.

    Args:
        history: the values of each metric by epoch, as in the `history.json` of a bundle: "loss"
            and, optionally, "val_loss" and "val_bleu". A value is None for an epoch in which the
            metric was not measured.
        axes: the axes to draw on. Default: the axes of a new figure.

    Returns:
        The figure of the axes.
    """
    axes = axes_or_new(axes, 6, 4)
    losses = (("loss", "training"), ("val_loss", "validation"))
    for (name, label), color in zip(losses, PALETTE, strict=False):
        _plot_metric(axes, history, name, color=color, marker="o", label=label)
    _label_axes(axes, "loss (nats a token)")
    lines = [*axes.lines]
    if "val_bleu" in history:
        right = axes.twinx()
        _plot_metric(right, history, "val_bleu", color=PALETTE[2], marker="s", label="BLEU")
        right.set(ylabel="BLEU of the validation split")
        lines = [*lines, *right.lines]
    if lines:
        axes.legend(handles=lines, loc="center right")
    return figure_of(axes)


def training_curves(runs: Mapping[str, History], axes: Sequence[Axes] | None = None) -> Figure:
    """Plot the losses of several training runs in one figure, and BLEU below if it was measured.

    Each run has a color. Its training loss is dashed, and its validation loss is solid.

    Args:
        runs: the history of each run by name; see `training_curve`.
        axes: the axes for the losses and, if it was measured, for BLEU. Default: the axes of a new
            figure.

    Returns:
        The figure of the axes.

    Raises:
        ValueError: if there are no runs, or the number of axes is wrong.
    """
    if not runs:
        raise ValueError("runs: expected at least one history by its name, got none.")
    with_bleu = any("val_bleu" in history for history in runs.values())
    count = 2 if with_bleu else 1
    if axes is None:
        figure = Picture(figsize=(7, 1 + 3.2 * count), layout="constrained")
        axes = figure.subplots(count, sharex=True)
    panels = list(np.ravel(np.array(axes, object)))
    if len(panels) != count:
        raise ValueError(
            f"axes: expected {count}, for the losses{' and BLEU' if with_bleu else ''}, got "
            f"{len(panels)}."
        )
    for number, (name, history) in enumerate(runs.items()):
        style = {"color": PALETTE[number % len(PALETTE)], "marker": "o"}
        for metric, split, line in (("loss", "training", "--"), ("val_loss", "validation", "-")):
            label = f"{name}, {split}"
            _plot_metric(panels[0], history, metric, label=label, linestyle=line, **style)
        _plot_metric(panels[-1], history, "val_bleu", label=name, **style)
    labels = ("loss (nats a token)", "BLEU of the validation split")
    for panel, label in zip(panels, labels, strict=False):
        _label_axes(panel, label)
        # Outside the axes, where it does not hide the lines.
        panel.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure_of(panels[0])


def learning_rates(
    schedules: Mapping[str, Callable[[Any], Any]], steps: int, axes: Axes | None = None
) -> Figure:
    """Plot the learning rate of each training step.

    Args:
        schedules: Keras learning rate schedules by name, or other functions from the number of a
            training step, from 0, to its learning rate.
        steps: the number of training steps, at least 1.
        axes: the axes to draw on. Default: the axes of a new figure.

    Returns:
        The figure of the axes.

    Raises:
        ValueError: if there are no schedules or no steps.
    """
    if not schedules or steps < 1:
        raise ValueError(
            f"learning_rates: expected at least one schedule and one step, got {len(schedules)} "
            f"and {steps}."
        )
    axes = axes_or_new(axes, 7, 4)
    sampled_steps = np.unique(np.linspace(0, steps - 1, CURVE_POINTS).astype(int))
    for number, (name, schedule) in enumerate(schedules.items()):
        rates = [float(schedule(int(step))) for step in sampled_steps]
        axes.plot(sampled_steps + 1, rates, label=name, color=PALETTE[number % len(PALETTE)])
    axes.set(xlabel="training step", ylabel="learning rate", ylim=(0, None))
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure_of(axes)


def _plot_metric(axes: Axes, history: History, name: str, **style: Any) -> None:
    """Plot a metric, if the history has it, in the epochs, from 1, in which it was measured."""
    if name in history:
        values = {epoch: value for epoch, value in enumerate(history[name], 1) if value is not None}
        axes.plot(list(values), list(values.values()), markersize=3, **style)


def _label_axes(axes: Axes, label: str) -> None:
    axes.set(xlabel="epoch", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
