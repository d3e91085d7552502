"""Exact text pairs that need no download: number words in two languages, and sums.

Numbers from 0 to 999,999 are drawn by their number of digits, as people type them, in a fixed
pseudo-random order. The train split has 60,000 pairs, 10,000 for each number of digits, so that
short numbers occur repeatedly. The test split and the validation split each have 1,000 numbers from
100 on that are in no other split, 100 of them with three digits.

Sums of two numbers of n digits, "083+917=" and "1000", are for a decoder-only model. Both numbers
are written with n digits and their sum with n + 1 digits, so that the position of a digit
determines its value. They are drawn without repetition.

Random orders use only `random()`, since Python guarantees the same values in all versions for no
other function of the random module.
"""

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.pairs import USUAL_SPLITS, Pair, Source, language_pair, spec_error
from tfk_transformer.runtime_environment import require

LIMIT = 1_000_000
NUMBERS_TRAIN_SIZE = 60_000
HELD_OUT = {1: 0, 2: 0, 3: 100, 4: 300, 5: 300, 6: 300}  # test numbers by number of digits
NUMBERS_HELD_OUT_SIZE = sum(HELD_OUT.values())
ADDITION_HELD_OUT_SIZE = 1_000
ADDITION_TRAIN_SIZE = 500_000
MAX_DIGITS = 9
_ORDER_SEED = 1
_SPLIT_SEED = 2
_LANGUAGES_HINT = 'the list: python -c "import num2words; print(*num2words.CONVERTER_CLASSES)"'


class NumberSource(Source):
    """The source behind `numbers:` and a language pair; words stay in RAM once they are read."""

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
    """Return the numbers of each split in order; those of train have repetitions."""
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
    generator = random.Random(seed)
    keys = [generator.random() for _ in numbers]
    return [numbers[index] for index in sorted(range(len(numbers)), key=keys.__getitem__)]


class AdditionSource(Source):
    """The source behind `addition:` and a number of digits."""

    splits = USUAL_SPLITS

    def __init__(self, spec: str, rest: str):
        if not re.fullmatch(f"[2-{MAX_DIGITS}]", rest):
            raise spec_error(spec, f"'{rest}' is not a number of digits from 2 to {MAX_DIGITS}.")
        super().__init__(spec)
        self.digits = int(rest)

    def _read(self, split: str) -> Iterator[Pair]:
        for number, problem in enumerate(problems_by_split(self.digits)[split], start=1):
            yield Pair(*write(problem, self.digits), f"{self.name} {split} {number}")


def write(problem: int, digits: int) -> tuple[str, str]:
    """Return the text of a problem and of its solution: ("83+09=", "092") for 8309 and 2 digits."""
    first, second = divmod(problem, 10**digits)
    return f"{first:0{digits}}+{second:0{digits}}=", f"{first + second:0{digits + 1}}"


@lru_cache(maxsize=2)
def problems_by_split(digits: int) -> dict[str, list[int]]:
    """Return the problems of each split: numbers of `2 * digits` digits, both of the sum."""
    limit = 100**digits
    held_out = ADDITION_HELD_OUT_SIZE
    count = min(limit, ADDITION_TRAIN_SIZE + 2 * held_out)
    generator = random.Random(digits)
    drawn: dict[int, None] = {}  # a set in the order of insertion
    while len(drawn) < count:
        drawn[int(generator.random() * limit)] = None
    problems = list(drawn)
    return {
        "train": problems[2 * held_out :],
        "validation": problems[held_out : 2 * held_out],
        "test": problems[:held_out],
    }
