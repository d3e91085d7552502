"""The names, dtypes and shapes of every exported function, in one place.

N texts, S source tokens, T target tokens, C classes; n_best hypotheses a text. P tokens of a prefix, one for all texts or one
for each; of steps, P = T-1. L layers and H heads of the decoder.
"""

from typing import NamedTuple

from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.inference.step_tensors import STEP_SETTINGS, cache_shapes, memory_shapes


class Tensor(NamedTuple):
    """An input or an output."""

    name: str
    dtype: str  # "string", "int32" or "float32"
    shape: tuple  # letters stand for sizes known at run time


class Signature(NamedTuple):
    """An exported function."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


TEXT = Tensor("text", "string", ("N",))
SOURCE_IDS = Tensor("source_ids", "int32", ("N", "S"))
SETTINGS = tuple(Tensor(name, dtype, ()) for name, dtype in SETTING_DTYPES.items())
PREFIX = Tensor("prefix", "string", ("1 or N",))
PREFIX_IDS = Tensor("prefix_ids", "int32", ("1 or N", "P"))
SCORES = Tensor("scores", "float32", ("N", "n_best"))

SERVING_DEFAULT = Signature((TEXT,), (Tensor("translation", "string", ("N",)), Tensor("score", "float32", ("N",))))
TRANSLATE = Signature((TEXT, PREFIX, *SETTINGS), (Tensor("translations", "string", ("N", "n_best")), SCORES))
GENERATE = Signature((SOURCE_IDS, PREFIX_IDS, *SETTINGS), (Tensor("ids", "int32", ("N", "n_best", "T")), SCORES))

SOURCE, TARGET = Tensor("source", "string", ("N",)), Tensor("target", "string", ("N",))
TARGET_IDS = Tensor("target_ids", "int32", ("N", "T"))
LOG_PROBABILITY = Tensor("log_probability", "float32", ("N",))
TOKENS, TOKEN_LOG_PROBS = Tensor("tokens", "string", ("N", "T")), Tensor("token_log_probs", "float32", ("N", "T"))
ATTENTION = Tensor("attention", "float32", ("N", "L", "H", "T", "S"))

SCORE = Signature((SOURCE, TARGET), (LOG_PROBABILITY, TOKENS, TOKEN_LOG_PROBS))
SCORE_IDS = Signature((SOURCE_IDS, TARGET_IDS), (TOKEN_LOG_PROBS, LOG_PROBABILITY))
ATTEND = Signature((SOURCE_IDS, TARGET_IDS), (ATTENTION,))
SCORE_AND_ATTEND = Signature((SOURCE_IDS, TARGET_IDS), (TOKEN_LOG_PROBS, LOG_PROBABILITY, ATTENTION))

SAVED_MODEL = {
    "serving_default": SERVING_DEFAULT,
    "translate": TRANSLATE,
    "generate": GENERATE,
    "score": SCORE,
    "score_ids": SCORE_IDS,
    "attention": ATTEND,
}

# For hosts that loop themselves: what passes between encoder, steps and host depends on the model's sizes, see `step_tensors`.
TOKENIZE = Signature((TEXT,), (SOURCE_IDS,))


def encode(config) -> Signature | None:
    """Return the signature of an encoder; None of a model without one."""
    memory = _float32(memory_shapes(config))
    return Signature((SOURCE_IDS,), memory) if memory else None


def decoder_step(config) -> Signature:
    """Return the signature of a decoder's step, which takes what `encode` gives, and gives the cache of the next step."""
    settings = tuple(Tensor(name, SETTING_DTYPES[name], ()) for name in STEP_SETTINGS)
    cache, grown = _float32(cache_shapes(config)), _float32(cache_shapes(config, "next_", "T"))
    logits = Tensor("logits", "float32", ("N", config.target_vocab_size))
    chosen = (Tensor("next_token", "int32", ("N",)), Tensor("log_prob", "float32", ("N",)))
    inputs = (Tensor("target_ids", "int32", ("N", "T")), *_float32(memory_shapes(config)), *cache, *settings)
    return Signature(inputs, (logits, *chosen, *grown))


def _float32(shapes: dict[str, tuple]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name, "float32", shape) for name, shape in shapes.items())


# Of a classifier.
LABEL, PROBABILITY = Tensor("label", "string", ("N",)), Tensor("probability", "float32", ("N",))
PROBABILITIES = Tensor("probabilities", "float32", ("N", "C"))

SERVING_LABEL = Signature((TEXT,), (LABEL, PROBABILITY))
CLASSIFY_TEXT = Signature((TEXT,), (LABEL, PROBABILITY, PROBABILITIES))
CLASSIFY_IDS = Signature((SOURCE_IDS,), (PROBABILITIES,))

CLASSIFIER_SAVED_MODEL = {"serving_default": SERVING_LABEL, "classify": CLASSIFY_TEXT, "probabilities": CLASSIFY_IDS}
