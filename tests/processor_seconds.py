"""The processor seconds of each test: those of pytest's process and those of programs it ran.

At the end of a run, tests without the mark `long` that took more than `LIMIT` seconds are listed.
Fixtures of a wider scope than a test, and what is made once a run, are work that tests share. Their
seconds are counted apart: which test pays depends on the order. `--processor-times=FILE` writes all
figures as JSON lines.
"""

import contextlib
import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT = 10.0

# Set by forked_programs.py: a file with the seconds of each program that ran in a fork.
programs: Path | None = None
_start = 0.0
_shared = 0.0
_inside_shared = False
_figures: list[dict] = []


def used() -> float:
    """Return the processor seconds of this process and of its programs that have ended."""
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    forks = programs.read_text().split() if programs and programs.exists() else []
    times = (own.ru_utime, own.ru_stime, children.ru_utime, children.ru_stime)
    return sum(times) + sum(map(float, forks))


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Count the work inside as work that tests share."""
    global _shared, _inside_shared
    if _inside_shared:
        yield
        return
    _inside_shared, before = True, used()
    try:
        yield
    finally:
        _shared += used() - before
        _inside_shared = False


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """Count a fixture of a wider scope than a test as shared work."""
    with contextlib.nullcontext() if fixturedef.scope == "function" else shared():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Start to measure a test."""
    global _start, _shared
    _start, _shared = used(), 0.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the figures to the last report of a test, which pytest-xdist sends."""
    report = yield
    if call.when == "teardown":
        figures = {
            "test": item.nodeid,
            "seconds": round(used() - _start - _shared, 3),
            "shared": round(_shared, 3),
            "long": item.get_closest_marker("long") is not None,
        }
        report.user_properties.append(("processor_seconds", figures))
    return report


def pytest_runtest_logreport(report):
    """Keep the figures."""
    _figures.extend(value for name, value in report.user_properties if name == "processor_seconds")


def pytest_terminal_summary(terminalreporter, config):
    """Write the figures, and list the tests over the limit."""
    if path := config.getoption("processor_times"):
        lines = [json.dumps(figures) + "\n" for figures in _figures]
        Path(path).write_text("".join(lines), encoding="utf-8")
    over = [each for each in _figures if each["seconds"] > LIMIT and not each["long"]]
    if over:
        terminalreporter.section(f"over {LIMIT:g} processor seconds without the mark `long`")
    for figures in sorted(over, key=lambda each: -each["seconds"]):
        terminalreporter.line(f"{figures['seconds']:6.1f} s  {figures['test']}")
