"""Which words of a translation stand for which words of its source, as lines between two columns of
words.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfk_transformer.documents.alignment import hypothesis_alignment
from tfk_transformer.inference.results import Translation
from tfk_transformer.plots.figures import FONT_SIZE, PALETTE, axes_or_new, figure_of
from tfk_transformer.plots.fonts import fonts_for, width_of
from tfk_transformer.plots.labels import label_text

ROW = 0.24  # inches of a word
BETWEEN = 2.5  # inches between the two columns of words
SIZE = FONT_SIZE + 2


def alignment(translation: Translation, axes: Axes | None = None) -> Figure:
    """Plot the words of a source and those of its best translation, and the links between them.

    A link leads from a word to the one with most attention, in the mean of all layers and heads:
    from each target word to a source word and from each source word to a target word. Its width is
    that attention. Links that are the best both ways are solid, the others are dashed.

    Args:
        translation: the result of `translate` with `attention=True`.
        axes: where to draw. Default: the axes of a new figure, high enough for all words.

    Returns:
        The figure of the axes.

    Raises:
        ValueError: if the translation has no attention.
    """
    found = hypothesis_alignment(translation.source, translation.hypotheses[0])
    sides = [(translation.source, found.source), (translation.text, found.target)]
    words = [[label_text(text[start:end]) for start, end in places] for text, places in sides]
    fonts = fonts_for([*words[0], *words[1]])
    rows = max(map(len, words))
    widths = [width_of(side, fonts) * SIZE / FONT_SIZE for side in words]
    axes = axes_or_new(axes, BETWEEN + sum(widths) + 0.6, 0.8 + ROW * max(rows, 3))
    places = [
        np.linspace(0, rows - 1, len(side)) if len(side) > 1 else np.array([(rows - 1) / 2])
        for side in words
    ]
    for x, (side, heights) in enumerate(zip(words, places, strict=True)):
        for word, height in zip(side, heights, strict=True):
            text: dict[str, Any] = {"fontfamily": fonts, "fontsize": SIZE, "parse_math": False}
            axes.text(x, height, f" {word} ", ha="left" if x else "right", va="center", **text)
    for source, target in sorted(set(found.links)):
        both, colour = found.links.count((source, target)) > 1, PALETTE[source % len(PALETTE)]
        weight = 0.0 if found.weights is None else float(found.weights[target, source])
        line: dict[str, Any] = {
            "color": colour,
            "linewidth": 1 + 3 * weight,
            "linestyle": "-" if both else ":",
            "alpha": 1.0 if both else 0.6,
        }
        axes.plot([0, 1], [places[0][source], places[1][target]], solid_capstyle="round", **line)
    _frame(axes, rows, [width / BETWEEN for width in widths])
    return figure_of(axes)


def _frame(axes: Axes, rows: int, widths: list[float]) -> None:
    """Set the limits so that the words on both sides are inside, and name the columns."""
    axes.set_xlim(-widths[0] - 0.1, 1 + widths[1] + 0.1)
    axes.set_ylim(rows - 0.4, -0.6)  # the first word is on top
    axes.set_xticks([0, 1], ["source", "translation"], fontsize=SIZE)
    axes.set_yticks([])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
