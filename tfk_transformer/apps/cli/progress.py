"""The progress of a command, shown on standard error if it is a terminal.

The library prints nothing. It logs its steps (INFO) and the texts of each batch (DEBUG, with `done`
and `total`). This module shows these records.
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

from tfk_transformer.apps.cli.arguments import check_new_folder
from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.atomic_write import lock
from tfk_transformer.config.words import escape_controls
from tfk_transformer.formats.compression import count_lines
from tfk_transformer.runtime_environment import load_tensorflow

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

LIBRARY = logging.getLogger("tfk_transformer")


@contextlib.contextmanager
def progress_bar(
    input: Path | None, output: Path | None, done: int, quiet: bool
) -> Iterator[Callable[[int], None]]:
    """Show the lines per second and the time left, if standard error is a terminal.

    Nothing is shown if the output, by default standard output, is printed to a terminal. The lines
    of `input` are the total, of which an earlier run has read `done`. Yields a function that takes
    the number of lines that were read so far.
    """
    printed = output is None and (input is None or sys.stdout.isatty())
    if quiet or printed or not sys.stderr.isatty():
        yield lambda lines: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    total = None
    with contextlib.suppress(OSError, ValueError):  # reported with its line when the file is read
        # Counting lines takes a thousandth of the time that their translation takes.
        total = count_lines(input) if input is not None and input.is_file() else None
    start = time.monotonic()
    read = done
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
                pace=pace(lines - done, time.monotonic() - start, total and total - lines),
            )

        def update(lines: int) -> None:
            nonlocal read
            read = lines
            show(lines)

        def show_batch(record: logging.LogRecord) -> None:
            if hasattr(record, "done"):
                show(read + record.done)

        with _log_passed_to(show_batch):
            yield update


@contextlib.contextmanager
def steps(quiet: bool, verbose: bool) -> Iterator[Callable[[str], None]]:
    """Show the current step and its number of texts so far, if standard error is a terminal.

    With `verbose`, each step is printed with the time since the start, to any standard error.
    Yields a function that begins a step of the command. Steps that the library logs are also shown.
    """
    if quiet or not (verbose or sys.stderr.isatty()):
        yield lambda step: None
        return
    start = time.monotonic()

    def line(step: str) -> str:
        return f"{time.monotonic() - start:7.1f} s  {step}"

    if not sys.stderr.isatty():

        def print_logged(record: logging.LogRecord) -> None:
            if record.levelno >= logging.INFO:
                print_line(line(record.getMessage()))

        with _log_passed_to(print_logged):
            yield lambda step: print_line(line(step))
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

        def show_step(step: str) -> None:
            step = escape_controls(step)
            bar.update(task, description=step, count="")
            if verbose:
                bar.console.print(line(step), markup=False)

        def show_logged(record: logging.LogRecord) -> None:
            if hasattr(record, "done") and hasattr(record, "total"):
                bar.update(task, count=f"{record.done:,} of {record.total:,}")
            elif record.levelno >= logging.INFO:
                show_step(record.getMessage())

        with _log_passed_to(show_logged):
            yield show_step


@contextlib.contextmanager
def new_folder(out: Path, quiet: bool, verbose: bool) -> Iterator[Callable[[str], None]]:
    """Lock a folder that the block writes with TensorFlow, and show the steps."""
    with lock(out), steps(quiet, verbose) as begin:
        check_new_folder(out)  # another run may have just ended
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


def pace(lines: int, seconds: float, left: int | None) -> str:
    """Return the mean speed and the time left: "250 lines/s, 0:01:12 left".

    `lines` are those that this run has read in `seconds`; `left` is None if it is unknown.
    """
    if not lines or seconds <= 0:
        return ""
    rate = lines / seconds
    time_left = "" if left is None else f", {timedelta(seconds=round(max(left, 0) / rate))} left"
    return f"{rate:,.{0 if rate >= 10 else 1}f} lines/s{time_left}"
