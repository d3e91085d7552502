"""The layers of a model with their output shapes and numbers of parameters."""

import math
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from tfk_transformer.plots.figures import FONT_SIZE, PALETTE, axes_or_new, figure_of
from tfk_transformer.plots.model_parts import Box, Column, columns_of

if TYPE_CHECKING:
    from tfk_transformer.models.base import ConfiguredModel

# Inches.
WIDTH, GAP = 3.3, 0.7  # of a column, and between two
# Of a line of text, around the lines of a box, and between two boxes.
LINE, PADDING, BETWEEN = 0.19, 0.11, 0.24
EDGE = 0.3
INK = "#555555"


def model_layers(model: "ConfiguredModel", axes: Axes | None = None) -> Figure:
    """Draw the layers of a model in the order of the data, with the shape of each output and the
    number of parameters.

    Layers of equal parts are one box. `keras.utils.plot_model` shows models that call each layer
    once with tensors; a model of this library is a single box there, since its encoder and decoder
    are layers with loops of their own.

    Args:
        model: a `Transformer`, `LanguageModel`, `Classifier` or `Ensemble`. It is built if it is
            not.
        axes: where to draw. Default: the axes of a new figure, large enough for all boxes.

    Returns:
        The figure of the axes.
    """
    if not model.built:
        model.build()
    columns = columns_of(model)
    width = 2 * EDGE + len(columns) * WIDTH + (len(columns) - 1) * GAP
    height = max(map(_height, columns)) + 2 * EDGE + 0.4
    axes = axes_or_new(axes, width, height)
    total = sum(math.prod(weight.shape) for weight in model.weights)
    axes.set_title(f"{type(model).__name__}: {total:,} parameters", fontsize=FONT_SIZE + 4)
    axes.set_xlim(-EDGE, width - EDGE)
    axes.set_ylim(height - 0.4 - EDGE, -EDGE)  # the data flow downwards
    axes.axis("off")
    end = 0.0
    for number, column in enumerate(columns):
        end = _draw_column(axes, column, number * (WIDTH + GAP), end)
    return figure_of(axes)


def _height(column: Column) -> float:
    return sum(_box_height(part) + BETWEEN for part in column.parts) - BETWEEN


def _box_height(part: Box) -> float:
    return 2 * PADDING + LINE * len(part.lines)


def _draw_column(axes: Axes, column: Column, left: float, encoder_end: float) -> float:
    """Draw the boxes of a column from its top, with an arrow between two, and return where it ends.

    Args:
        axes: where to draw.
        column: the boxes.
        left: the left edge of the column.
        encoder_end: where the column to its left ends, which layers with cross-attention read.
    """
    top, middle = 0.0, left + WIDTH / 2
    for number, part in enumerate(column.parts):
        height = _box_height(part)
        if number:
            _arrow(axes, (middle, top - BETWEEN), (middle, top))
        _draw_box(axes, part, left, top)
        # Around the lower right corner of the encoder, and up or down to this box.
        if part.reads_encoder:
            from_x, to_x, below = left - GAP - WIDTH / 2, left - GAP / 2, encoder_end + BETWEEN / 2
            axes.plot(
                [from_x, from_x, to_x, to_x],
                [encoder_end, below, below, top + height / 2],
                color=INK,
                linewidth=1,
            )
            _arrow(axes, (to_x, top + height / 2), (left, top + height / 2))
        top += height + BETWEEN
    return top - BETWEEN


def _draw_box(axes: Axes, part: Box, left: float, top: float) -> None:
    height = _box_height(part)
    style: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.06", "linewidth": 1.2}
    colour = PALETTE[part.colour]
    # A second box behind that of several layers.
    for shift in (0.06, 0.0) if part.times > 1 else (0.0,):
        axes.add_patch(
            FancyBboxPatch(
                (left + shift, top + shift),
                WIDTH,
                height,
                edgecolor=colour,
                facecolor="white",
                **style,
            )
        )
    axes.add_patch(
        FancyBboxPatch(
            (left, top), WIDTH, height, edgecolor=colour, facecolor=colour, alpha=0.12, **style
        )
    )
    for number, (name, value) in enumerate(part.lines):
        y = top + PADDING + LINE * (number + 0.5)
        weight = "bold" if number == 0 else "normal"
        axes.text(
            left + 0.1, y, name, va="center", ha="left", fontsize=FONT_SIZE, fontweight=weight
        )
        axes.text(
            left + WIDTH - 0.1,
            y,
            value,
            va="center",
            ha="right",
            fontsize=FONT_SIZE,
            fontweight=weight,
        )


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0},
    )
