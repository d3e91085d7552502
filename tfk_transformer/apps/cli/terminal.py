"""What the commands show: lines, reports, warnings, and their progress.

Texts of users and of files must not control the terminal. The library prints nothing. It logs its
steps (INFO) and the texts of each batch (DEBUG, with `done` and `total`), which appear on standard
error if it is a terminal.
"""

import contextlib
import json
import logging
import os
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from tfk_transformer.atomic_write import check_new, lock
from tfk_transformer.config.words import escape_controls
from tfk_transformer.runtime_environment import load_tensorflow

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

MIN_WIDTH = 40  # in columns; narrower tables would lose text
LIBRARY = logging.getLogger("tfk_transformer")


def print_line(line: str, file: TextIO | None = None, end: str = "\n") -> None:
    """Print a line at once, by default to standard error.

    Terminals and standard error get it without control characters, pipes and files unchanged.
    """
    file = file or sys.stderr
    if file is sys.stderr or file.isatty():
        line = escape_controls(line.removesuffix("\r")).replace("\n", "\\n")
    print(line, end=end, file=file, flush=True)


def console(stderr: bool = False) -> "Console":
    """Return a console for the texts of users and of files: without markup, controls escaped."""
    from rich.console import Console  # only for the commands that print with it
    from rich.text import Text

    class EscapingConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(escape_controls(text), **options)

    shown = EscapingConsole(
        stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False
    )
    shown.width = max(shown.width, MIN_WIDTH)
    return shown


def print_report(report: Mapping[str, Any], lines: Iterable[Any], as_json: bool) -> None:
    """Print the result of a command as JSON, or as lines or tables for people."""
    if as_json:
        print(json.dumps(report, indent=2))
        return
    for line in lines:
        console().print(line)


def command_line(words: Sequence[str]) -> str:
    """Quote words for the system's shell."""
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


@contextlib.contextmanager
def plain_warnings(category: type[Warning]) -> Iterator[None]:
    """Print each warning of a category in this block as a line of standard error."""
    show_others = warnings.showwarning

    def show(message: Warning | str, shown: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(shown, category):
            print_line(f"warning: {message}")
        else:
            show_others(message, shown, *rest, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", category)
        warnings.showwarning = cast(Any, show)
        yield


@contextlib.contextmanager
def progress_bar(
    unit: str, quiet: bool, total: int | None = None, done: int = 0, transient: bool = False
) -> Iterator[Callable[..., None]]:
    """Show a count, its pace and the time left, if standard error is a terminal.

    An earlier run has counted `done`. Yields a function that takes the count so far, and possibly
    another total and a description. The texts of the current batches are added to the count; they
    are also the total if it is 0. None is an unknown total.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda *values: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    start = time.monotonic()
    counted = done
    text, speed = TextColumn("{task.description}"), TextColumn(f"{unit}  {{task.fields[pace]}} ")
    columns = (text, BarColumn(), MofNCompleteColumn(), speed, TimeElapsedColumn())
    with _bar(*columns, transient=transient) as bar:
        task = bar.add_task("", total=total, completed=done, pace="")

        def show(count: int, total: int | None) -> None:
            left = total and total - count
            speed = pace(count - done, time.monotonic() - start, left)
            bar.update(task, completed=count, total=total, pace=speed)

        def update(count: int, new_total: int | None = total, description: str = "") -> None:
            nonlocal counted, total
            counted, total = count, new_total
            bar.update(task, description=description)
            show(count, total)

        def show_batch(record: logging.LogRecord) -> None:
            nonlocal counted
            if hasattr(record, "done") and hasattr(record, "total"):
                count = counted + record.done
                known = total or counted + record.total
                show(count, total if total is None else max(count, known))
                counted += record.total if record.done == record.total else 0

        with _log_passed_to(show_batch):
            yield update


@contextlib.contextmanager
def steps(quiet: bool, verbose: bool) -> Iterator[Callable[[str], None]]:
    """Show the steps that the library logs, and those that the yielded function begins.

    A terminal shows the current step and its number of texts. With `verbose`, each step is printed
    with the time since the start.
    """
    if quiet or not (verbose or sys.stderr.isatty()):
        yield LIBRARY.info
        return
    start = time.monotonic()

    def line(step: str) -> str:
        return f"{time.monotonic() - start:7.1f} s  {step}"

    if not sys.stderr.isatty():

        def print_logged(record: logging.LogRecord) -> None:
            if record.levelno >= logging.INFO:
                print_line(line(record.getMessage()))

        with _log_passed_to(print_logged):
            yield LIBRARY.info
        return
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    ascii_only = not sys.stderr.encoding.lower().startswith("utf")
    columns = (
        SpinnerColumn("line" if ascii_only else "dots"),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    with _bar(*columns, transient=True) as bar:
        task = bar.add_task("", total=None, count="")

        def show(record: logging.LogRecord) -> None:
            if hasattr(record, "done") and hasattr(record, "total"):
                bar.update(task, count=f"{record.done:,} of {record.total:,}")
            elif record.levelno >= logging.INFO:
                step = escape_controls(record.getMessage())
                bar.update(task, description=step, count="")
                if verbose:
                    bar.console.print(line(step), markup=False)

        with _log_passed_to(show):
            yield LIBRARY.info


@contextlib.contextmanager
def new_folder(out: Path, quiet: bool, verbose: bool) -> Iterator[Callable[[str], None]]:
    """Lock a folder that the block writes with TensorFlow; see `steps`."""
    with lock(out), steps(quiet, verbose) as begin:
        check_new(out)  # another run may have just ended
        begin("load TensorFlow")
        load_tensorflow()
        yield begin


@contextlib.contextmanager
def _bar(*columns: "ProgressColumn", transient: bool = False) -> "Iterator[Progress]":
    """Show a bar on the terminal, even while `load_tensorflow` suppresses standard error."""
    from rich.console import Console
    from rich.progress import Progress

    with os.fdopen(
        os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors=sys.stderr.errors
    ) as terminal:
        console = Console(file=terminal, highlight=False, soft_wrap=True)
        # The bar is drawn on standard error. Standard output may be a file.
        with Progress(*columns, console=console, redirect_stdout=False, transient=transient) as bar:
            yield bar


@contextlib.contextmanager
def _log_passed_to(show: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Pass the log records of the library to a function while the block runs."""
    handler = logging.Handler()
    handler.emit = show  # type: ignore[assignment,method-assign]
    level, propagate = LIBRARY.level, LIBRARY.propagate
    LIBRARY.addHandler(handler)
    LIBRARY.setLevel(logging.DEBUG)
    # Packages that an export imports add a handler to the root logger that prints all records.
    LIBRARY.propagate = False
    try:
        yield
    finally:
        LIBRARY.removeHandler(handler)
        LIBRARY.setLevel(level)
        LIBRARY.propagate = propagate


def pace(count: int, seconds: float, left: int | None) -> str:
    """Return "250/s, 0:01:12 left" for a count in some seconds, and the count that is left."""
    if not count or seconds <= 0:
        return ""
    rate = count / seconds
    time_left = "" if left is None else f", {timedelta(seconds=round(max(left, 0) / rate))} left"
    return f"{rate:,.{0 if rate >= 10 else 1}f}/s{time_left}"
