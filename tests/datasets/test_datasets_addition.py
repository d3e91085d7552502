import pytest

from tfk_transformer.datasets import load
from tfk_transformer.datasets.numbers import problems_by_split, write


@pytest.mark.parametrize(
    ("problem", "digits", "pair"),
    [
        (0, 2, ("00+00=", "000")),
        (8309, 2, ("83+09=", "092")),
        (9999, 2, ("99+99=", "198")),
        (1234567890, 5, ("12345+67890=", "080235")),
    ],
)
def test_write_problem_and_sum(problem, digits, pair):
    assert write(problem, digits) == pair


def test_two_digit_splits_cover_all():
    splits = problems_by_split(2)
    assert {name: len(problems) for name, problems in splits.items()} == {
        "train": 8_000,
        "validation": 1_000,
        "test": 1_000,
    }
    assert sorted(problem for problems in splits.values() for problem in problems) == list(
        range(10_000)
    )


def test_long_problems_are_distinct():
    splits = problems_by_split(5)
    together = [problem for problems in splits.values() for problem in problems]
    assert len(together) == len(set(together)) == 502_000
    assert 0 <= min(together) < 10**5 < 10**10 - 10**5 < max(together) < 10**10


def test_problems_are_reproducible():
    assert [write(problem, 5) for problem in problems_by_split(5)["test"][:2]] == [
        ("62290+16948=", "079238"),
        ("74178+69892=", "144070"),
    ]
    pairs = [(pair.source, pair.target, pair.where) for pair in load("addition:2").pairs("test")]
    assert pairs[:2] == [
        ("95+60=", "155", "addition:2 test 1"),
        ("94+78=", "172", "addition:2 test 2"),
    ]
    assert all(
        sum(map(int, source.rstrip("=").split("+"))) == int(target) for source, target, _ in pairs
    )
