"""Attention weights of heads as heat maps, and the word alignment of a translation as links."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from tfk_transformer.plots.attention_weights import (
    TITLES,
    AttentionWeights,
    label_text,
    token_labels,
)
from tfk_transformer.plots.figures import (
    COLORMAP,
    FONT_SIZE,
    PALETTE,
    Picture,
    axes_or_new,
    figure_of,
    fonts_for,
    width_of,
)
from tfk_transformer.text.alignment import hypothesis_alignment
from tfk_transformer.text.results import Translation

LABELS = {  # the names of both axes, by kind of attention
    "cross": ("source token", "token predicted"),
    "encoder": ("token attended to", "source token"),
    "decoder": ("token attended to", "token predicted"),
}
# Sizes in inches.
MIN_CELL = 0.16  # a label has FONT_SIZE / 72 = 0.11, so that neighboring labels do not touch
MAX_CELL = 0.45
PANEL_SIZE = 2.4  # of few tokens
MAX_WIDTH = 20.0  # of a figure with several panels in a row
AXIS_NAME = 0.4  # the name of an axis with its ticks
PANEL_TITLE = 0.3
MARGIN = 0.15  # at the edges
BAR_WIDTH = 0.16  # of the color bar
BAR_LABELS = 0.75  # the ticks and the name of the color bar
WORD_HEIGHT = 0.24  # in an alignment
COLUMN_DISTANCE = 2.5  # of the two columns of an alignment
WORD_SIZE = FONT_SIZE + 2  # in points


def attention_map(
    weights: ArrayLike,
    source: Sequence[str],
    target: Sequence[str],
    axes: Axes | Sequence[Axes] | None = None,
    title: str | None = None,
    titles: Sequence[str] | None = None,
    labels: tuple[str, str] = ("token attended to", "token predicted"),
) -> Figure:
    """Plot attention weights of one sentence, a heat map for each head.

    Labels have a constant size and panels grow with the number of tokens, so that every token is
    legible.

    Args:
        weights: (H, T, S), or (T, S) for a single map. The weights of each target token sum to 1.
        source: the S tokens that are attended to. SentencePiece's mark of a blank is not shown.
        target: the T tokens that attend.
        axes: one axes for each head. Default: the axes of a new figure.
        title: the title of a new figure, such as "layer 2".
        titles: the title of each panel. Default: "head 1" and so on, and none for a single map.
        labels: the names of the two axes.

    Returns:
        The figure of the axes.

    Raises:
        ValueError: if the shape of the weights does not match the numbers of tokens, or there is
            not one axes for each head.
    """
    heads = np.asarray(weights)
    if heads.ndim not in (2, 3) or heads.shape[-2:] != (len(target), len(source)):
        raise ValueError(
            f"weights: expected shape (heads, {len(target)}, {len(source)}) for the tokens, got "
            f"{heads.shape}."
        )
    titles = titles or ([f"head {n + 1}" for n in range(len(heads))] if heads.ndim == 3 else [""])
    heads = heads.reshape(-1, *heads.shape[-2:])
    columns = token_labels(source)
    rows = token_labels(target)
    fonts = fonts_for([*columns, *rows])
    if axes is None:
        panels, bar_axes = _new_panels(len(heads), columns, rows, fonts, title)
        bar_options: dict[str, Any] = {"cax": bar_axes}
    else:
        panels = list(np.ravel(np.array(axes, object)))
        if len(panels) != len(heads):
            raise ValueError(
                f"axes: expected one for each of {len(heads)} heads, got {len(panels)}."
            )
        bar_options = {"ax": panels, "fraction": 0.04, "pad": 0.02}
    figure = figure_of(panels[0])
    max_weight = float(heads.max(initial=0.0)) or 1.0
    # A token "$" does not start a formula.
    text: dict[str, Any] = {"fontsize": FONT_SIZE, "fontfamily": fonts, "parse_math": False}
    for panel, head, name in zip(panels, heads, titles, strict=True):
        image = panel.imshow(head, vmin=0, vmax=max_weight, cmap=COLORMAP, aspect="equal")
        panel.set_title(name, fontsize=FONT_SIZE + 2)
        panel.set_xticks(range(len(columns)), columns, rotation=90, **text)
        panel.set_yticks(range(len(rows)), rows, **text)
        panel.set_xlabel(labels[0], fontsize=FONT_SIZE)
        panel.set_ylabel(labels[1], fontsize=FONT_SIZE)
    bar = figure.colorbar(image, **bar_options)
    bar.set_label("attention weight", fontsize=FONT_SIZE + 1)
    bar.ax.tick_params(labelsize=FONT_SIZE)
    return figure


def attention_figure(
    attention: AttentionWeights,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    mean: bool = False,
) -> Figure:
    """Plot heads of one kind of attention, with a title that names them.

    Args:
        attention: the result of `attention_of`.
        kind: "cross", "encoder" or "decoder". Default: the first of these that exists.
        layer: see `HeadMaps.select`, also for `head` and `mean`.
        head: the head. Default: all heads.
        mean: whether the mean of the heads is shown.

    Raises:
        ValueError: if the kind, the layer or the head does not exist.
    """
    kinds = attention.kinds()
    name = next(iter(kinds)) if kind is None else str(kind)
    if name not in kinds:
        raise ValueError(
            f"kind: expected one of {', '.join(kinds)}, got '{name}'. {attention.missing}".rstrip()
        )
    maps = kinds[name]
    selected = maps.select(layer, head, mean)
    return attention_map(
        selected.weights,
        maps.columns,
        maps.rows,
        title=f"{TITLES[name]}: {selected.layer}",
        titles=selected.titles,
        labels=LABELS[name],
    )


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
    widths = [width_of(side, fonts) * WORD_SIZE / FONT_SIZE for side in words]
    axes = axes_or_new(axes, COLUMN_DISTANCE + sum(widths) + 0.6, 0.8 + WORD_HEIGHT * max(rows, 3))
    heights_of_sides = [
        np.linspace(0, rows - 1, len(side)) if len(side) > 1 else np.array([(rows - 1) / 2])
        for side in words
    ]
    for x, (side, heights) in enumerate(zip(words, heights_of_sides, strict=True)):
        for word, height in zip(side, heights, strict=True):
            text: dict[str, Any] = {"fontfamily": fonts, "fontsize": WORD_SIZE, "parse_math": False}
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
    axes.set_xticks([0, 1], ["source", "translation"], fontsize=WORD_SIZE)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure_of(axes)


def _new_panels(
    count: int, columns: Sequence[str], rows: Sequence[str], fonts: list[str], title: str | None
) -> tuple[list[Axes], Axes]:
    """Return the panels of a new figure, and the axes of its color bar.

    All sizes follow from the labels. A layout engine of matplotlib would shrink the cells, so the
    figure has none.
    """
    cell = float(np.clip(PANEL_SIZE / max(len(columns), len(rows), 1), MIN_CELL, MAX_CELL))
    map_size = max(cell * len(columns), 1.0), max(cell * len(rows), 1.0)
    left_space = width_of(rows, fonts) + AXIS_NAME
    bottom_space = width_of(columns, fonts) + AXIS_NAME
    width = left_space + map_size[0] + MARGIN
    height = PANEL_TITLE + map_size[1] + bottom_space + MARGIN
    across = min(4, count, max(1, int(MAX_WIDTH / width)))  # panels in a row
    down = -(-count // across)
    top_space = MARGIN + (0.35 if title else 0.0)
    size = MARGIN + across * width + BAR_WIDTH + BAR_LABELS, top_space + down * height
    figure = Picture(figsize=size)

    def add_axes(left: float, top: float, wide: float, high: float) -> Axes:
        return figure.add_axes(
            (left / size[0], 1 - (top + high) / size[1], wide / size[0], high / size[1])
        )

    lefts = [MARGIN + number % across * width + left_space for number in range(count)]
    tops = [top_space + number // across * height + PANEL_TITLE for number in range(count)]
    panels = [add_axes(left, top, *map_size) for left, top in zip(lefts, tops, strict=True)]
    if title:
        corner = {"x": MARGIN / size[0], "y": 1 - MARGIN / size[1]}
        figure.suptitle(title, **corner, ha="left", va="top", fontsize=FONT_SIZE + 3)
    return panels, add_axes(MARGIN + across * width, tops[0], BAR_WIDTH, map_size[1])
