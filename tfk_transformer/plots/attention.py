"""Attention weights of heads as heat maps."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from tfk_transformer.plots.attention_weights import TITLES, AttentionWeights
from tfk_transformer.plots.figures import COLORMAP, FONT_SIZE, Picture, figure_of
from tfk_transformer.plots.fonts import fonts_for, width_of
from tfk_transformer.plots.labels import token_labels

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
    layout = (
        _new_panels(len(heads), columns, rows, fonts, title)
        if axes is None
        else _existing_panels(axes, len(heads))
    )
    max_weight = float(heads.max(initial=0.0)) or 1.0
    for panel, head, name in zip(layout.panels, heads, titles, strict=True):
        image = panel.imshow(head, vmin=0, vmax=max_weight, cmap=COLORMAP, aspect="equal")
        panel.set_title(name, fontsize=FONT_SIZE + 2)
        _label_axes(panel, columns, rows, fonts, labels)
    bar = layout.figure.colorbar(image, **layout.bar_options)
    bar.set_label("attention weight", fontsize=FONT_SIZE + 1)
    bar.ax.tick_params(labelsize=FONT_SIZE)
    return layout.figure


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
    weights, titles, layer_name = maps.select(layer, head, mean)
    return attention_map(
        weights,
        maps.columns,
        maps.rows,
        title=f"{TITLES[name]}: {layer_name}",
        titles=titles,
        labels=LABELS[name],
    )


class _Panels(NamedTuple):
    figure: Figure
    panels: list[Axes]
    bar_options: dict[str, Any]  # arguments of `Figure.colorbar`


def _existing_panels(axes: Axes | Sequence[Axes], count: int) -> _Panels:
    panels = list(np.ravel(np.array(axes, object)))
    if len(panels) != count:
        raise ValueError(f"axes: expected one for each of {count} heads, got {len(panels)}.")
    return _Panels(figure_of(panels[0]), panels, {"ax": panels, "fraction": 0.04, "pad": 0.02})


def _new_panels(
    count: int, columns: Sequence[str], rows: Sequence[str], fonts: list[str], title: str | None
) -> _Panels:
    """Return the panels of a new figure.

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
        figure.suptitle(
            title,
            x=MARGIN / size[0],
            y=1 - MARGIN / size[1],
            ha="left",
            va="top",
            fontsize=FONT_SIZE + 3,
        )
    bar = add_axes(MARGIN + across * width, tops[0], BAR_WIDTH, map_size[1])
    return _Panels(figure, panels, {"cax": bar})


def _label_axes(
    panel: Axes,
    columns: Sequence[str],
    rows: Sequence[str],
    fonts: list[str],
    labels: tuple[str, str],
) -> None:
    # A token "$" does not start a formula.
    text: dict[str, Any] = {"fontsize": FONT_SIZE, "fontfamily": fonts, "parse_math": False}
    panel.set_xticks(range(len(columns)), columns, rotation=90, **text)
    panel.set_yticks(range(len(rows)), rows, **text)
    panel.set_xlabel(labels[0], fontsize=FONT_SIZE)
    panel.set_ylabel(labels[1], fontsize=FONT_SIZE)
