"""Names and shapes of the float32 tensors that an encoder, decoder steps and the program exchange.

The layers of an ensemble are numbered from the first layer of the first member to the last layer of
the last member.

N is the number of sources with one hypothesis each, S the number of source tokens, and P the number
of positions so far. An SSRU has one state in place of all positions: its tensor has min(P,1)
positions. If the model puts tokens before each source or target, their number is part of
the length: "1+S" is one added token and S source tokens.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfk_transformer.config.model_options import (
        LanguageModelConfig,
        TokenConfig,
        TransformerConfig,
    )

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
    if not config.has_encoder:
        return {}
    length = _after(config.members[0].source_additions, "S")
    shapes: Shapes = {}
    for i, layer in enumerate(_layers(config)):
        shapes |= _key_value(layer, f"memory_{i}", length)
    return {**shapes, "source_mask": ("N", 1, 1, length)}


def cache_shapes(config: "TokenConfig", prefix: str = "", positions: str = "P") -> Shapes:
    """Return the KV cache that each decoding step reads.

    With the prefix "next_", return the cache that the step returns.
    """
    length = _after(config.members[0].target_prefix, positions)
    shapes: Shapes = {}
    for i, layer in enumerate(_layers(config)):
        name = f"{prefix}cache_{i}"
        if layer.has_ssru:
            shapes[f"{name}_state"] = ("N", 1, f"min({positions},1)", layer.model_dim)
        else:
            shapes |= _key_value(layer, name, length)
    return shapes


def _after(prefix: Sequence[int], length: str) -> str:
    """Return the letter of a length, with the number of tokens of the prefix before it."""
    return f"{len(prefix)}+{length}" if prefix else length


def _layers(config: "TokenConfig") -> "Iterator[TransformerConfig | LanguageModelConfig]":
    """Return the configuration of each decoder layer."""
    return itertools.chain(*([member] * member.decoder_layers for member in config.members))


def _key_value(layer: "TransformerConfig | LanguageModelConfig", name: str, length: str) -> Shapes:
    return {
        f"{name}_key": ("N", layer.num_heads, length, layer.query_width),
        f"{name}_value": ("N", layer.num_heads, length, layer.value_width),
    }
