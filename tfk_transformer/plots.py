"""Pictures: training curves and attention maps, as matplotlib figures."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure


def training_curve(history: Mapping[str, Sequence[float | None]]) -> Figure:
    """Draw the loss of each epoch, for training and validation, and BLEU where it was measured.

    Args:
        history: values a name, as in a bundle's `history.json`: "loss" and, where there are such, "val_loss" and "val_bleu", which
            is None in epochs that were not measured.
    """
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, label in (("loss", "training"), ("val_loss", "validation")):
        if name in history:
            axes.plot(np.arange(1, len(history[name]) + 1), history[name], marker="o", markersize=3, label=label)
    axes.set(xlabel="epoch", ylabel="loss (nats a token)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    lines = axes.lines
    if "val_bleu" in history:
        right = axes.twinx()
        measured = [(epoch, bleu) for epoch, bleu in enumerate(history["val_bleu"], 1) if bleu is not None]
        right.plot(*zip(*measured, strict=True), color="tab:green", marker="s", markersize=3, label="BLEU")
        right.set(ylabel="BLEU of the validation split")
        lines = [*lines, *right.lines]
    axes.legend(handles=list(lines), loc="center right")
    return figure


def attention_map(weights, source: Sequence[str], target: Sequence[str]) -> Figure:
    """Draw what each head of one layer attends to.

    Args:
        weights: (H, T, S), of one sentence; a row for each target token sums to 1.
        source: the S tokens attended to.
        target: the T tokens that attend.

    Raises:
        ValueError: if weights and tokens differ in number.
    """
    weights = np.asarray(weights)
    if weights.ndim != 3 or weights.shape[1:] != (len(target), len(source)):
        raise ValueError(f"weights: expected (heads, {len(target)}, {len(source)}), as many as tokens, got {weights.shape}.")
    columns = min(4, len(weights))
    rows = -(-len(weights) // columns)
    figure = Figure(figsize=(1 + 2.5 * columns, 1 + 2.5 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for head, axes in enumerate(panels):
        axes.set_visible(head < len(weights))
        if head < len(weights):
            axes.imshow(weights[head], vmin=0, vmax=1, cmap="viridis")
            axes.set_title(f"head {head + 1}", fontsize=9)
            axes.set_xticks(range(len(source)), source, rotation=90, fontsize=7)
            axes.set_yticks(range(len(target)), target, fontsize=7)
    return figure
