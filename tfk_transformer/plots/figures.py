"""Figures that notebooks show inline, and the colors of all figures."""

import io
import warnings
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Both are distinguishable with any common type of color blindness: viridis varies in lightness, and
# the palette is Okabe and Ito's.
COLORMAP = "viridis"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
FONT_SIZE = 8  # points, of labels


class Picture(Figure):
    """A matplotlib figure that notebooks show inline, even if they do not import pyplot."""

    def draw(self, renderer: Any) -> None:
        """Draw the figure without warnings about missing glyphs: `fonts.fonts_for` warns first."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def axes_or_new(axes: Axes | None, width: float, height: float) -> Axes:
    """Return `axes`, or by default the axes of a new figure of this size in inches."""
    figsize = (width, height)
    return Picture(figsize=figsize, layout="constrained").subplots() if axes is None else axes


def figure_of(axes: Axes) -> Figure:
    """Return the figure of axes, which may be in a subfigure."""
    figure = axes.figure
    return figure if isinstance(figure, Figure) else figure.figure
