"""Number words in two languages: exact text pairs that need no download.

Every function is pure. The numbers 0 to 999,999 have a fixed pseudo-random order. The first 1,000 are the test split, and the
next 1,000 are the validation split. The train split has 60,000 numbers: all others below 10,000 (short numbers would be too rare
to be learned otherwise), and the numbers that follow in the order.
"""

import random
from collections.abc import Mapping
from functools import lru_cache

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.optional import require

LIMIT = 1_000_000
HELD_OUT_SIZE = 1_000
TRAIN_SIZE = 60_000
ALWAYS_TRAINED_BELOW = 10_000
_ORDER_SEED = 1
_TRAIN_SEED = 2
_LANGUAGES_HINT = 'the list: python -c "import num2words; print(*num2words.CONVERTER_CLASSES)"'


def check_language(code: str) -> None:
    """Check that num2words knows a language.

    Raises:
        ValueError: if it does not, with the nearest known code and the location of the list.
    """
    known: Mapping[str, object] = require("num2words").CONVERTER_CLASSES
    if code not in known:
        raise ValueError(f"language: expected a code of num2words, got '{code}'.{nearest(code, known)} ({_LANGUAGES_HINT})")


@lru_cache(
    maxsize=2 * (TRAIN_SIZE + 2 * HELD_OUT_SIZE)
)  # for one language pair, which is read for the vocabulary, the survey and the batches
def spell(number: int, language: str) -> str:
    """Return a number in words, such as "three hundred twenty-one" for 321 in "en".

    English is written without the "and" and the commas of num2words, which versions of it use differently: a number must have only
    one spelling.

    Raises:
        ValueError: if num2words cannot spell this number in this language.
    """
    num2words = require("num2words").num2words
    try:
        text: str = num2words(number, lang=language).strip()
    # All exceptions: an incomplete converter of num2words may raise any of them.
    except Exception as error:
        raise ValueError(
            f"language '{language}': num2words cannot spell {number} ({type(error).__name__}: {error}); "
            f"choose another language ({_LANGUAGES_HINT})"
        ) from error
    return text.replace(", ", " ").replace(" and ", " ") if language.startswith("en") else text


@lru_cache(maxsize=1)
def numbers_by_split() -> dict[str, tuple[int, ...]]:
    """Return the 60,000, 1,000 and 1,000 numbers of train, validation and test in their order, without repetition."""
    order = sorted(range(LIMIT), key=_keys(_ORDER_SEED).__getitem__)
    held_out, rest = order[: 2 * HELD_OUT_SIZE], order[2 * HELD_OUT_SIZE :]
    short = [number for number in rest if number < ALWAYS_TRAINED_BELOW]
    long = [number for number in rest if number >= ALWAYS_TRAINED_BELOW]
    train = short + long[: TRAIN_SIZE - len(short)]
    train.sort(key=_keys(_TRAIN_SEED).__getitem__)
    return {"train": tuple(train), "validation": tuple(held_out[HELD_OUT_SIZE:]), "test": tuple(held_out[:HELD_OUT_SIZE])}


def _keys(seed: int) -> list[float]:
    """Return a random sort key for each number below LIMIT.

    Only `random()` is used, since Python guarantees the same values in all versions for no other function of the random module.
    """
    generator = random.Random(seed)
    return [generator.random() for _ in range(LIMIT)]
