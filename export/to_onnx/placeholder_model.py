"""Models whose layers are single nodes, which `onnx_layers` replaces after the conversion."""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.export.to_onnx.conversion import CLASSIFY, DECODE, DOMAIN, LOGITS, READ, STEP
from tfk_transformer.layers.attention import KeyValue
from tfk_transformer.layers.decoder import Decoded
from tfk_transformer.models.base import Beams, Step, Stepper, TokenModel
from tfk_transformer.models.classifier import Classifier
from tfk_transformer.models.ensemble import joined, joined_decoded
from tfk_transformer.models.transformer import Memory

Shape = tuple[int | None, ...]


class MemberStructure(NamedTuple):
    """What the TensorFlow functions around a model know of it, or of one member of an ensemble."""

    decoder_layers: int
    num_heads: int
    query_width: int
    value_width: int
    target_vocab_size: int
    has_source: bool


class Structure(NamedTuple):
    """What the TensorFlow functions around a model know of it. Models of one structure have the same graphs around their layers."""

    architecture: str
    source_vocab_size: int
    target_vocab_size: int
    max_length: int
    members: tuple[MemberStructure, ...]

    @classmethod
    def of(cls, model: TokenModel) -> "Structure":
        """Return the structure of a model."""
        config = model.config
        has_source = config.architecture != "decoder"
        members = [
            MemberStructure(c.decoder_layers, c.num_heads, c.query_width, c.value_width, c.target_vocab_size, has_source)
            for c in config.members
        ]
        return cls(config.architecture, config.source_vocab_size, config.target_vocab_size, config.max_length, tuple(members))


class PlaceholderModel:
    """The parts of a model that its TensorFlow functions use, without content.

    A model, or each member of an ensemble, has these nodes. Their operators end with the number of
    the member, such as `Read_0`.

    - `Read`: from source (B, S) to the keys (B, H, S, K) and values (B, H, S, V) of each decoder
      layer, and the additive mask (B, 1, 1, S) of the source. A model without an encoder has none.
    - `Step`: from the last tokens (A, M) and their position (), lineage (A, 1, M, (t+1)*M), each
      layer's cached keys and values, and the outputs of `Read`, for the A sentences whose search is
      not finished; then tokens (n,) if the search has a shortlist. To logits (A, M, V) or, of these
      tokens, (A, M, n), attention (A, M, S), and each layer's keys and values.
    - `Decode`: from target ids (B, T), which begin with the start token, and the outputs of `Read`,
      to the decoder's output (B, T, D) and each layer's attention weights: to the source
      (B, H, T, S), or of a model without an encoder to the target (B, H, T, T).
    - `Logits`: from the decoder's output (B, T, D) to logits (B, T, V).

    Args:
        structure: the structure of the model to represent.
    """

    def __init__(self, structure: Structure) -> None:
        self.config = structure
        self._members = [_Member(number, member) for number, member in enumerate(structure.members)]

    def named_members(self) -> dict[str, "_Member"]:
        """Return the members by number; see `TokenModel.named_members`."""
        return {str(member.number): member for member in self._members}

    def start_search(self, source: Tensor, use_cache: bool = True, tokens: Tensor = None) -> Stepper:
        """Return the steps of a search; see `Transformer.start_search`."""
        return joined([member.start_search(source, tokens) for member in self._members])

    def decode(self, inputs: Tensor, training: bool | None = None) -> Decoded:
        """Return the result of a full pass; see `TokenModel.decode`."""
        decoded = [member.decode(inputs) for member in self._members]
        return joined_decoded(decoded) if self.config.architecture == "ensemble" else decoded[0]

    def logits(self, decoded: Tensor) -> Tensor:
        """Return the logits of decoder outputs (B, T, D); of an ensemble, a list of them."""
        outputs = decoded if isinstance(decoded, list) else [decoded]
        logits = [member.logits(output) for member, output in zip(self._members, outputs, strict=True)]
        return logits if isinstance(decoded, list) else logits[0]


class _Member:
    """The nodes of a model or of a member of an ensemble."""

    def __init__(self, number: int, structure: MemberStructure) -> None:
        self.number = number
        self.config = structure

    def start_search(self, source: Tensor, tokens: Tensor = None) -> Stepper:
        def step(beams: Beams, cache: Tensor, memory: Tensor) -> Step:
            return self.step(beams.ids[:, :, -1], beams.position, cache, memory, beams.lineage, tokens)

        return Stepper(step, self.empty_cache, self.remember(source) if self.config.has_source else ())

    def empty_cache(self, batch: Tensor) -> list[KeyValue]:
        """Return each layer's cache before the first step; see `Decoder.empty_cache`."""
        return _pairs([tf.zeros([batch, heads, 0, width]) for _, heads, _, width in self._layer_shapes()])

    def remember(self, source: Tensor) -> Memory:
        """Return what the decoding steps read of source ids (B, S); see `Transformer.remember`."""
        *layers, mask = self._node(READ, [source], [*self._layer_shapes(), (None, 1, 1, None)])
        return Memory(_pairs(layers), mask)

    def step(
        self,
        tokens: Tensor,
        position: Tensor,
        cache: list[KeyValue],
        memory: Tensor = (),
        lineage: Tensor = None,
        candidates: Tensor = None,
    ) -> Step:
        """Decode the next position; see `Transformer.step`. The logits are those of the candidates (n,), if there are any."""
        if lineage is None:
            lineage = tf.zeros([tf.shape(tokens)[0], 1, 1, position + 1])
        some = [] if candidates is None else [candidates]
        inputs = [tokens, position, lineage, *tf.nest.flatten(cache), *tf.nest.flatten(memory or ()), *some]
        logits_shape = (None, None, None if some else self.config.target_vocab_size)
        logits, attention, *grown = self._node(STEP, inputs, [logits_shape, (None, None, None), *self._layer_shapes()])
        return Step(logits, _pairs(grown), attention)

    def decode(self, inputs: Tensor) -> Decoded:
        heads, layers = self.config.num_heads, self.config.decoder_layers
        with_source = self.config.has_source
        target = inputs["target"] if with_source else inputs
        memory = tf.nest.flatten(self.remember(inputs["source"])) if with_source else []
        output, *weights = self._node(DECODE, [target, *memory], [(None, None, None), *[(None, heads, None, None)] * layers])
        return Decoded(output, [], weights) if with_source else Decoded(output, weights, [])

    def logits(self, output: Tensor) -> Tensor:
        return self._node(LOGITS, [output], [(None, None, self.config.target_vocab_size)])[0]

    def _layer_shapes(self) -> list[Shape]:
        """Return the shapes of each decoder layer's keys and values."""
        s = self.config
        return [(None, s.num_heads, None, width) for _ in range(s.decoder_layers) for width in (s.query_width, s.value_width)]

    def _node(self, name: str, inputs: Sequence[Tensor], shapes: Sequence[Shape]) -> list[Tensor]:
        return _node(f"{name}_{self.number}", inputs, shapes)


class PlaceholderClassifier:
    """The parts of a classifier that its TensorFlow functions use: the node `Classify_0`, from ids (B, S) to logits (B, C).

    Args:
        model: the classifier to represent.
    """

    def __init__(self, model: Classifier) -> None:
        self.config = model.config

    def __call__(self, ids: Tensor, training: bool | None = None) -> Tensor:
        """Return the logits (B, C) of ids (B, S)."""
        return _node(f"{CLASSIFY}_0", [ids], [(None, self.config.num_classes)])[0]


def _node(name: str, inputs: Sequence[Tensor], shapes: Sequence[Shape]) -> list[Tensor]:
    # A Python function becomes an operator with any number of inputs and outputs. This one is never run.
    outputs: list[Tensor] = tf.numpy_function(_never_run, inputs, [tf.float32] * len(shapes), stateful=False, name=f"{DOMAIN}_{name}")
    for output, shape in zip(outputs, shapes, strict=True):
        output.set_shape(shape)
    return outputs


def _never_run(*inputs: Tensor) -> NoReturn:
    raise RuntimeError("this TensorFlow function can only be converted, not run.")


def _pairs(tensors: Sequence[Tensor]) -> list[KeyValue]:
    return [KeyValue(*pair) for pair in zip(tensors[::2], tensors[1::2], strict=True)]
