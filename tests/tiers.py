"""The short tier of the tests, which leaves out those with the mark `long`, and all of them."""

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


class Tiers:
    """Leaves the long tests out, and ends the output with how many there were."""

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
