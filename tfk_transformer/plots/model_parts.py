"""What `model.model_layers` draws: the parts of a model in columns, read from its configuration and
the names of its weights.
"""

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tfk_transformer.models.base import ConfiguredModel

LAYER_LABELS = {
    "attention": "self-attention",
    "self_attention": "self-attention",
    "cross_attention": "cross-attention",
}
EMBEDDING, ENCODER, DECODER, OUTPUT, TOKENS = range(5)  # colours


class Box(NamedTuple):
    """A box: one layer, or several of the same parts."""

    # (name, value); the first has the shape of the output, the others numbers of parameters.
    lines: list[tuple[str, str]]
    colour: int = TOKENS
    times: int = 1  # the number of layers
    reads_encoder: bool = False


class Column(NamedTuple):
    """The parts of one side of a model, in the order of the data."""

    parts: list[Box]


def columns_of(model: "ConfiguredModel") -> list[Column]:
    """Return the columns of a built model: encoder and decoder, those that it has; of an ensemble,
    those of each member.
    """
    named: dict[str, Any] = getattr(model, "named_members", lambda: {"": model})()
    shapes = {name: tuple(weight.shape) for name, weight in model.named_weights.items()}
    return [
        column
        for prefix, member in named.items()
        for column in _Side(member.config, shapes, prefix).columns()
    ]


class _Side(NamedTuple):
    """A model's configuration with the shapes of its weights by name."""

    config: Any
    shapes: dict[str, tuple[int, ...]]
    prefix: str  # of the names

    def columns(self) -> list[Column]:
        sides = {"encoder_decoder": "source target", "encoder": "source", "decoder": "target"}[
            self.config.architecture
        ].split()
        return [
            Column(list(self._parts(side, f"{side} " if len(sides) > 1 else ""))) for side in sides
        ]

    def count(self, path: str) -> int:
        """Return the number of parameters below a path."""
        path = f"{self.prefix}{path}/"
        return sum(math.prod(shape) for name, shape in self.shapes.items() if name.startswith(path))

    def _parts(self, side: str, name: str) -> Iterator[Box]:
        c, (length, stack) = self.config, ("S", "encoder") if side == "source" else ("T", "decoder")
        shape = f"(B, {length}, {c.model_dim})"
        title = self.prefix.rstrip("/").replace("_", " ")
        yield Box([(f"{title} {name}tokens".strip(), f"(B, {length})")])
        yield Box([(f"{name}embedding", shape), self._embedding(side)], EMBEDDING)
        positions = self.count(f"{side}_positions")
        yield Box(
            [
                (f"{c.positions.replace('_', ' ')} positions", shape),
                ("parameters", _number(positions)),
            ],
            EMBEDDING,
        )
        yield from self._layers(stack, shape)
        if norm := self.count(f"{stack}/final_norm"):
            yield Box(
                [(f"{stack} final norm", shape), ("parameters", _number(norm))],
                ENCODER if stack == "encoder" else DECODER,
            )
        yield from self._outputs(side)

    def _embedding(self, side: str) -> tuple[str, str]:
        shared = (
            side == "target"
            and getattr(self.config, "tie_embeddings", "none") == "all"
            and self.config.architecture != "decoder"
        )
        return (
            ("shared with the source", "0")
            if shared
            else ("parameters", _number(self.count(f"{side}_embedding")))
        )

    def _layers(self, stack: str, shape: str) -> Iterator[Box]:
        """Yield a part for each run of layers with the same blocks."""
        layers = range(getattr(self.config, f"{stack}_layers"))
        first = 1
        for blocks, run in itertools.groupby(
            layers, lambda number: self._blocks(f"{stack}/layer_{number}")
        ):
            times = len(list(run))
            name = (
                f"{stack} layer {first}"
                if times == 1
                else f"{stack} layers {first} to {first + times - 1}, each"
            )
            total = (
                "together" if len(blocks) > 1 else "parameters",
                _number(sum(number for _, number in blocks)),
            )
            lines = [(name, shape), *((block, _number(number)) for block, number in blocks), total]
            colour = ENCODER if stack == "encoder" else DECODER
            yield Box(lines, colour, times, any(block.startswith("cross") for block, _ in blocks))
            first += times

    def _blocks(self, path: str) -> list[tuple[str, int]]:
        """Return the blocks of a layer with their numbers of parameters; all norms count as one."""
        start = f"{self.prefix}{path}/"
        names = dict.fromkeys(
            name.removeprefix(start).split("/")[0] for name in self.shapes if name.startswith(start)
        )
        counts = {name: self.count(f"{path}/{name}") for name in names}
        norms = sum(number for name, number in counts.items() if name.endswith("residual"))
        blocks = [
            (self._block_name(name), number)
            for name, number in counts.items()
            if not name.endswith("residual")
        ]
        return [*blocks, ("norms", norms)] if norms else blocks

    def _block_name(self, name: str) -> str:
        c = self.config
        if name in LAYER_LABELS:
            return f"{LAYER_LABELS[name]}, {c.num_heads} {'head' if c.num_heads == 1 else 'heads'}"
        return f"feed-forward, {c.ff_width} wide"

    def _outputs(self, side: str) -> Iterator[Box]:
        """Yield the projection to the vocabulary or to the classes, if the column ends with one."""
        c = self.config
        if c.architecture == "encoder":
            yield Box(
                [("classes", f"(B, {c.num_classes})"), ("parameters", _number(self.count("head")))],
                OUTPUT,
            )
        if side == "target":
            size, own = c.target_vocab_size, self.count("output")
            tied = c.tie_embeddings != "none"
            line = (
                "tied to the embedding"
                if tied and not own
                else "bias; tied to the embedding"
                if tied
                else "parameters",
                _number(own),
            )
            yield Box([("logits of the vocabulary", f"(B, T, {size})"), line], OUTPUT)


def _number(count: int) -> str:
    return f"{count:,}"
