"""Tables of position encodings."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from tfk_transformer.plots.figures import axes_or_new, figure_of


def position_encodings(
    table: ArrayLike, axes: Axes | None = None, title: str | None = None
) -> Figure:
    """Plot the vector that is added to the embedding at each position.

    Args:
        table: (positions, D), such as the result of `sinusoids`.
        axes: the axes to draw on. Default: the axes of a new figure.
        title: the title of the axes.

    Returns:
        The figure of the axes.

    Raises:
        ValueError: if the table does not have two axes.
    """
    values = np.asarray(table)
    if values.ndim != 2:
        raise ValueError(f"table: expected shape (positions, width), got {values.shape}.")
    axes = axes_or_new(axes, 7, 4.5)
    limit = float(np.abs(values).max(initial=0.0)) or 1.0
    image = axes.imshow(
        values, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    axes.set(
        xlabel="dimension of the embedding", ylabel="position in the sequence", title=title or ""
    )
    axes.figure.colorbar(image, ax=axes, label="value")
    return figure_of(axes)


def positions_of(model: Any, length: int) -> tuple[np.ndarray, str]:
    """Return the first target positions of a model, or else source positions, and a title.

    Args:
        model: a built model of this library. Of an ensemble, the first member is used.
        length: the number of positions, limited to the number in the model.

    Returns:
        float32 (positions, D), and a title with the type of the positions.

    Raises:
        ValueError: if the model has relative positions, which are not added to embeddings.
    """
    if hasattr(model, "named_members"):
        model = next(iter(model.named_members().values()))
    layer = getattr(model, "target_positions", None) or model.source_positions
    if layer.table is None:
        raise ValueError(
            f"model: expected positions that are added to embeddings, got {layer.kind!r} positions."
        )
    return np.asarray(layer.table, "float32")[:length], f"{layer.kind.replace('_', ' ')} positions"
