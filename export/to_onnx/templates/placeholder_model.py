"""A model whose layers are single nodes, from which the templates are traced."""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.export.to_onnx.conversion import (
    CACHE,
    CLASSIFY_OPERATOR,
    DECODE,
    DOMAIN,
    LOGITS,
    READ,
    STEP,
)
from tfk_transformer.layers.decoder import Decoded
from tfk_transformer.models.search_steps import Beams, Step, Stepper


class Sizes(NamedTuple):
    """The options of a model's configuration that its TensorFlow functions use, int32 ()."""

    source_vocab_size: Tensor
    target_vocab_size: Tensor
    max_length: Tensor

    @property
    def vocab_size(self) -> Tensor:
        """The vocabulary size of a classifier."""
        return self.source_vocab_size


class PlaceholderModel:
    """A model for tracing: it has the methods that TensorFlow functions use, but no layers.

    Its nodes are the following. A packed value is one tensor of float32 that stands for a list of
    values of the same rank. `expansion` replaces it by these values.

    - `Read`: from source (B, S) to the memory, packed: for each member the keys (B, H, S, K) and
      values (B, H, S, V) of each decoder layer, then the additive mask (B, 1, 1, S) of the source.
    - `Cache`: from the batch size B to the first cache, packed: the keys and values of each decoder
      layer of each member, or its states, without positions.
    - `Step`: from the last tokens (A, M) and their position (), lineage (A, 1, M, (t+1)*M), the
      cache, and the memory if the model has an encoder, for the A sentences whose search is not
      finished; then tokens (n,) if the search has a shortlist. To logits (A, M, V), or (A, M, n)
      with a shortlist, packed by member; attention (A, M, S); and the longer cache.
    - `Decode`: from target ids (B, T), which begin with the start token, and the memory to the
      decoder's output (B, T, D), packed by member; the attention weights of the first layer; and
      the attention weights of all other layers, packed. The weights are to the source
      (B, H, T, S), or to the target (B, H, T, T) in a model without an encoder.
    - `Logits`: from the decoder's output (B, T, D) to logits (B, T, V), both packed by member.
    - `Classify`, of a classifier: from ids (B, S) to logits (B, C).

    Args:
        config: the sizes of the model.
        has_source: whether the model has an encoder.
    """

    def __init__(self, config: Sizes, has_source: bool = True) -> None:
        self.config = config
        self.has_source = has_source

    def start_search(
        self, source: Tensor, use_cache: bool = True, tokens: Tensor = None
    ) -> Stepper:
        """Return the steps of a search; see `Transformer.start_search`."""
        candidates = [] if tokens is None else [tokens]

        def step(beams: Beams, cache: Tensor, memory: Sequence[Tensor]) -> Step:
            last = beams.ids[:, :, -1]
            inputs = [last, beams.position, beams.lineage, cache, *memory, *candidates]
            logits, attention, next_cache = _node(STEP, inputs, ranks=(3, 3, 4))
            return Step(logits, next_cache, attention)

        return Stepper(step, lambda batch: _node(CACHE, [batch], [4])[0], self._memory(source))

    def decode(self, inputs: Tensor, training: bool | None = None) -> Decoded:
        """Return the result of a full pass; see `TokenModel.decode`."""
        target = inputs["target"] if self.has_source else inputs
        memory = self._memory(inputs["source"]) if self.has_source else []
        output, *weights = _node(DECODE, [target, *memory], ranks=(3, 4, 4))
        return Decoded(output, [], weights) if self.has_source else Decoded(output, weights, [])

    def logits(self, decoded: Tensor) -> Tensor:
        """Return the logits of decoder outputs (B, T, D)."""
        return _node(LOGITS, [decoded], ranks=[3])[0]

    def __call__(self, ids: Tensor, training: bool | None = None) -> Tensor:
        """Return the logits (B, C) that a classifier gives ids (B, S)."""
        return _node(CLASSIFY_OPERATOR, [ids], ranks=[2])[0]

    def _memory(self, source: Tensor) -> list[Tensor]:
        return _node(READ, [source], ranks=[4]) if self.has_source else []


def _node(name: str, inputs: Sequence[Tensor], ranks: Sequence[int]) -> list[Tensor]:
    # A Python function becomes an operator with any number of inputs and outputs.
    outputs = tf.numpy_function(
        _never_run, inputs, [tf.float32] * len(ranks), stateful=False, name=f"{DOMAIN}_{name}"
    )
    for output, rank in zip(outputs, ranks, strict=True):
        output.set_shape([None] * rank)
    return outputs


def _never_run(*inputs: Tensor) -> NoReturn:
    raise RuntimeError("this TensorFlow function can only be converted, not run.")
