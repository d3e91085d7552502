"""Number words in two languages: an endless, exact and language-neutral supply of text pairs.

Every function is pure. The numbers 0 to 999,999 stand in one fixed pseudo-random order; the first 1,000 are the test split,
the next 1,000 the validation split, and the train split is every other number below 10,000 (short numbers are too rare in
the order to be learned from it) with the numbers that follow in the order, 60,000 in all.
"""

import random
from functools import lru_cache

from tfk_transformer.config.record import nearest
from tfk_transformer.datasets.optional import require

LIMIT = 1_000_000
HELD_OUT_SIZE = 1_000
TRAIN_SIZE = 60_000
ALWAYS_TRAINED_BELOW = 10_000
_ORDER_SEED = 1
_TRAIN_SEED = 2
_LANGUAGES_HINT = 'the list: python -c "import num2words; print(*num2words.CONVERTER_CLASSES)"'


def check_language(code: str) -> None:
    """Refuse a language that num2words does not know.

    Raises:
        ValueError: with the nearest known code and where the list is.
    """
    known = require("num2words", "num2words").CONVERTER_CLASSES
    if code not in known:
        raise ValueError(f"language: expected a code of num2words, got '{code}'.{nearest(code, known)} ({_LANGUAGES_HINT})")


@lru_cache(maxsize=2 * (TRAIN_SIZE + 2 * HELD_OUT_SIZE))  # one language pair: vocabulary, survey and batches each read it
def spell(number: int, language: str) -> str:
    """Return a number in words, such as "three hundred twenty-one" for 321 in "en".

    English is written without the "and" and the commas that num2words puts in: both vary among its writers, and one number
    should have one spelling.

    Raises:
        ValueError: if num2words cannot spell this number in this language.
    """
    num2words = require("num2words", "num2words").num2words
    try:
        text = num2words(number, lang=language).strip()
    # Not narrower: an incomplete converter raises whatever its arithmetic or its tables happen to raise.
    except Exception as error:
        raise ValueError(
            f"language '{language}': num2words cannot spell {number} ({type(error).__name__}: {error}); "
            f"choose another language ({_LANGUAGES_HINT})"
        ) from error
    return text.replace(", ", " ").replace(" and ", " ") if language.startswith("en") else text


@lru_cache(maxsize=1)
def numbers_by_split() -> dict[str, tuple[int, ...]]:
    """Return the numbers of train, validation and test in their order: 60,000, 1,000 and 1,000, no number twice."""
    order = sorted(range(LIMIT), key=_keys(_ORDER_SEED).__getitem__)
    held_out, rest = order[: 2 * HELD_OUT_SIZE], order[2 * HELD_OUT_SIZE :]
    short = [number for number in rest if number < ALWAYS_TRAINED_BELOW]
    long = [number for number in rest if number >= ALWAYS_TRAINED_BELOW]
    train = short + long[: TRAIN_SIZE - len(short)]
    train.sort(key=_keys(_TRAIN_SEED).__getitem__)
    return {"train": tuple(train), "validation": tuple(held_out[HELD_OUT_SIZE:]), "test": tuple(held_out[:HELD_OUT_SIZE])}


def _keys(seed: int) -> list[float]:
    """Return a random sort key for each number below LIMIT.

    Of the random module, Python promises the same values in every version for `random()` alone: not for `shuffle` or `sample`.
    """
    generator = random.Random(seed)
    return [generator.random() for _ in range(LIMIT)]
