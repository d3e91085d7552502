"""Freeze weights of a model, selected by names and patterns."""

import fnmatch
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.layers.crossentropy import MIN_LOG_PROB
from tfk_transformer.models.configured_model import ConfiguredModel

# Words that are not beginnings of weights' names, unlike "encoder" and "decoder".
GROUPS = {"embeddings": ("*_embedding/*", "*_positions/*")}
OUTPUT_BIAS = "output/bias"


def frozen_names(patterns: Sequence[str], weights: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names of the frozen weights, in the order of the model.

    An output bias that rules tokens out (-1e9, in imported models) is always frozen, since weight
    decay and moving averages would change it. Patterns are names of weights, beginnings of names up
    to a slash, patterns of `fnmatch`, or "embeddings". Each must match a weight, and a weight must
    be left to train.
    """
    matches = {pattern: _matching(pattern, weights) for pattern in patterns}
    if unknown := [pattern for pattern, names in matches.items() if not names]:
        raise ValueError(
            "freeze: expected names of weights, such as encoder or encoder/layer_0, got "
            f"{_with_nearest(unknown, weights)}"
        )
    selected = set().union(*matches.values())
    if OUTPUT_BIAS in weights and (weights[OUTPUT_BIAS] < MIN_LOG_PROB).any():
        selected.add(OUTPUT_BIAS)
    frozen = [name for name in weights if name in selected]
    if len(frozen) == len(weights):
        raise ValueError(
            f"freeze: expected at least one weight to train, got none: all {len(weights)} are "
            "frozen; freeze fewer."
        )
    return frozen


def frozen_line(model: ConfiguredModel, patterns: Sequence[str]) -> str | None:
    """Return a line about the weights that patterns froze in a model; None if there are none."""
    weights = model.named_weights
    frozen = {name: weight for name, weight in weights.items() if not weight.trainable}
    if not frozen:
        return None
    requested = set().union(*(_matching(pattern, weights) for pattern in patterns))
    added = [
        f"{name}, since some tokens are never predicted" for name in frozen if name not in requested
    ]
    frozen_size, size = (
        sum(math.prod(weight.shape) for weight in group.values()) for group in (frozen, weights)
    )
    return (
        f"frozen: {len(frozen)} of {len(weights)} weights, {frozen_size:,} of {size:,} "
        f"parameters: {', '.join([*patterns, *added])}"
    )


def _matching(pattern: str, names: Iterable[str]) -> set[str]:
    patterns = GROUPS.get(pattern, (pattern, f"{pattern}/*"))
    return {name for name in names if any(fnmatch.fnmatchcase(name, p) for p in patterns)}


def _with_nearest(unknown: Iterable[str], names: Iterable[str]) -> str:
    """Return unknown words, each with the most similar name or beginning of a name."""
    beginnings = (itertools.accumulate(name.split("/"), "{}/{}".format) for name in names)
    candidates = sorted({*GROUPS, *itertools.chain.from_iterable(beginnings)})
    return "; ".join(f"'{shorten(word)}'.{nearest(word, candidates)}" for word in unknown)
