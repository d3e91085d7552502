"""The progress of a command on standard error, where it is a terminal. Nothing of it goes to a pipe
or a file.

The library prints nothing: it logs its steps (INFO) and the texts of each batch (DEBUG, with `done`
and `total`), which are shown here.
"""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tfk_transformer.text_files.compression import count_lines

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

LIBRARY = logging.getLogger("tfk_transformer")


@contextlib.contextmanager
def progress_bar(
    input: Path | None, output: Path | None, done: int, quiet: bool
) -> Iterator[Callable[[int], None]]:
    """Show a bar with lines per second and the time left while the block runs, if standard error is
    a terminal.

    Lines that are printed to a terminal show the progress themselves.

    Args:
        input: the file whose lines are the total; None if the total is unknown.
        output: the file that is written; None for standard output.
        done: lines that an earlier run has read.
        quiet: whether to show nothing.

    Returns:
        A function that takes the number of lines that were read so far.
    """
    printed = output is None and (input is None or sys.stdout.isatty())
    if quiet or printed or not sys.stderr.isatty():
        yield lambda lines: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    total, begun, read = _total(input), time.monotonic(), done
    with _bar(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("lines  {task.fields[pace]} "),
        TimeElapsedColumn(),
    ) as bar:
        task = bar.add_task("", total=total, completed=done, pace="")

        def show(lines: int) -> None:
            bar.update(
                task,
                completed=lines,
                pace=pace(lines - done, time.monotonic() - begun, total and total - lines),
            )

        def update(lines: int) -> None:
            nonlocal read
            read = lines
            show(lines)

        def batch(record: logging.LogRecord) -> None:
            if hasattr(record, "done"):
                show(read + record.done)

        with _watched(batch):
            yield update


@contextlib.contextmanager
def steps(quiet: bool, verbose: bool) -> Iterator[Callable[[str], None]]:
    """Show the step that is running and its texts so far, if standard error is a terminal.

    Args:
        quiet: whether to show nothing.
        verbose: whether to print each step, with the time since the start, wherever standard error
            goes.

    Returns:
        A function that begins a step of the command. The steps that the library logs are shown too.
    """
    if quiet or not (verbose or sys.stderr.isatty()):
        yield lambda step: None
        return
    begun = time.monotonic()

    def line(step: str) -> str:
        return f"{time.monotonic() - begun:7.1f} s  {step}"

    def print_step(step: str) -> None:
        print(line(step), file=sys.stderr, flush=True)

    def print_logged(record: logging.LogRecord) -> None:
        if record.levelno >= logging.INFO:
            print_step(record.getMessage())

    if not sys.stderr.isatty():
        with _watched(print_logged):
            yield print_step
        return
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    with _bar(*columns, transient=True) as bar:
        task = bar.add_task("", total=None, count="")

        def show_step(step: str) -> None:
            bar.update(task, description=step, count="")
            if verbose:
                bar.console.print(line(step), markup=False)

        def show_logged(record: logging.LogRecord) -> None:
            if hasattr(record, "done") and hasattr(record, "total"):
                bar.update(task, count=f"{record.done:,} of {record.total:,}")
            elif record.levelno >= logging.INFO:
                show_step(record.getMessage())

        with _watched(show_logged):
            yield show_step


@contextlib.contextmanager
def _bar(*columns: "ProgressColumn", transient: bool = False) -> "Iterator[Progress]":
    """Show a bar on the terminal of standard error, even while `load_tensorflow` holds standard
    error back.
    """
    from rich.console import Console
    from rich.progress import Progress

    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding) as terminal:
        console = Console(file=terminal, highlight=False, soft_wrap=True)
        # Standard output may be a file: it is none of the bar's business.
        with Progress(*columns, console=console, redirect_stdout=False, transient=transient) as bar:
            yield bar


class _Passing(logging.Handler):
    """A handler that passes records to a function."""

    def __init__(self, show: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record to the function."""
        self._show(record)


@contextlib.contextmanager
def _watched(show: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Pass what the library logs to a function while the block runs."""
    handler, level, propagate = _Passing(show), LIBRARY.level, LIBRARY.propagate
    LIBRARY.addHandler(handler)
    LIBRARY.setLevel(logging.DEBUG)
    # Packages that an export imports add a handler to the root, which prints everything.
    LIBRARY.propagate = False
    try:
        yield
    finally:
        LIBRARY.removeHandler(handler)
        LIBRARY.setLevel(level)
        LIBRARY.propagate = propagate


def pace(lines: int, seconds: float, left: int | None) -> str:
    """Return lines per second and the time left, as the mean of this run: "250 lines/s, 0:01:12
    left".

    Args:
        lines: lines of this run.
        seconds: their time.
        left: lines to come, None if unknown.
    """
    if not lines or seconds <= 0:
        return ""
    rate = lines / seconds
    return f"{rate:,.{0 if rate >= 10 else 1}f} lines/s" + (
        "" if left is None else f", {timedelta(seconds=round(max(left, 0) / rate))} left"
    )


def _total(input: Path | None) -> int | None:
    """Count the lines of a file, which takes a thousandth of the time of translating them."""
    if input is None or not input.is_file():
        return None
    try:
        return count_lines(input)
    except (OSError, ValueError):  # named, with its place, when the lines are read
        return None
