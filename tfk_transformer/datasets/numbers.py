"""Number words in two languages: exact text pairs that need no download.

Every function is pure. Numbers from 0 to 999,999 are drawn by their number of digits, as people
type them, and in a fixed pseudo-random order. The train split has 60,000 pairs, 10,000 for each
number of digits, so that short numbers occur repeatedly. The test split has 1,000 numbers from 100
on that are in no other split, 100 of them with three digits; so has the validation split.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.optional import require

LIMIT = 1_000_000
NUMBERS_TRAIN_SIZE = 60_000
# How many numbers the test split has, by number of digits.
HELD_OUT = {1: 0, 2: 0, 3: 100, 4: 300, 5: 300, 6: 300}
NUMBERS_HELD_OUT_SIZE = sum(HELD_OUT.values())
_ORDER_SEED = 1
_SPLIT_SEED = 2
_LANGUAGES_HINT = 'the list: python -c "import num2words; print(*num2words.CONVERTER_CLASSES)"'


def check_language(code: str) -> None:
    """Check that num2words knows a language.

    Raises:
        ValueError: if it does not, with the nearest known code and the location of the list.
    """
    known: Mapping[str, object] = require("num2words").CONVERTER_CLASSES
    if code not in known:
        raise ValueError(
            f"language: expected a code of num2words, got '{code}'.{nearest(code, known)} "
            f"({_LANGUAGES_HINT})"
        )


@lru_cache(
    maxsize=2 * (NUMBERS_TRAIN_SIZE + 2 * NUMBERS_HELD_OUT_SIZE)
)  # for one language pair, which is read for the vocabulary, the survey and the batches
def spell(number: int, language: str) -> str:
    """Return a number in words, such as "three hundred twenty-one" for 321 in "en".

    English is written without the "and" and the commas of num2words, which versions of it use
    differently: a number must have only one spelling.

    Raises:
        ValueError: if num2words cannot spell this number in this language.
    """
    num2words = require("num2words").num2words
    try:
        text: str = num2words(number, lang=language).strip()
    # All exceptions: an incomplete converter of num2words may raise any of them.
    except Exception as error:
        raise ValueError(
            f"language '{language}': num2words cannot spell {number} ({type(error).__name__}: "
            f"{error}); "
            f"choose another language ({_LANGUAGES_HINT})"
        ) from error
    return text.replace(", ", " ").replace(" and ", " ") if language.startswith("en") else text


@lru_cache(maxsize=1)
def numbers_by_split() -> dict[str, tuple[int, ...]]:
    """Return the 60,000, 1,000 and 1,000 numbers of train, validation and test in their order;
    those of train with repetition.
    """
    order = _shuffled(range(LIMIT), _ORDER_SEED)
    train: list[int] = []
    validation: list[int] = []
    test: list[int] = []
    for digits, held_out in HELD_OUT.items():
        numbers = [number for number in order if len(str(number)) == digits]
        test += numbers[:held_out]
        validation += numbers[held_out : 2 * held_out]
        train += itertools.islice(
            itertools.cycle(numbers[2 * held_out :]), NUMBERS_TRAIN_SIZE // len(HELD_OUT)
        )
    splits = {"train": train, "validation": validation, "test": test}
    return {split: tuple(_shuffled(numbers, _SPLIT_SEED)) for split, numbers in splits.items()}


def _shuffled(numbers: Sequence[int], seed: int) -> list[int]:
    """Return the numbers in a random order.

    Only `random()` is used, since Python guarantees the same values in all versions for no other
    function of the random module.
    """
    generator = random.Random(seed)
    keys = [generator.random() for _ in numbers]
    return [numbers[place] for place in sorted(range(len(numbers)), key=keys.__getitem__)]
