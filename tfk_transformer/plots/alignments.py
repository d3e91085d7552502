"""Word alignments of a translation, as lines between two columns of words."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfk_transformer.plots.figures import FONT_SIZE, PALETTE, axes_or_new, figure_of
from tfk_transformer.plots.fonts import fonts_for, width_of
from tfk_transformer.plots.labels import label_text
from tfk_transformer.text.alignment import hypothesis_alignment
from tfk_transformer.text.results import Translation

ROW = 0.24  # height of a word in inches
COLUMN_DISTANCE = 2.5  # distance of the two columns in inches
SIZE = FONT_SIZE + 2


def alignment(translation: Translation, axes: Axes | None = None) -> Figure:
    """Plot the words of a source and of its best translation, and the links between them.

    A link connects a word with the word of the other side that has most attention, in the mean of
    all layers and heads. Each source word and each target word has one. The width of a link is its
    attention. A link that is best for both of its words is solid; other links are dotted.

    Args:
        translation: the result of `translate` with `attention=True`.
        axes: the axes to draw on. Default: the axes of a new figure that fits all words.

    Returns:
        The figure of the axes.

    Raises:
        ValueError: if the translation has no attention.
    """
    aligned = hypothesis_alignment(translation.source, translation.hypotheses[0])
    sides = [(translation.source, aligned.source), (translation.text, aligned.target)]
    words = [[label_text(text[start:end]) for start, end in spans] for text, spans in sides]
    fonts = fonts_for([*words[0], *words[1]])
    rows = max(map(len, words))
    widths = [width_of(side, fonts) * SIZE / FONT_SIZE for side in words]
    axes = axes_or_new(axes, COLUMN_DISTANCE + sum(widths) + 0.6, 0.8 + ROW * max(rows, 3))
    heights_of_sides = [
        np.linspace(0, rows - 1, len(side)) if len(side) > 1 else np.array([(rows - 1) / 2])
        for side in words
    ]
    for x, (side, heights) in enumerate(zip(words, heights_of_sides, strict=True)):
        for word, height in zip(side, heights, strict=True):
            text: dict[str, Any] = {"fontfamily": fonts, "fontsize": SIZE, "parse_math": False}
            axes.text(x, height, f" {word} ", ha="left" if x else "right", va="center", **text)
    for source, target in sorted(set(aligned.links)):
        best_for_both = aligned.links.count((source, target)) > 1
        weight = 0.0 if aligned.weights is None else float(aligned.weights[target, source])
        axes.plot(
            [0, 1],
            [heights_of_sides[0][source], heights_of_sides[1][target]],
            solid_capstyle="round",
            color=PALETTE[source % len(PALETTE)],
            linewidth=1 + 3 * weight,
            linestyle="-" if best_for_both else ":",
            alpha=1.0 if best_for_both else 0.6,
        )
    left, right = (width / COLUMN_DISTANCE for width in widths)
    axes.set(
        xlim=(-left - 0.1, 1 + right + 0.1),  # with the words of both sides
        ylim=(rows - 0.4, -0.6),  # the first word is on top
        yticks=[],
    )
    axes.set_xticks([0, 1], ["source", "translation"], fontsize=SIZE)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure_of(axes)
