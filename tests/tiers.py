"""Cases of which some are long tests."""

from collections.abc import Collection, Mapping

import pytest


def with_long(cases: Mapping[str, object], long: Collection[str]) -> list:
    """Return cases as parameters of a test; those that `long` names have the mark `long`."""
    assert set(long) <= set(cases), set(long) - set(cases)
    marks = {name: [pytest.mark.long] for name in long}
    return [pytest.param(case, id=name, marks=marks.get(name, [])) for name, case in cases.items()]
