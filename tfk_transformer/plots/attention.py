"""Attention weights of heads as heat maps."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from tfk_transformer.plots.attention_weights import TITLES, AttentionWeights
from tfk_transformer.plots.figures import FONT_SIZE, SHADES, figure_of, new_picture
from tfk_transformer.plots.fonts import fonts_for, width_of
from tfk_transformer.plots.labels import token_labels

# The names of both axes, by kind of attention.
LABELS = {
    "cross": ("source token", "token predicted"),
    "encoder": ("token attended to", "source token"),
    "decoder": ("token attended to", "token predicted"),
}
# Inches. A label is FONT_SIZE / 72 = 0.11 high, so that those of neighbouring cells do not touch.
LEAST_CELL, GREATEST_CELL = 0.16, 0.45
PANEL_INCHES = 2.4  # of few tokens
WIDEST = 20.0  # of a picture with several panels beside each other
# The name of an axis with its ticks, the title above a panel, and the space at the edges.
NAME, TITLE, MARGIN = 0.4, 0.3, 0.15
BAR = 0.16  # the width of the colour bar; its ticks and name need as much as `BAR_LABELS`
BAR_LABELS = 0.75


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
        axes: one axes for each head. Default: those of a new figure.
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
    columns, rows = token_labels(source), token_labels(target)
    fonts = fonts_for([*columns, *rows])
    drawn = (
        _new_panels(len(heads), columns, rows, fonts, title)
        if axes is None
        else _given_panels(axes, len(heads))
    )
    highest = float(heads.max(initial=0.0)) or 1.0
    for panel, head, name in zip(drawn.panels, heads, titles, strict=True):
        image = panel.imshow(head, vmin=0, vmax=highest, cmap=SHADES, aspect="equal")
        panel.set_title(name, fontsize=FONT_SIZE + 2)
        _label(panel, columns, rows, fonts, labels)
    bar = drawn.figure.colorbar(image, **drawn.place_of_bar)
    bar.set_label("attention weight", fontsize=FONT_SIZE + 1)
    bar.ax.tick_params(labelsize=FONT_SIZE)
    return drawn.figure


def attention_figure(
    found: AttentionWeights,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    mean: bool = False,
) -> Figure:
    """Plot heads of one kind of attention, with a title that names them.

    Args:
        found: the result of `attention_of`.
        kind: "cross", "encoder" or "decoder". Default: the first of these that is there.
        layer: see `HeadMaps.chosen`, as `head` and `mean`.
        head: the head, or all.
        mean: whether the mean of the heads is shown.

    Raises:
        ValueError: if the kind, the layer or the head is not there.
    """
    kinds = dict(found.kinds())
    name = next(iter(kinds)) if kind is None else str(kind)
    if name not in kinds:
        raise ValueError(
            f"kind: expected one of {', '.join(kinds)}, got '{name}'. {found.missing}".rstrip()
        )
    maps = kinds[name]
    weights, titles, layer_name = maps.chosen(layer, head, mean)
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
    place_of_bar: dict[str, Any]  # of the colour bar, arguments of `Figure.colorbar`


def _given_panels(axes: Axes | Sequence[Axes], count: int) -> _Panels:
    panels = list(np.ravel(np.array(axes, object)))
    if len(panels) != count:
        raise ValueError(f"axes: expected one for each of {count} heads, got {len(panels)}.")
    return _Panels(figure_of(panels[0]), panels, {"ax": panels, "fraction": 0.04, "pad": 0.02})


def _new_panels(
    count: int, columns: Sequence[str], rows: Sequence[str], fonts: list[str], title: str | None
) -> _Panels:
    """Return the panels of a new figure. All sizes follow from the labels: a layout of matplotlib
    would shrink the cells instead.
    """
    cell = float(np.clip(PANEL_INCHES / max(len(columns), len(rows), 1), LEAST_CELL, GREATEST_CELL))
    inner = max(cell * len(columns), 1.0), max(cell * len(rows), 1.0)
    before, below = width_of(rows, fonts) + NAME, width_of(columns, fonts) + NAME
    width, height = before + inner[0] + MARGIN, TITLE + inner[1] + below + MARGIN
    across = min(4, count, max(1, int(WIDEST / width)))
    down = -(-count // across)
    above = MARGIN + (0.35 if title else 0.0)
    size = MARGIN + across * width + BAR + BAR_LABELS, above + down * height
    figure = new_picture(*size, layout=None)

    def place(left: float, top: float, wide: float, high: float) -> Axes:
        return figure.add_axes(
            (left / size[0], 1 - (top + high) / size[1], wide / size[0], high / size[1])
        )

    spots = [
        (MARGIN + number % across * width + before, above + number // across * height + TITLE)
        for number in range(count)
    ]
    panels = [place(left, top, *inner) for left, top in spots]
    if title:
        figure.suptitle(
            title,
            x=MARGIN / size[0],
            y=1 - MARGIN / size[1],
            ha="left",
            va="top",
            fontsize=FONT_SIZE + 3,
        )
    bar = place(MARGIN + across * width, spots[0][1], BAR, inner[1])
    return _Panels(figure, panels, {"cax": bar})


def _label(
    panel: Axes,
    columns: Sequence[str],
    rows: Sequence[str],
    fonts: list[str],
    labels: tuple[str, str],
) -> None:
    # A token "$" begins no formula.
    text: dict[str, Any] = {"fontsize": FONT_SIZE, "fontfamily": fonts, "parse_math": False}
    panel.set_xticks(range(len(columns)), columns, rotation=90, **text)
    panel.set_yticks(range(len(rows)), rows, **text)
    panel.set_xlabel(labels[0], fontsize=FONT_SIZE)
    panel.set_ylabel(labels[1], fontsize=FONT_SIZE)
