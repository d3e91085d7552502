"""The parts of a model that `model.model_layers` draws.

They are derived from the configuration of the model and the names of its weights.
"""

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tfk_transformer.models.configured_model import ConfiguredModel

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
EMBEDDING, ENCODER, DECODER, OUTPUT, TOKENS = range(5)  # indices of `PALETTE`


class Box(NamedTuple):
    """A box: one layer, or several layers with the same parts."""

    # (name, value): first with the shape of the output, then with numbers of parameters.
    lines: list[tuple[str, str]]
    color: int = TOKENS
    num_layers: int = 1
    reads_encoder: bool = False


def columns_of(model: "ConfiguredModel") -> list[list[Box]]:
    """Return the columns of a built model: its encoder and its decoder, if it has them.

    Each column has its boxes in the order of the data. An ensemble has the columns of each member.
    """
    members: dict[str, Any] = getattr(model, "named_members", lambda: {"": model})()
    shapes = {name: tuple(weight.shape) for name, weight in model.named_weights.items()}
    columns = (_Member(each.config, shapes, prefix).columns() for prefix, each in members.items())
    return list(itertools.chain.from_iterable(columns))


class _Member(NamedTuple):
    """The configuration of a model with the shapes of its weights by name."""

    config: Any
    shapes: dict[str, tuple[int, ...]]
    prefix: str  # of the names

    def columns(self) -> list[list[Box]]:
        labels = SIDE_LABELS[self.config.architecture]
        return [list(self._parts(side, label)) for side, label in labels.items()]

    def count(self, path: str) -> int:
        """Return the number of parameters below a path."""
        path = f"{self.prefix}{path}/"
        return sum(math.prod(shape) for name, shape in self.shapes.items() if name.startswith(path))

    def _parts(self, side: str, name: str) -> Iterator[Box]:
        length, stack = ("S", "encoder") if side == "source" else ("T", "decoder")
        shape = f"(B, {length}, {self.config.model_dim})"
        title = self.prefix.rstrip("/").replace("_", " ")
        yield Box([(f"{title} {name}tokens".strip(), f"(B, {length})")])
        shared = side == "target" and getattr(self.config, "shares_source", False)
        table = "shared with the source", "0"
        if not shared:
            table = self._parameters(f"{side}_embedding")
        yield Box([(f"{name}embedding", shape), table], EMBEDDING)
        positions = f"{self.config.positions.replace('_', ' ')} positions"
        count = self.count(f"{side}_positions")
        # Tables of relative positions are in the stack.
        path = f"{self.prefix}{stack}/relative_positions"
        count += sum(math.prod(size) for name, size in self.shapes.items() if name.startswith(path))
        yield Box([(positions, shape), ("parameters", f"{count:,}")], EMBEDDING)
        yield from self._layers(stack, shape)
        if self.count(f"{stack}/final_norm"):
            lines = [(f"{stack} final norm", shape), self._parameters(f"{stack}/final_norm")]
            yield Box(lines, ENCODER if stack == "encoder" else DECODER)
        yield from self._outputs(side)

    def _parameters(self, path: str) -> tuple[str, str]:
        return "parameters", f"{self.count(path):,}"

    def _layers(self, stack: str, shape: str) -> Iterator[Box]:
        """Yield a box for each run of layers with the same blocks."""
        layers = range(getattr(self.config, f"{stack}_layers"))
        first = 1
        for blocks, run in itertools.groupby(
            layers, lambda number: self._blocks(f"{stack}/layer_{number}")
        ):
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
            yield Box(lines, ENCODER if stack == "encoder" else DECODER, num_layers, reads_encoder)
            first = last + 1

    def _blocks(self, path: str) -> list[tuple[str, int]]:
        """Return the blocks of a layer with their parameters; all norms are one block."""
        start = f"{self.prefix}{path}/"
        names = dict.fromkeys(
            name.removeprefix(start).split("/")[0] for name in self.shapes if name.startswith(start)
        )
        counts = {name: self.count(f"{path}/{name}") for name in names}
        norms = sum(number for name, number in counts.items() if name.endswith("residual"))
        blocks = [
            (self._block_name(path, name), number)
            for name, number in counts.items()
            if not name.endswith("residual")
        ]
        return [*blocks, ("norms", norms)] if norms else blocks

    def _block_name(self, path: str, name: str) -> str:
        if name == "ssru":
            return "SSRU"
        if name not in LAYER_LABELS:
            is_decoder = path.startswith("decoder/")
            options = self.config.decoder_options() if is_decoder else self.config
            return f"feed-forward, {options.ff_width} wide"
        num_heads = self.config.num_heads
        return f"{LAYER_LABELS[name]}, {num_heads} {'head' if num_heads == 1 else 'heads'}"

    def _outputs(self, side: str) -> Iterator[Box]:
        """Yield the projection to the vocabulary or to the classes, if the column has one."""
        if self.config.architecture == "encoder":
            shape = f"(B, {self.config.num_classes})"
            yield Box([("classes", shape), self._parameters("head")], OUTPUT)
        if side == "target":
            label, count = self._parameters("output")
            if self.config.tie_embeddings in ("target", "all"):
                label = "tied to the embedding" if count == "0" else "bias; tied to the embedding"
            shape = f"(B, T, {self.config.target_vocab_size})"
            yield Box([("logits of the vocabulary", shape), (label, count)], OUTPUT)
