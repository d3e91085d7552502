"""The inputs and results of the decoding steps of a search, and what their logits mean."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
from keras import ops

from tfk_transformer.array_types import Tensor


class Step(NamedTuple):
    """The result of a decoding step."""

    logits: Tensor  # (B, M, vocab_size); for an ensemble, a list of logits
    # The KV cache, longer by one position of M beams; or the states of the M beams of SSRUs.
    cache: Tensor
    # float32 (B, M, S): to each source token, the mean of the last layer's heads. Without a source,
    # (B, M, 0).
    attention: Tensor


class Beams(NamedTuple):
    """The M hypotheses of each sentence that a decoding step extends."""

    ids: Tensor  # int32 (B, M, t+1), the start token first
    position: Tensor  # int32 (), t, the position of the last token
    # float32 (B, 1, M, (t+1)*M), additive: hides the cached positions that a beam does not descend
    # from.
    lineage: Tensor


class Stepper(NamedTuple):
    """The functions and tensors of a model for a search of encoded sources."""

    step: Callable[[Beams, Tensor, Tensor], Step]  # of beams, cache and memory
    # B -> the KV cache before the first step: tensors (B, …, 0, …) that grow along axis 2.
    first_cache: Callable[[Tensor], Tensor]
    memory: Tensor  # a structure of tensors (B, …); a step may be called with only some of the rows


def restrict_logits(stepper: Stepper, tokens: Tensor = None) -> Stepper:
    """Return a stepper whose logits (B, M, n) are of the tokens (n,); None for all tokens."""
    if tokens is None:
        return stepper

    def step(beams: Beams, cache: Tensor, memory: Tensor) -> Step:
        result = stepper.step(beams, cache, memory)
        return result._replace(logits=ops.take(result.logits, tokens, axis=2))

    return stepper._replace(step=step)


def mean_of(tensors: Sequence[Tensor]) -> Tensor:
    """Return the mean of tensors of one shape."""
    return (
        tensors[0] if len(tensors) == 1 else functools.reduce(operator.add, tensors) / len(tensors)
    )


def mean_log_probs(logits: Tensor) -> Tensor:
    """Return the log-probabilities of logits (…, vocab_size), float32; for a list, their mean."""
    return mean_of(
        [ops.log_softmax(ops.cast(part, "float32"), axis=-1) for part in keras.tree.flatten(logits)]
    )
