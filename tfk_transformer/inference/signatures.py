"""The names, dtypes and shapes of the inputs and outputs of every function of a model.

Letters stand for sizes: N texts, S source tokens, T target tokens, C classes, n_best hypotheses of
each text, L layers and H heads of the decoder. P is the number of tokens of a prefix. There is one
prefix for all texts or one for each text. In decoding steps, P = T-1 is the number of positions so
far. "1+S" is S tokens after one that the model puts before each source.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tfk_transformer.config.search_settings import SETTING_DTYPES

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


class TensorSignature(NamedTuple):
    """An input or an output of an exported function."""

    name: str
    dtype: str  # "string", "int32" or "float32"
    shape: tuple[str | int, ...]  # letters stand for sizes known at run time


class Signature(NamedTuple):
    """The inputs and outputs of an exported function, in their order."""

    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]


TEXT = TensorSignature("text", "string", ("N",))
SOURCE_IDS = TensorSignature("source_ids", "int32", ("N", "S"))
SETTINGS = tuple(TensorSignature(name, dtype, ()) for name, dtype in SETTING_DTYPES.items())
PREFIX = TensorSignature("prefix", "string", ("1 or N",))
PREFIX_IDS = TensorSignature("prefix_ids", "int32", ("1 or N", "P"))
SCORES = TensorSignature("scores", "float32", ("N", "n_best"))

SERVING_DEFAULT = Signature(
    (TEXT,),
    (TensorSignature("translation", "string", ("N",)), TensorSignature("score", "float32", ("N",))),
)
TRANSLATE = Signature(
    (TEXT, PREFIX, *SETTINGS), (TensorSignature("translations", "string", ("N", "n_best")), SCORES)
)
GENERATE = Signature(
    (SOURCE_IDS, PREFIX_IDS, *SETTINGS),
    (TensorSignature("ids", "int32", ("N", "n_best", "T")), SCORES),
)

SOURCE = TensorSignature("source", "string", ("N",))
TARGET = TensorSignature("target", "string", ("N",))
TARGET_IDS = TensorSignature("target_ids", "int32", ("N", "T"))
LOG_PROBABILITY = TensorSignature("log_probability", "float32", ("N",))
TOKENS = TensorSignature("tokens", "string", ("N", "T"))
TOKEN_LOG_PROBS = TensorSignature("token_log_probs", "float32", ("N", "T"))
ATTENTION = TensorSignature("attention", "float32", ("N", "L", "H", "T", "S"))

SCORE = Signature((SOURCE, TARGET), (LOG_PROBABILITY, TOKENS, TOKEN_LOG_PROBS))
SCORE_IDS = Signature((SOURCE_IDS, TARGET_IDS), (TOKEN_LOG_PROBS, LOG_PROBABILITY))
ATTEND = Signature((SOURCE_IDS, TARGET_IDS), (ATTENTION,))
SCORE_AND_ATTEND = Signature(
    (SOURCE_IDS, TARGET_IDS), (TOKEN_LOG_PROBS, LOG_PROBABILITY, ATTENTION)
)

# The functions that every SavedModel of a translator has.
SAVED_MODEL = {
    "serving_default": SERVING_DEFAULT,
    "translate": TRANSLATE,
    "generate": GENERATE,
    "score": SCORE,
    "score_ids": SCORE_IDS,
    "attention": ATTEND,
}

# For hosts that run the decoding loop themselves. The shapes of the memory and the cache depend on
# the model.
TOKENIZE = Signature((TEXT,), (SOURCE_IDS,))


def encode(config: "TokenConfig") -> Signature | None:
    """Return the signature of the encoder, or None for a decoder-only model."""
    memory = float32_tensors(memory_shapes(config))
    return Signature((SOURCE_IDS,), memory) if memory else None


def decoder_step(config: "TokenConfig") -> Signature:
    """Return the signature of a step, from outputs of `encode` and a cache to the next cache."""
    inputs = (
        TARGET_IDS,
        *float32_tensors(memory_shapes(config)),
        *float32_tensors(cache_shapes(config)),
        *(TensorSignature(name, SETTING_DTYPES[name], ()) for name in STEP_SETTINGS),
    )
    outputs = (
        TensorSignature("logits", "float32", ("N", config.target_vocab_size)),
        TensorSignature("next_token", "int32", ("N",)),
        TensorSignature("log_prob", "float32", ("N",)),
        *float32_tensors(cache_shapes(config, "next_", "T")),
    )
    return Signature(inputs, outputs)


def memory_shapes(config: "TokenConfig") -> Shapes:
    """Return the outputs of an encoder, if there is one, which each decoding step reads.

    The layers of an ensemble are numbered from the first of the first member to the last of the
    last.
    """
    if not config.has_encoder:
        return {}
    length = _after(config.members[0].source_additions, "S")
    shapes: Shapes = {}
    for i, layer in enumerate(_layers(config)):
        shapes |= _key_value(layer, f"memory_{i}", length)
    return {**shapes, "source_mask": ("N", 1, 1, length)}


def cache_shapes(config: "TokenConfig", prefix: str = "", positions: str = "P") -> Shapes:
    """Return the KV cache that a decoding step reads, or with "next_" the one that it returns.

    An SSRU has one state in place of all positions: its tensor has min(P,1) positions.
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
    return itertools.chain(*([member] * member.decoder_layers for member in config.members))


def _key_value(layer: "TransformerConfig | LanguageModelConfig", name: str, length: str) -> Shapes:
    return {
        f"{name}_key": ("N", layer.num_heads, length, layer.query_width),
        f"{name}_value": ("N", layer.num_heads, length, layer.value_width),
    }


def float32_tensors(shapes: Shapes) -> tuple[TensorSignature, ...]:
    """Return float32 tensors of these names and shapes."""
    return tuple(TensorSignature(name, "float32", shape) for name, shape in shapes.items())


# The functions of a classifier.
LABEL = TensorSignature("label", "string", ("N",))
PROBABILITY = TensorSignature("probability", "float32", ("N",))
PROBABILITIES = TensorSignature("probabilities", "float32", ("N", "C"))

SERVING_LABEL = Signature((TEXT,), (LABEL, PROBABILITY))
CLASSIFY_TEXT = Signature((TEXT,), (LABEL, PROBABILITY, PROBABILITIES))
CLASSIFY_IDS = Signature((SOURCE_IDS,), (PROBABILITIES,))

CLASSIFIER_SAVED_MODEL = {
    "serving_default": SERVING_LABEL,
    "classify": CLASSIFY_TEXT,
    "probabilities": CLASSIFY_IDS,
}

# The functions that `Runtime.run` runs, except `encode` and `decoder_step`, whose shapes depend on
# the model.
FUNCTIONS = {
    "translate": TRANSLATE,
    "generate": GENERATE,
    "score_ids": SCORE_IDS,
    "attention": ATTEND,
    "score_and_attend": SCORE_AND_ATTEND,
    "tokenize": TOKENIZE,
    "classify": CLASSIFY_TEXT,
    "probabilities": CLASSIFY_IDS,
}
