"""The processor seconds of each test: those of this process and those of programs it ran.

A test that takes more than `LIMIT` seconds carries the mark `long`, which leaves it out of the
short tier. Without the mark it is listed at the end of the run, and it fails from `TOLERANCE` times
the limit. Two things keep noise from failing a run:

- The limit holds for an idle machine like the one on which `REFERENCE` was measured. A process
  beside the tests (hyperthreads, caches) and a slower processor make all seconds longer, so the
  limit is multiplied by the time of a fixed computation, measured right after the test.
- A test must be over the limit by the tolerance. Between the two it is only listed.

Fixtures of a wider scope than a test, and what is made once a run, are work that tests share. Their
seconds are counted apart: which test pays depends on the order. `--processor-times=FILE` writes all
figures as JSON lines.
"""

import contextlib
import json
import resource
import statistics
import time
from collections.abc import Iterator

import pytest

LIMIT = 10.0
TOLERANCE = 2.0
REFERENCE = 0.045  # processor seconds of `_computation`: idle two-core AMD EPYC, Python 3.11

_programs = 0.0  # of programs whose time the system does not add to this process's children
_shared = (0.0, 0.0)
_inside_shared = False
_records: list[dict] = []


def used() -> tuple[float, float]:
    """Return the processor seconds of this process and of its programs that have ended."""
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime + _programs


def add_program(seconds: float) -> None:
    """Count a program that another process than this one started."""
    global _programs
    _programs += seconds


@contextlib.contextmanager
def shared(name: str) -> Iterator[None]:
    """Count what happens inside as work that tests share."""
    global _shared, _inside_shared
    if _inside_shared:
        yield
        return
    _inside_shared, before = True, used()
    try:
        yield
    finally:
        own, children = (after - start for after, start in zip(used(), before, strict=True))
        _shared = _shared[0] + own, _shared[1] + children
        _records.append({"name": name, "own": round(own, 3), "children": round(children, 3)})
        _inside_shared = False


@contextlib.contextmanager
def measured(item: pytest.Item) -> Iterator[None]:
    """Measure a test with its own fixtures; fail it if it takes too long without the mark."""
    before, before_shared, wall = used(), _shared, time.monotonic()
    yield
    wall = time.monotonic() - wall
    changes = zip(used(), before, _shared, before_shared, strict=True)
    own, children = (now - start - (apart - then) for now, start, apart, then in changes)
    long = item.get_closest_marker("long") is not None
    limit = LIMIT
    if own + children > limit and not long:
        limit *= max(1.0, slowness())
    figures = {"own": round(own, 3), "children": round(children, 3), "wall": round(wall, 3)}
    figures |= {"limit": round(limit, 1), "long": long, "shared": list(_records)}
    _records.clear()
    item.user_properties.append(("processor_seconds", figures))
    if own + children > TOLERANCE * limit and not long:
        pytest.fail(
            f"{item.nodeid} took {own + children:.1f} processor seconds ({own:.1f} in pytest's "
            f"process, {children:.1f} in programs); more than {limit:.1f} (here) need the mark "
            "`long`. Share its work with other tests (run_wide.made_once, forked_programs), make "
            "the work smaller, or add @pytest.mark.long and a comment that says why it takes long.",
            pytrace=False,
        )


def slowness() -> float:
    """Return how many times as long as on the idle machine of reference a computation takes now."""
    return statistics.median(_computation() for _ in range(5)) / REFERENCE


def _computation() -> float:
    """Return the processor seconds of a fixed computation."""
    start = time.process_time()
    # Like tracing, it makes objects and follows references, which caches shared with others slow.
    table = {str(number): [number] for number in range(60_000)}
    for number in range(60_000):
        table[str(number * 7919 % 60_000)].append(number)
    return time.process_time() - start


class Report:
    """The figures of all tests, in the process that prints the results."""

    def __init__(self, config: pytest.Config):
        path = config.getoption("processor_times")
        self._file = open(path, "w", encoding="utf-8") if path else None
        self._slow: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the figures that came with a test's last report."""
        figures = dict(report.user_properties).get("processor_seconds")
        if report.when != "teardown" or figures is None:
            return
        if self._file:
            self._file.write(json.dumps({"test": report.nodeid} | figures) + "\n")
            self._file.flush()
        seconds = figures["own"] + figures["children"]
        if seconds > figures["limit"] and not figures["long"]:
            self._slow.append(f"{seconds:6.1f} s  {report.nodeid}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the tests that are over the limit."""
        if self._slow:
            terminalreporter.section(f"over {LIMIT:.0f} processor seconds without the mark `long`")
            for line in sorted(self._slow, reverse=True):
                terminalreporter.line(line)

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()
