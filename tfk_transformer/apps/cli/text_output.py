"""The output of a command: its checks, its end, and the continuation of unfinished runs."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.export.file_names import external_weights
from tfk_transformer.formats.compression import check_compression
from tfk_transformer.formats.lines import one_line
from tfk_transformer.formats.output_file import OutputFile, content_digest, unfinished_run


def check_output(output: Path | None, force: bool) -> None:
    """Refuse an output that exists, before any work, except a pipe or a device.

    With `force`, a file or an unfinished run may be replaced.
    """
    check_compression(output)
    if output is not None and output.is_dir():
        raise ValueError(f"output: expected a file, got the folder {output}; name a file in it.")
    if output is None or force:
        return
    if done := unfinished_run(output):
        raise ValueError(
            f"--output: expected no unfinished run, got an unfinished run for {output} after "
            f"{done.lines:,} lines of its input; continue it with `translate --resume`, or start "
            "again with --force."
        )
    # A link may lead to a pipe or a device.
    if output.is_file() or (output.is_symlink() and not output.exists()):
        raise ValueError(
            f"--output: expected a new file, got {output}, which exists; give another name, or "
            "--force to replace it."
        )


def is_resumable(input: Path | None, output: Path | None) -> bool:
    """Return whether a run can be resumed: it reads a file and writes a file."""
    return (
        input is not None
        and input.is_file()
        and output is not None
        and (output.is_file() or not os.path.lexists(output))
    )


def nothing_to_resume(input: Path | None, output: Path | None, resume: bool, force: bool) -> bool:
    """Return whether a run with `resume` is already complete, and check its output."""
    if resume and not is_resumable(input, output):
        raise ValueError(
            "--resume: expected --input and --output with the names of files; give both."
        )
    if not resume or output is None:
        check_output(output, force)
        return False
    check_compression(output)
    complete = unfinished_run(output) is None and output.is_file()
    if complete:
        print_line(
            f"{output} exists, and no run is unfinished: nothing to do. --force starts again."
        )
    return complete


def resumable_output(output: Path, resume: bool, run: dict[str, Any]) -> OutputFile:
    """Return the output of a run, which depends on the values `run` and can be resumed.

    With `resume`, it continues the unfinished run with the same values, if there is one.
    """
    done = unfinished_run(output) if resume else None
    if done:
        done.check_run(run)
        done = done._replace(run=run)
    return OutputFile(output, run, done)


def model_digest(model: Path) -> str:
    """Return a hash of a model: a folder, or a file and the file of its weights."""
    weights = [model.with_name(external_weights(model.name))] if model.is_file() else []
    return content_digest(*(path for path in (model, *weights) if path.exists()))


@contextlib.contextmanager
def open_output(output: OutputFile | Path | None) -> Iterator[OutputFile | TextIO]:
    """Open an output.

    A path becomes an `OutputFile`, unless it is a pipe or a device. None is standard output. After
    an error, Ctrl-C or SIGTERM, the file is unchanged, and a message names the file that contains
    the finished lines.
    """
    if output is None:
        yield sys.stdout
        return
    if isinstance(output, Path) and output.exists() and not output.is_file():  # pipe or device
        with output.open("w", encoding="utf-8") as file:
            yield file
        return
    out = output if isinstance(output, OutputFile) else OutputFile(output)
    # SIGTERM raises `SystemExit`, with the status that a shell reports for the signal.
    previous = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with out:
            yield out
    except BaseException:
        _print_finished_lines(out)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


def _print_finished_lines(out: OutputFile) -> None:
    """Print the name of the file with the finished lines of a run that ends with an error."""
    count = out.done.written
    if count:
        lines = "1 finished line" if count == 1 else f"{count:,} finished lines"
        hint = (
            f" --resume continues after line {out.committed:,} of the input."
            if out.committed
            else ""
        )
        print_line(f"{out.partial} has the {lines}; {out.path} was not written.{hint}")


def write_lines(lines: Iterable[str], output: Path) -> None:
    """Write lines to a file, which appears when all lines are written."""
    with open_output(output) as out:
        if isinstance(out, OutputFile):
            out.write(map(one_line, lines))
        else:
            for line in lines:
                print_line(line, out)
