"""The processor seconds of each test: those of pytest's process and those of programs it ran.

At the end of a run, tests without the mark `long` that took more than `LIMIT` seconds are listed,
without their fixtures: which test pays for a shared fixture depends on the order.
`--processor-times=FILE` writes the seconds of each test and its fixtures as JSON lines.
"""

import json
import resource
from pathlib import Path

import pytest

LIMIT = 10.0

# Set by forked_programs.py: a file with the seconds of each program that ran in a fork.
programs: Path | None = None
_tests: dict[str, dict] = {}
_before = 0.0


def used() -> float:
    """Return the processor seconds of this process and of its programs that have ended."""
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    forks = programs.read_text().split() if programs and programs.exists() else []
    times = (own.ru_utime, own.ru_stime, children.ru_utime, children.ru_stime)
    return sum(times) + sum(map(float, forks))


def pytest_runtest_logstart():
    global _before
    _before = used()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Add the seconds of the setup, call or teardown of a test, for the process that prints."""
    global _before
    report = yield
    now = used()
    long = item.get_closest_marker("long") is not None
    report.user_properties += [("seconds", round(now - _before, 3)), ("long", long)]
    _before = now
    return report


def pytest_runtest_logreport(report):
    properties = dict(report.user_properties)
    if "seconds" in properties:
        test = _tests.setdefault(report.nodeid, {"test": report.nodeid, "long": properties["long"]})
        test[report.when] = properties["seconds"]


def pytest_terminal_summary(terminalreporter, config):
    """Write the seconds, and list the tests over the limit."""
    if path := config.getoption("processor_times"):
        lines = [json.dumps(test) + "\n" for test in _tests.values()]
        Path(path).write_text("".join(lines), encoding="utf-8")
    over = [test for test in _tests.values() if test.get("call", 0) > LIMIT and not test["long"]]
    if over:
        terminalreporter.section(f"over {LIMIT:g} processor seconds without the mark `long`")
    for test in sorted(over, key=lambda test: -test["call"]):
        terminalreporter.line(f"{test['call']:6.1f} s  {test['test']}")
