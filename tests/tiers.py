"""Cases of which some are in the long tests, which only `--all` and `--long K/N` run."""

from collections.abc import Collection, Mapping

import pytest


def with_long(cases: Mapping[str, object], long: Collection[str]) -> list:
    """Return the values of cases as parameters of a test, with their names as ids; those of the
    names in `long` have the mark.
    """
    assert set(long) <= set(cases), set(long) - set(cases)
    return [
        pytest.param(value, id=name, marks=[pytest.mark.long] * (name in long))
        for name, value in cases.items()
    ]
