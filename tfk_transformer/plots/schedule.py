"""Learning rates by training step."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfk_transformer.plots.figures import PALETTE, axes_or_new, figure_of

CURVE_POINTS = 400


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
