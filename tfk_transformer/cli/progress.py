"""The progress of a run over many lines, on standard error where it is a terminal."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from tfk_transformer.text_files.compression import count_lines


@contextlib.contextmanager
def progress_bar(input: Path | None, output: Path | None, done: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar with lines per second and the time left while the block runs, if standard error is a terminal.

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
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    total, begun = _total(input), time.monotonic()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("lines  {task.fields[pace]} "), TimeElapsedColumn())
    # Standard output may be a file: it is none of the bar's business.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task("", total=total, completed=done, pace="")

        def update(lines: int) -> None:
            bar.update(task, completed=lines, pace=pace(lines - done, time.monotonic() - begun, total and total - lines))

        yield update


def pace(lines: int, seconds: float, left: int | None) -> str:
    """Return lines per second and the time left, as the mean of this run: "250 lines/s, 0:01:12 left".

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
