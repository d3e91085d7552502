"""The names, dtypes and shapes of the inputs and outputs of every function of a model.

Letters stand for sizes: N texts, S source tokens, T target tokens, C classes, n_best hypotheses of
each text, L layers and H heads of the decoder. P is the number of tokens of a prefix. There is one
prefix for all texts or one for each text. In decoding steps, P = T-1.
"""

from typing import TYPE_CHECKING, NamedTuple

from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.inference.step_tensors import STEP_SETTINGS, cache_shapes, memory_shapes

if TYPE_CHECKING:
    from tfk_transformer.config.model_options import TokenConfig


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
# the model; see `step_tensors`.
TOKENIZE = Signature((TEXT,), (SOURCE_IDS,))


def encode(config: "TokenConfig") -> Signature | None:
    """Return the signature of the encoder, or None for a decoder-only model."""
    memory = float32_tensors(memory_shapes(config))
    return Signature((SOURCE_IDS,), memory) if memory else None


def decoder_step(config: "TokenConfig") -> Signature:
    """Return the signature of a decoding step.

    A step takes the outputs of `encode` and a cache, and returns the cache of the next step.
    """
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


def float32_tensors(shapes: dict[str, tuple[str | int, ...]]) -> tuple[TensorSignature, ...]:
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
