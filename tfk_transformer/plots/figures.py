"""Figures that notebooks show inline, the axes that a picture is drawn on, and the colours of all
pictures.
"""

import io
import warnings
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Both can be told apart with any of the common kinds of colour blindness: viridis by lightness, the
# others by Okabe and Ito's choice.
SHADES = "viridis"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
FONT_SIZE = 8  # points, of labels


class Picture(Figure):
    """A matplotlib figure that a notebook shows inline, also one that never imported pyplot."""

    def draw(self, renderer: Any) -> None:
        """Draw the figure. `fonts.fonts_for` has already named the characters that no font has."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def new_picture(
    width: float, height: float, layout: Literal["constrained"] | None = "constrained"
) -> Picture:
    """Return an empty figure.

    Args:
        width: in inches.
        height: in inches.
        layout: the layout engine of matplotlib; None leaves every place to the caller.
    """
    return Picture(figsize=(width, height), layout=layout)


def axes_or_new(axes: Axes | None, width: float, height: float) -> Axes:
    """Return the given axes, or those of a new figure of this size in inches."""
    return new_picture(width, height).subplots() if axes is None else axes


def figure_of(axes: Axes) -> Figure:
    """Return the figure of axes, also of those in a part of a figure."""
    figure = axes.figure
    return figure if isinstance(figure, Figure) else figure.figure
