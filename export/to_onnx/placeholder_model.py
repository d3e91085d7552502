"""A model whose encoders and decoding steps are single nodes, which `onnx_layers` replaces after the conversion."""

import functools
from collections.abc import Sequence
from typing import NoReturn

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.export.to_onnx.conversion import DOMAIN, READ, STEP
from tfk_transformer.layers.attention import KeyValue
from tfk_transformer.models.base import Beams, Step, Stepper, TokenModel
from tfk_transformer.models.ensemble import joined

Shape = tuple[int | None, ...]


class PlaceholderModel:
    """The parts of a model that its TensorFlow search functions use, without content.

    A model, or each member of an ensemble, has two nodes. Their operators end with the number of the member: `Read_0` and `Step_0`.

    The node `Read` has the input source (B, S). Its outputs are, for each decoder layer, keys (B, H, S, K) and values
    (B, H, S, V), and then the additive mask (B, 1, 1, S) of the source. A model without an encoder has no such node.

    The node `Step` has the inputs ids (A, M, t+1), lineage (A, 1, M, (t+1)*M), each layer's cached keys and values, and the outputs
    of `Read`, for the A sentences whose search is not finished, and then tokens (n,) if the search has a shortlist. Its outputs are
    logits (A, M, V) or, of these tokens, (A, M, n), attention (A, M, S), and each layer's keys and values.

    Args:
        model: the model to represent.
    """

    def __init__(self, model: TokenModel):
        self.config = model.config
        self._members = [_Member(number, member) for number, member in enumerate(model.named_members().values())]

    def start_search(self, source: Tensor, use_cache: bool = True, tokens: Tensor = None) -> Stepper:
        """Return the steps of a search; see `Transformer.start_search`."""
        return joined([member.start_search(source, tokens) for member in self._members])


class _Member:
    """The nodes of a model or of a member of an ensemble."""

    def __init__(self, number: int, model: TokenModel):
        self.number = number
        self.config = model.config
        self._first_cache = model.decoder.empty_cache

    def start_search(self, source: Tensor, tokens: Tensor = None) -> Stepper:
        memory = [] if self.config.architecture == "decoder" else self._read(source)
        return Stepper(functools.partial(self._step, tokens), self._first_cache, memory)

    def _read(self, source: Tensor) -> list[Tensor]:
        found = _node(f"{READ}_{self.number}", [source], [*self._layer_shapes(), (None, 1, 1, None)])
        return [_pairs(found[:-1]), found[-1]]

    def _step(self, tokens: Tensor, beams: Beams, cache: Tensor, memory: Tensor) -> Step:
        some = [] if tokens is None else [tokens]
        logits_shape = (None, None, None if some else self.config.target_vocab_size)
        inputs = [*beams, *tf.nest.flatten(cache), *tf.nest.flatten(memory), *some]
        logits, attention, *cache = _node(f"{STEP}_{self.number}", inputs, [logits_shape, (None, None, None), *self._layer_shapes()])
        return Step(logits, _pairs(cache), attention)

    def _layer_shapes(self) -> list[Shape]:
        """Return the shapes of each decoder layer's keys and values."""
        c = self.config
        return [(None, c.num_heads, None, width) for _ in range(c.decoder_layers) for width in (c.query_width, c.value_width)]


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
