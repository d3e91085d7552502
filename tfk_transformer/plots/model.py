"""The layers of a model with their output shapes and numbers of parameters."""

import math
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from tfk_transformer.plots.figures import FONT_SIZE, PALETTE, axes_or_new, figure_of
from tfk_transformer.plots.model_parts import Box, columns_of

if TYPE_CHECKING:
    from tfk_transformer.models.configured_model import ConfiguredModel

# Sizes in inches.
COLUMN_WIDTH = 3.3  # of a column
COLUMN_GAP = 0.7  # between two columns
LINE = 0.19  # the height of a line of text
PADDING = 0.11  # around the lines of a box
BOX_GAP = 0.24  # between two boxes
EDGE = 0.3
INK = "#555555"


def model_layers(model: "ConfiguredModel", axes: Axes | None = None) -> Figure:
    """Draw the layers of a model with their output shapes and numbers of parameters.

    The layers are in the order of the data, and layers with the same parts share a box.
    `keras.utils.plot_model` supports models that call each layer once with tensors. It shows a
    model of this library as a single box, since its encoder and decoder are layers with loops.

    Args:
        model: a `Transformer`, `LanguageModel`, `Classifier` or `Ensemble`. An unbuilt model is
            built.
        axes: the axes to draw on. Default: the axes of a new figure that fits all boxes.

    Returns:
        The figure of the axes.
    """
    if not model.built:
        model.build()
    columns = columns_of(model)
    width = 2 * EDGE + len(columns) * COLUMN_WIDTH + (len(columns) - 1) * COLUMN_GAP
    height = max(map(_column_height, columns)) + 2 * EDGE + 0.4
    axes = axes_or_new(axes, width, height)
    total = sum(math.prod(weight.shape) for weight in model.weights)
    axes.set_title(f"{type(model).__name__}: {total:,} parameters", fontsize=FONT_SIZE + 4)
    # The data flow downwards.
    axes.set(xlim=(-EDGE, width - EDGE), ylim=(height - 0.4 - EDGE, -EDGE))
    axes.axis("off")
    end = 0.0
    for number, boxes in enumerate(columns):
        end = _draw_column(axes, boxes, number * (COLUMN_WIDTH + COLUMN_GAP), end)
    return figure_of(axes)


def _column_height(boxes: list[Box]) -> float:
    return sum(_box_height(box) + BOX_GAP for box in boxes) - BOX_GAP


def _box_height(part: Box) -> float:
    return 2 * PADDING + LINE * len(part.lines)


def _draw_column(axes: Axes, boxes: list[Box], left: float, encoder_end: float) -> float:
    """Draw the boxes of a column from its top, connected by arrows, and return its lower end.

    Args:
        axes: the axes to draw on.
        boxes: the boxes, in the order of the data.
        left: the left edge of the column.
        encoder_end: the lower end of the column on the left, which cross-attention reads.
    """
    top = 0.0
    middle = left + COLUMN_WIDTH / 2
    for number, part in enumerate(boxes):
        height = _box_height(part)
        if number:
            _arrow(axes, (middle, top - BOX_GAP), (middle, top))
        _draw_box(axes, part, left, top)
        # A line around the lower right corner of the encoder, and up or down to this box.
        if part.reads_encoder:
            from_x = left - COLUMN_GAP - COLUMN_WIDTH / 2
            to_x = left - COLUMN_GAP / 2
            below = encoder_end + BOX_GAP / 2
            axes.plot(
                [from_x, from_x, to_x, to_x],
                [encoder_end, below, below, top + height / 2],
                color=INK,
                linewidth=1,
            )
            _arrow(axes, (to_x, top + height / 2), (left, top + height / 2))
        top += height + BOX_GAP
    return top - BOX_GAP


def _draw_box(axes: Axes, part: Box, left: float, top: float) -> None:
    height = _box_height(part)
    color = PALETTE[part.color]
    style: dict[str, Any] = {
        "boxstyle": "round,pad=0,rounding_size=0.06",
        "linewidth": 1.2,
        "edgecolor": color,
    }
    # Several layers have a second box behind the first one.
    for shift in (0.06, 0.0) if part.num_layers > 1 else (0.0,):
        corner = (left + shift, top + shift)
        axes.add_patch(FancyBboxPatch(corner, COLUMN_WIDTH, height, facecolor="white", **style))
    axes.add_patch(
        FancyBboxPatch((left, top), COLUMN_WIDTH, height, facecolor=color, alpha=0.12, **style)
    )
    for number, (name, value) in enumerate(part.lines):
        y = top + PADDING + LINE * (number + 0.5)
        font: dict[str, Any] = {
            "fontsize": FONT_SIZE,
            "fontweight": "bold" if number == 0 else "normal",
        }
        axes.text(left + 0.1, y, name, va="center", ha="left", **font)
        axes.text(left + COLUMN_WIDTH - 0.1, y, value, va="center", ha="right", **font)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0},
    )
