"""The tensors that pass between an encoder, the steps of a decoder and the host program: their
names and shapes. All are float32.

The layers of an ensemble are numbered from the first of its first member to the last of its last.

N sources with one hypothesis each; S source tokens; P positions so far. Where the model puts tokens
before each source or target, S or P is what it reads: "1+S" is one such token and the source's.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfk_transformer.config.model_options import TokenConfig

# The settings that choose a token. The other search settings concern beams, or when to stop.
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
    """Return the outputs of an encoder, which each decoding step reads; none for a decoder-only
    model.
    """
    if config.architecture == "decoder":
        return {}
    length = _after(config.members[0].source_prefix, "S")
    return {**_layers(config, "memory", length), "source_mask": ("N", 1, 1, length)}


def cache_shapes(config: "TokenConfig", prefix: str = "", positions: str = "P") -> Shapes:
    """Return the KV cache that each decoding step reads, or with another prefix the one that it
    returns.
    """
    return _layers(config, f"{prefix}cache", _after(config.members[0].target_prefix, positions))


def _after(prefix: Sequence[int], length: str) -> str:
    """Return the letter of a length, with the number of tokens that the model puts before."""
    return f"{len(prefix)}+{length}" if prefix else length


def _layers(config: "TokenConfig", name: str, length: str) -> Shapes:
    layers = [member for member in config.members for _ in range(member.decoder_layers)]
    return {
        f"{name}_{i}_{part}": ("N", layer.num_heads, length, width)
        for i, layer in enumerate(layers)
        for part, width in (("key", layer.query_width), ("value", layer.value_width))
    }
