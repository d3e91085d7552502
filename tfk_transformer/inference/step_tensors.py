"""Names and shapes of the float32 tensors that an encoder, decoder steps and the program exchange.

The layers of an ensemble are numbered from the first layer of the first member to the last layer of
the last member.

N is the number of sources with one hypothesis each, S the number of source tokens, and P the number
of positions so far. If the model puts tokens before each source or target, their number is part of
the length: "1+S" is one added token and S source tokens.
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfk_transformer.config.model_options import TokenConfig

# The settings for choosing a token. The other search settings concern beams and the end of the
# search.
STEP_SETTINGS = (
    "min_length",
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "repetition_penalty",
    "no_repeat_ngram_size",
)

Shapes = dict[str, tuple[int | str, ...]]  # letters stand for sizes known at run time


def memory_shapes(config: "TokenConfig") -> Shapes:
    """Return the outputs of an encoder, which each decoding step reads.

    A decoder-only model has no such outputs.
    """
    if config.architecture == "decoder":
        return {}
    length = _after(config.members[0].source_prefix, "S")
    return {**_layers(config, "memory", length), "source_mask": ("N", 1, 1, length)}


def cache_shapes(config: "TokenConfig", prefix: str = "", positions: str = "P") -> Shapes:
    """Return the KV cache that each decoding step reads.

    With the prefix "next_", return the cache that the step returns.
    """
    return _layers(config, f"{prefix}cache", _after(config.members[0].target_prefix, positions))


def _after(prefix: Sequence[int], length: str) -> str:
    """Return the letter of a length, with the number of tokens of the prefix before it."""
    return f"{len(prefix)}+{length}" if prefix else length


def _layers(config: "TokenConfig", name: str, length: str) -> Shapes:
    shapes: Shapes = {}
    layers = itertools.chain(*([member] * member.decoder_layers for member in config.members))
    for i, layer in enumerate(layers):
        shapes[f"{name}_{i}_key"] = ("N", layer.num_heads, length, layer.query_width)
        shapes[f"{name}_{i}_value"] = ("N", layer.num_heads, length, layer.value_width)
    return shapes
