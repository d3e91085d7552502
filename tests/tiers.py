"""The short tier of the tests, which leaves out those with the mark `long`, and parts of the long
tests. The end of a run says what was left out and why.
"""

import collections
import re
import zlib
from collections.abc import Collection, Mapping

import pytest

_left_out = 0


def with_long(cases: Mapping[str, object], long: Collection[str]) -> list:
    """Return the values of cases as parameters of a test, with their names as ids; those of the
    names in `long` have the mark.
    """
    assert set(long) <= set(cases), set(long) - set(cases)
    return [
        pytest.param(value, id=name, marks=[pytest.mark.long] * (name in long))
        for name, value in cases.items()
    ]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out long tests, unless options or the name of a test select tests."""
    global _left_out
    named = config.getoption("markexpr") or any("::" in each for each in config.args)
    if config.getoption("all") or named:
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if chosen := config.getoption("long"):
        part = re.fullmatch(r"(\d+)/(\d+)", chosen)
        if not part or not 1 <= int(part[1]) <= int(part[2]):
            raise pytest.UsageError(f"--long: expected a part K/N, such as 1/3, got '{chosen}'.")
        k, n = map(int, part.groups())
        # A test stays in its part when other tests come and go.
        left_out = [item for item in left_out if zlib.crc32(item.nodeid.encode()) % n != k - 1]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
    _left_out = len(left_out)


def pytest_sessionfinish(session):
    """In a process of pytest-xdist, send the number to the process that prints it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = _left_out


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Receive the number, which is the same from all processes."""
    global _left_out
    _left_out = getattr(node, "workeroutput", {}).get("left_out", _left_out)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    """Print the number of long tests that were left out, and that of skipped tests by reason."""
    skipped = collections.Counter(
        report.longrepr[2].removeprefix("Skipped: ").partition(": No module")[0]
        for report in terminalreporter.stats.get("skipped", [])
    )
    if _left_out or skipped:
        terminalreporter.section("left out")
    if _left_out:
        terminalreporter.line(f"{_left_out:5}  long: ./scripts/test --all runs them too")
    for reason, count in skipped.most_common():
        terminalreporter.line(f"{count:5}  {reason}")
