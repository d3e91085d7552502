"""Generated sums of two numbers of n digits, for a decoder-only model: "083+917=" and "1000".

Both numbers are written with n digits and their sum with n + 1 digits, so that the position of a
digit determines its value. The problems are drawn at random without repetition: 1,000 for testing,
1,000 for validation, and up to 500,000 for training.
"""

import random
import re
from collections.abc import Iterator
from functools import lru_cache

from tfk_transformer.datasets.pairs import USUAL_SPLITS, Pair, Source, spec_error

ADDITION_HELD_OUT_SIZE = 1_000
ADDITION_TRAIN_SIZE = 500_000
MAX_DIGITS = 9


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
    """Return the problems of each split without repetition.

    A problem is a number of `2 * digits` digits: both numbers of the sum.
    """
    limit = 100**digits
    held_out = ADDITION_HELD_OUT_SIZE
    problems = _draw_distinct(min(limit, ADDITION_TRAIN_SIZE + 2 * held_out), limit, seed=digits)
    return {
        "train": problems[2 * held_out :],
        "validation": problems[held_out : 2 * held_out],
        "test": problems[:held_out],
    }


def _draw_distinct(count: int, limit: int, seed: int) -> list[int]:
    """Draw `count` different numbers below `limit`.

    Only `random()` is used, since Python guarantees the same values in all versions for no other
    function of the random module.
    """
    generator = random.Random(seed)
    numbers: dict[int, None] = {}  # a set in the order of insertion
    while len(numbers) < count:
        numbers[int(generator.random() * limit)] = None
    return list(numbers)
