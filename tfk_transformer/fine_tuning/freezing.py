"""Weights that training does not change, by names and patterns."""

import fnmatch
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.losses import NEVER
from tfk_transformer.models.base import ConfiguredModel

# Other words are the beginnings of names, as encoder and decoder are.
GROUPS = {"embeddings": ("*_embedding/*", "*_positions/*")}
OUTPUT_BIAS = "output/bias"


def frozen_names(patterns: Sequence[str], weights: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names of the weights that stay as they are, in the order of the model.

    An output bias that rules tokens out (-1e9, in imported models) is always among them: decay and
    moving averages would change it.

    Args:
        patterns: names of weights, beginnings of names up to a slash, patterns of `fnmatch`, or
            "embeddings".
        weights: the weights of the model by name.

    Raises:
        ValueError: if a pattern matches no weight, or if no weight is left to train.
    """
    chosen = {pattern: _matching(pattern, weights) for pattern in patterns}
    if unknown := [pattern for pattern, names in chosen.items() if not names]:
        raise ValueError(
            "freeze: expected names of weights, such as encoder or encoder/layer_0, got "
            f"{_with_nearest(unknown, weights)}"
        )
    silent = {name for name in (OUTPUT_BIAS,) if name in weights and (weights[name] < NEVER).any()}
    frozen = [name for name in weights if name in silent.union(*chosen.values())]
    if len(frozen) == len(weights):
        raise ValueError(
            f"freeze: expected at least one weight to train, got none: all {len(weights)} are "
            "frozen; freeze fewer."
        )
    return frozen


def freeze(model: ConfiguredModel, names: Iterable[str]) -> None:
    """Exclude weights of a model from training; call it before `compile`."""
    weights = model.named_weights
    for name in names:
        weights[name].trainable = False


def frozen_line(model: ConfiguredModel, patterns: Sequence[str]) -> str | None:
    """Return a line about the frozen weights of a model; None if there are none.

    Args:
        model: the model.
        patterns: those by which its weights were frozen.
    """
    weights = model.named_weights
    frozen = {name: weight for name, weight in weights.items() if not weight.trainable}
    if not frozen:
        return None
    asked = set().union(*(_matching(pattern, weights) for pattern in patterns))
    ruled_out = [
        f"{name}, since some tokens are never predicted" for name in frozen if name not in asked
    ]
    numbers = [
        sum(math.prod(weight.shape) for weight in some.values()) for some in (frozen, weights)
    ]
    what = ", ".join([*patterns, *ruled_out])
    return (
        f"frozen: {len(frozen)} of {len(weights)} weights, {numbers[0]:,} of {numbers[1]:,} "
        f"parameters: {what}"
    )


def _matching(pattern: str, names: Iterable[str]) -> set[str]:
    patterns = GROUPS.get(pattern, (pattern, f"{pattern}/*"))
    return {name for name in names if any(fnmatch.fnmatchcase(name, one) for one in patterns)}


def _with_nearest(unknown: Iterable[str], names: Iterable[str]) -> str:
    """Return unknown words, each with the most similar name or beginning of a name."""
    beginnings = {
        "/".join(parts)
        for name in names
        for parts in itertools.accumulate([part] for part in name.split("/"))
    }
    return "; ".join(
        f"'{shorten(word)}'.{nearest(word, sorted({*beginnings, *GROUPS}))}" for word in unknown
    )
