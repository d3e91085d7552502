"""The processor seconds of each test: those of pytest's process and those of programs it ran.

At the end of a run, tests without the mark `long` that took more than `LIMIT` seconds are listed,
without their fixtures: which test pays for a shared fixture depends on the order.
`--processor-times=FILE` writes the seconds of each test and its fixtures as JSON lines.
"""

import itertools
import json
import os
from pathlib import Path

import forked_programs
import pytest

LIMIT = 10.0
_before = 0.0


def used() -> float:
    """Return the processor seconds of this process and of its programs that have ended."""
    return sum(os.times()[:4]) + forked_programs.processor_seconds()


def pytest_runtest_logstart():
    global _before
    _before = used()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Add its seconds to the report of a setup, call or teardown."""
    global _before
    report = yield
    now = used()
    report.processor_seconds, _before = now - _before, now
    return report


def pytest_terminal_summary(terminalreporter, config):
    """Write the seconds, and list the tests over the limit."""
    tests = {}
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if hasattr(report, "processor_seconds"):
            new = {"test": report.nodeid, "long": "long" in report.keywords}
            test = tests.setdefault(report.nodeid, new)
            test[report.when] = round(report.processor_seconds, 3)
    if path := config.getoption("processor_times"):
        Path(path).write_text("".join(json.dumps(test) + "\n" for test in tests.values()))
    over = [test for test in tests.values() if test.get("call", 0) > LIMIT and not test["long"]]
    if over:
        terminalreporter.section(f"over {LIMIT:g} processor seconds without the mark `long`")
    for test in sorted(over, key=lambda test: -test["call"]):
        terminalreporter.line(f"{test['call']:6.1f} s  {test['test']}")
