"""The layers of a model, from its configuration and the names of its weights, and its positions."""

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from numpy.typing import ArrayLike

from tfk_transformer.plots.figures import FONT_SIZE, PALETTE, axes_or_new, figure_of

if TYPE_CHECKING:
    from tfk_transformer.models.configured_model import ConfiguredModel

# Sizes in inches.
COLUMN_WIDTH = 3.3  # of a column
COLUMN_GAP = 0.7  # between two columns
LINE = 0.19  # the height of a line of text
PADDING = 0.11  # around the lines of a box
BOX_GAP = 0.24  # between two boxes
EDGE = 0.3
INK = "#555555"
LAYER_LABELS = {
    "attention": "self-attention",
    "self_attention": "self-attention",
    "cross_attention": "cross-attention",
}
SIDE_LABELS = {  # the beginnings of box labels by side, for each architecture
    "encoder_decoder": {"source": "source ", "target": "target "},
    "encoder": {"source": ""},
    "decoder": {"target": ""},
}
EMBEDDING, ENCODER, DECODER, OUTPUT, TOKENS = PALETTE[:5]  # the colors of boxes


class _Box(NamedTuple):
    """A box: one layer, or several layers with the same parts."""

    # (name, value): first with the shape of the output, then with numbers of parameters.
    lines: list[tuple[str, str]]
    color: str
    num_layers: int = 1
    reads_encoder: bool = False

    @property
    def height(self) -> float:
        return 2 * PADDING + LINE * len(self.lines)


def model_layers(model: "ConfiguredModel", axes: Axes | None = None) -> Figure:
    """Draw the layers of a model with their output shapes and numbers of parameters.

    The layers are in the order of the data, and layers with the same parts share a box.
    `keras.utils.plot_model` supports models that call each layer once with tensors. It shows a
    model of this library as a single box, since its encoder and decoder are layers with loops.

    Args:
        model: a `Transformer`, `LanguageModel`, `EncoderClassifier` or `Ensemble`. An unbuilt model
            is built.
        axes: the axes to draw on. Default: the axes of a new figure that fits all boxes.

    Returns:
        The figure of the axes.
    """
    if not model.built:
        model.build()
    columns = _columns(model)
    width = 2 * EDGE + len(columns) * COLUMN_WIDTH + (len(columns) - 1) * COLUMN_GAP
    heights = [sum(box.height + BOX_GAP for box in boxes) - BOX_GAP for boxes in columns]
    height = max(heights) + 2 * EDGE + 0.4
    axes = axes_or_new(axes, width, height)
    total = sum(math.prod(weight.shape) for weight in model.weights)
    axes.set_title(f"{type(model).__name__}: {total:,} parameters", fontsize=FONT_SIZE + 4)
    # The data flow downwards.
    axes.set(xlim=(-EDGE, width - EDGE), ylim=(height - 0.4 - EDGE, -EDGE))
    axes.axis("off")
    end = 0.0
    for number, boxes in enumerate(columns):
        end = _draw_column(axes, boxes, number * (COLUMN_WIDTH + COLUMN_GAP), end)
    return figure_of(axes)


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


def _columns(model: "ConfiguredModel") -> list[list[_Box]]:
    """Return the encoder and the decoder of a built model, or of each member of an ensemble."""
    members: dict[str, Any] = getattr(model, "named_members", lambda: {"": model})()
    columns = []
    for prefix, member in members.items():
        parts = _Parts(member)
        title = prefix.rstrip("/").replace("_", " ")
        labels = SIDE_LABELS[member.config.architecture]
        columns += [list(parts.column(side, label, title)) for side, label in labels.items()]
    return columns


class _Parts:
    """The parts of a single model."""

    def __init__(self, model: Any) -> None:
        self.config = model.config
        # Numbers of parameters by the name of each weight.
        self.counts = {
            name: math.prod(weight.shape) for name, weight in model.named_weights.items()
        }

    def column(self, side: str, label: str, title: str) -> Iterator[_Box]:
        """Yield the boxes of one side: embedding, positions, layers, outputs."""
        length, stack = ("S", "encoder") if side == "source" else ("T", "decoder")
        shape = f"(B, {length}, {self.config.model_dim})"
        color = ENCODER if stack == "encoder" else DECODER
        yield _Box([(f"{title} {label}tokens".strip(), f"(B, {length})")], TOKENS)
        shared = side == "target" and getattr(self.config, "shares_source", False)
        table = self._parameters(f"{side}_embedding/")
        yield _Box(
            [(f"{label}embedding", shape), ("shared with the source", "0") if shared else table],
            EMBEDDING,
        )
        positions = f"{self.config.positions.replace('_', ' ')} positions"
        # Tables of relative positions are in the stack.
        table = self._parameters(f"{side}_positions/", f"{stack}/relative_positions")
        yield _Box([(positions, shape), table], EMBEDDING)
        yield from self._layers(stack, shape, color)
        if self._count(f"{stack}/final_norm/"):
            lines = [(f"{stack} final norm", shape), self._parameters(f"{stack}/final_norm/")]
            yield _Box(lines, color)
        if not self.config.has_decoder:
            lines = [("classes", f"(B, {self.config.num_classes})"), self._parameters("head/")]
            yield _Box(lines, OUTPUT)
        if side == "target":
            name, count = self._parameters("output/")
            if self.config.tie_embeddings in ("target", "all"):
                name = "tied to the embedding" if count == "0" else "bias; tied to the embedding"
            shape = f"(B, T, {self.config.target_vocab_size})"
            yield _Box([("logits of the vocabulary", shape), (name, count)], OUTPUT)

    def _count(self, *beginnings: str) -> int:
        """Return the number of parameters of the weights whose names begin so."""
        return sum(count for name, count in self.counts.items() if name.startswith(beginnings))

    def _parameters(self, *beginnings: str) -> tuple[str, str]:
        return "parameters", f"{self._count(*beginnings):,}"

    def _layers(self, stack: str, shape: str, color: str) -> Iterator[_Box]:
        """Yield a box for each run of layers with the same blocks."""
        layers = range(getattr(self.config, f"{stack}_layers"))
        first = 1
        for blocks, run in itertools.groupby(layers, lambda number: self._blocks(stack, number)):
            num_layers = len(list(run))
            last = first + num_layers - 1
            numbers = f"layer {first}" if num_layers == 1 else f"layers {first} to {last}, each"
            total = f"{sum(count for _, count in blocks):,}"
            lines = [
                (f"{stack} {numbers}", shape),
                *((block, f"{count:,}") for block, count in blocks),
                ("together" if len(blocks) > 1 else "parameters", total),
            ]
            reads_encoder = any(block.startswith("cross") for block, _ in blocks)
            yield _Box(lines, color, num_layers, reads_encoder)
            first = last + 1

    def _blocks(self, stack: str, number: int) -> list[tuple[str, int]]:
        """Return the blocks of a layer with their parameters; all norms are one block."""
        start = f"{stack}/layer_{number}/"
        names = dict.fromkeys(
            name.removeprefix(start).split("/")[0] for name in self.counts if name.startswith(start)
        )
        counts = {name: self._count(f"{start}{name}/") for name in names}
        norms = sum(count for name, count in counts.items() if name.endswith("residual"))
        num_heads = self.config.num_heads
        heads = f"{num_heads} {'head' if num_heads == 1 else 'heads'}"
        options = self.config.decoder_options() if stack == "decoder" else self.config
        labels = {name: f"{label}, {heads}" for name, label in LAYER_LABELS.items()}
        labels["ssru"] = "SSRU"
        feed_forward = f"feed-forward, {options.ff_width} wide"
        blocks = [
            (labels.get(name, feed_forward), count)
            for name, count in counts.items()
            if not name.endswith("residual")
        ]
        return [*blocks, ("norms", norms)] if norms else blocks


def _draw_column(axes: Axes, boxes: list[_Box], left: float, encoder_end: float) -> float:
    """Draw the boxes of a column from its top, connected by arrows, and return its lower end.

    Cross-attention reads the lower end of the column on the left, `encoder_end`.
    """
    top = 0.0
    middle = left + COLUMN_WIDTH / 2
    for number, box in enumerate(boxes):
        if number:
            _arrow(axes, (middle, top - BOX_GAP), (middle, top))
        _draw_box(axes, box, left, top)
        # A line around the lower right corner of the encoder, and up or down to this box.
        if box.reads_encoder:
            from_x = left - COLUMN_GAP - COLUMN_WIDTH / 2
            to_x = left - COLUMN_GAP / 2
            y = top + box.height / 2
            below = encoder_end + BOX_GAP / 2
            xs, ys = [from_x, from_x, to_x, to_x], [encoder_end, below, below, y]
            axes.plot(xs, ys, color=INK, linewidth=1)
            _arrow(axes, (to_x, y), (left, y))
        top += box.height + BOX_GAP
    return top - BOX_GAP


def _draw_box(axes: Axes, box: _Box, left: float, top: float) -> None:
    style: dict[str, Any] = {
        "boxstyle": "round,pad=0,rounding_size=0.06",
        "linewidth": 1.2,
        "edgecolor": box.color,
    }
    size = COLUMN_WIDTH, box.height
    # Several layers have a second box behind the first one.
    for shift in (0.06, 0.0) if box.num_layers > 1 else (0.0,):
        corner = (left + shift, top + shift)
        axes.add_patch(FancyBboxPatch(corner, *size, facecolor="white", **style))
    axes.add_patch(FancyBboxPatch((left, top), *size, facecolor=box.color, alpha=0.12, **style))
    for number, (name, value) in enumerate(box.lines):
        y = top + PADDING + LINE * (number + 0.5)
        weight = "bold" if number == 0 else "normal"
        font: dict[str, Any] = {"fontsize": FONT_SIZE, "fontweight": weight, "va": "center"}
        axes.text(left + 0.1, y, name, ha="left", **font)
        axes.text(left + COLUMN_WIDTH - 0.1, y, value, ha="right", **font)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)
