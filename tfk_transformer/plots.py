"""Plot training curves and attention maps, as matplotlib figures."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

__all__ = ["attention_map", "training_curve"]


def training_curve(history: Mapping[str, Sequence[float | None]]) -> Figure:
    """Plot the training and validation loss of each epoch, and BLEU if it was measured.

    Args:
        history: for each metric, a list of its values by epoch, as in the `history.json` of a bundle: "loss" and, optionally,
            "val_loss" and "val_bleu", which is None for epochs in which it was not measured.
    """
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, label in (("loss", "training"), ("val_loss", "validation")):
        if name in history:
            losses = np.array(history[name], float)  # NaN for None
            axes.plot(np.arange(1, len(losses) + 1), losses, marker="o", markersize=3, label=label)
    axes.set(xlabel="epoch", ylabel="loss (nats a token)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    lines = [*axes.lines]
    if "val_bleu" in history:
        right = axes.twinx()
        measured = [(epoch, bleu) for epoch, bleu in enumerate(history["val_bleu"], 1) if bleu is not None]
        right.plot(*zip(*measured, strict=True), color="tab:green", marker="s", markersize=3, label="BLEU")
        right.set(ylabel="BLEU of the validation split")
        lines = [*lines, *right.lines]
    axes.legend(handles=lines, loc="center right")
    return figure


def attention_map(weights: ArrayLike, source: Sequence[str], target: Sequence[str]) -> Figure:
    """Plot the attention weights of each head of a layer.

    Args:
        weights: attention weights of one sentence, (H, T, S). The weights of each target token sum to 1.
        source: the S tokens that are attended to.
        target: the T tokens that attend.

    Raises:
        ValueError: if the shape of the weights does not match the numbers of tokens.
    """
    weights = np.asarray(weights)
    if weights.ndim != 3 or weights.shape[1:] != (len(target), len(source)):
        raise ValueError(f"weights: expected shape (heads, {len(target)}, {len(source)}) for the tokens, got {weights.shape}.")
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
