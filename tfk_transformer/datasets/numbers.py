"""Number words in two languages: exact text pairs that need no download.

Numbers from 0 to 999,999 are drawn by their number of digits, as people type them, in a fixed
pseudo-random order. The train split has 60,000 pairs, 10,000 for each number of digits, so that
short numbers occur repeatedly. The test split and the validation split each have 1,000 numbers from
100 on that are in no other split, 100 of them with three digits.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.pairs import USUAL_SPLITS, Pair, Source, language_pair
from tfk_transformer.runtime_environment import require

LIMIT = 1_000_000
NUMBERS_TRAIN_SIZE = 60_000
HELD_OUT = {1: 0, 2: 0, 3: 100, 4: 300, 5: 300, 6: 300}  # test numbers by number of digits
NUMBERS_HELD_OUT_SIZE = sum(HELD_OUT.values())
_ORDER_SEED = 1
_SPLIT_SEED = 2
_LANGUAGES_HINT = 'the list: python -c "import num2words; print(*num2words.CONVERTER_CLASSES)"'


class NumberSource(Source):
    """The source behind `numbers:` and a language pair: number words in two languages.

    They are spelled when they are read, at about 6,000 pairs per second, and stay in RAM.
    """

    splits = USUAL_SPLITS

    def __init__(self, spec: str, rest: str):
        languages = language_pair(spec, rest)
        for language in languages:
            check_language(language)
        super().__init__(spec, *languages)

    def _read(self, split: str) -> Iterator[Pair]:
        for index, number in enumerate(numbers_by_split()[split], start=1):
            yield Pair(
                spell(number, self.source_language),
                spell(number, self.target_language),
                f"{self.name} {split} {index}",
            )


def check_language(code: str) -> None:
    """Check that num2words knows a language."""
    converters: Mapping[str, object] = require("num2words").CONVERTER_CLASSES
    if code not in converters:
        raise ValueError(
            f"language: expected a code of num2words, got '{code}'.{nearest(code, converters)} "
            f"({_LANGUAGES_HINT})"
        )


# The cache has the size of one language pair, which is read for the vocabulary, the survey and the
# batches.
@lru_cache(maxsize=2 * (NUMBERS_TRAIN_SIZE + 2 * NUMBERS_HELD_OUT_SIZE))
def spell(number: int, language: str) -> str:
    """Return a number in words, such as "three hundred twenty-one" for 321 in "en".

    English has no "and" and no commas, since versions of num2words use them differently, and a
    number must have only one spelling.
    """
    num2words = require("num2words").num2words
    try:
        text: str = num2words(number, lang=language).strip()
    # An incomplete converter of num2words may raise any exception.
    except Exception as error:
        raise ValueError(
            f"language '{language}': num2words cannot spell {number} ({type(error).__name__}: "
            f"{error}); choose another language ({_LANGUAGES_HINT})"
        ) from error
    return text.replace(", ", " ").replace(" and ", " ") if language.startswith("en") else text


@lru_cache(maxsize=1)
def numbers_by_split() -> dict[str, tuple[int, ...]]:
    """Return the numbers of each split in order.

    Train has 60,000 numbers, with repetitions. Validation and test have 1,000 numbers each.
    """
    order = _shuffle(range(LIMIT), _ORDER_SEED)
    splits: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    for digits, held_out in HELD_OUT.items():
        numbers = [number for number in order if len(str(number)) == digits]
        splits["test"] += numbers[:held_out]
        splits["validation"] += numbers[held_out : 2 * held_out]
        splits["train"] += itertools.islice(
            itertools.cycle(numbers[2 * held_out :]), NUMBERS_TRAIN_SIZE // len(HELD_OUT)
        )
    return {split: tuple(_shuffle(numbers, _SPLIT_SEED)) for split, numbers in splits.items()}


def _shuffle(numbers: Sequence[int], seed: int) -> list[int]:
    """Return the numbers in a random order.

    Only `random()` is used, since Python guarantees the same values in all versions for no other
    function of the random module.
    """
    generator = random.Random(seed)
    keys = [generator.random() for _ in numbers]
    return [numbers[index] for index in sorted(range(len(numbers)), key=keys.__getitem__)]
