"""Checks of the output of a command, and the continuation of unfinished runs."""

import os
from pathlib import Path
from typing import Any

from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.export.file_names import external_weights
from tfk_transformer.formats.compression import check_compression
from tfk_transformer.formats.output_file import OutputFile, unfinished_run
from tfk_transformer.formats.unfinished import content_digest


def check_output(output: Path | None, force: bool) -> None:
    """Refuse an output that exists, before any work.

    Args:
        output: the file. A pipe or a device may exist.
        force: whether a file or an unfinished run may be replaced.

    Raises:
        ValueError: if the output is a folder, or a file that may not be replaced.
        ImportError: if the package for its compression is not installed.
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
    """Return whether a run with `resume` is already complete, and check its output.

    Raises:
        ValueError: if the output must not be written, or the run cannot be resumed.
    """
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
    """Return the output of a run that can be resumed.

    Args:
        output: the file to write.
        resume: whether to continue an unfinished run, if one exists.
        run: the values that the results depend on, by name.

    Raises:
        ValueError: if the unfinished run has different values.
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
