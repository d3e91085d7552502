"""The short tier of the tests, which leaves out those with the mark `long`, parts of the long
tests, and all tests.
"""

import re
import zlib
from collections.abc import Collection, Mapping

import pytest

ALL = "./scripts/test --all"


def with_long(cases: Mapping[str, object], long: Collection[str]) -> list:
    """Return the values of cases as parameters of a test, with their names as ids; those of the
    names in `long` have the mark.
    """
    assert set(long) <= set(cases), set(long) - set(cases)
    return [
        pytest.param(value, id=name, marks=[pytest.mark.long] * (name in long))
        for name, value in cases.items()
    ]


def part(text: str) -> tuple[int, int]:
    """Return K and N of "K/N"."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise pytest.UsageError(
            f"--long: expected a part K/N of the long tests, such as 1/3, got '{text}'."
        )
    return int(match[1]), int(match[2])


class Tiers:
    """Leaves the long tests out, or all but a part of them, and ends the output with how many."""

    def __init__(self, config: pytest.Config):
        self._config = config
        self._left_out = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list) -> None:
        """Leave out long tests, unless options or the name of a test select tests."""
        named = config.getoption("markexpr") or any("::" in each for each in config.args)
        if config.getoption("all") or named:
            return
        long = [item for item in items if item.get_closest_marker("long")]
        if chosen := config.getoption("long"):
            number, parts = part(chosen)
            # A test stays in its part when other tests come and go.
            long = [item for item in long if zlib.crc32(item.nodeid.encode()) % parts != number - 1]
        if long:
            items[:] = [item for item in items if item not in long]
            config.hook.pytest_deselected(items=long)
            self._left_out = len(long)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self):
        """Write the last line; a process of pytest-xdist leaves that to the one that started it."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["left_out"] = self._left_out
        result = yield
        if self._left_out and not hasattr(self._config, "workeroutput"):
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            count = (
                "1 long test was" if self._left_out == 1 else f"{self._left_out} long tests were"
            )
            terminal.write_line(f"{count} left out; {ALL} runs them too.")
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        """Read the number of a process of pytest-xdist, each of which leaves out the same tests."""
        self._left_out = max(self._left_out, getattr(node, "workeroutput", {}).get("left_out", 0))
