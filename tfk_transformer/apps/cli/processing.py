"""The lines of the text commands: their input, their processing in chunks, and their output."""

import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from tfk_transformer.apps.cli.arguments import BadLines
from tfk_transformer.apps.cli.main import lock_output
from tfk_transformer.apps.cli.terminal import command_line, print_line, progress_bar
from tfk_transformer.export.file_names import external_weights
from tfk_transformer.formats import registry
from tfk_transformer.formats.compression import check_compression, compression, count_lines
from tfk_transformer.formats.lines import Line, LineReader, Texts
from tfk_transformer.formats.output_file import (
    OutputFile,
    UnfinishedRun,
    content_digest,
    unfinished_run,
)
from tfk_transformer.text.outcome import Outcome

CHUNK = 2000  # lines that are processed together, and written as one part of a compressed file
CHUNK_CHARACTERS = 2**24  # after which a chunk ends with fewer lines
PLAIN_TEXTS = Texts()


def input_lines(
    text: list[str] | None, input: Path | None, records: Texts = PLAIN_TEXTS
) -> Iterable[Line]:
    """Return the TEXT arguments of a command, or the lines of a file or of standard input."""
    if not text:
        return LineReader(input, records)
    if input is not None:
        raise ValueError("TEXT: expected sentences or --input, got both; leave out one of them.")
    blank = [number for number, sentence in enumerate(text, 1) if not sentence.strip()]
    if blank:
        raise ValueError(f"TEXT: expected sentences, got blank text at number {blank[0]}.")
    return (
        Line(("TEXT",), number, (sentence,), sentence) for number, sentence in enumerate(text, 1)
    )


def check_lines(path: Path | None, option: str, as_lines: bool, model: Path | None = None) -> None:
    """Refuse a document, whose lines are not texts; `model` could translate it as a whole."""
    suffix = "" if path is None or as_lines else registry.document_suffix(path)
    if not suffix:
        return
    cure = "write its texts to a .txt, .tsv or .jsonl file"
    if path and model and suffix in registry.DOCUMENT_SUFFIXES and not compression(path):
        words = ["tfk-transformer", "translate-document", str(model), str(path)]
        if path.suffix.lower() != suffix:
            words += ["--format", registry.DOCUMENT_SUFFIXES[suffix]]
        if "fields" in registry.DOCUMENT_FORMATS[registry.DOCUMENT_SUFFIXES[suffix]].options:
            words += ["--field", "NAME"]
        cure = f"run `{command_line(words)} --output FILE`"
    raise ValueError(
        f"{option}: expected a text in each line, got {path}, a {suffix} document; {cure}, or give "
        "--as-lines to read its lines as they are."
    )


def print_terminal_hint(text: list[str] | None, input: Path | None) -> None:
    """Print a hint to standard error if the input is read from a terminal."""
    if not text and input is None and sys.stdin.isatty():
        print_line("Reading one text per line from the terminal; Ctrl-D ends.")


def line_pairs(source: Path, target: Path) -> Iterator[Line]:
    """Yield the lines of two files, which have equally many lines, in pairs."""
    pairs = itertools.zip_longest(LineReader(source, PLAIN_TEXTS), LineReader(target, PLAIN_TEXTS))
    for number, (first, second) in enumerate(pairs, 1):
        if first is None or second is None:
            shorter, longer = (source, target) if first is None else (target, source)
            raise ValueError(
                f"{shorter}: expected a line for each line of {longer}, got {number - 1} lines."
            )
        outcome = first.outcome
        if second.reason and not first.reason:
            outcome = second.outcome._replace(argument="targets")
        files = (*first.files, *second.files)
        yield Line(files, number, (*first.texts, *second.texts), outcome=outcome)


class Chunk(NamedTuple):
    """Lines that were processed together."""

    lines: list[Line]  # lines that are in the output, with their outcomes
    bad: list[Line]  # lines that could not be processed
    total: int  # number of lines of all chunks so far
    is_complete: bool  # False if the command ends with an error after these lines


def write_results(
    lines: Iterable[Line],
    run: Callable[..., Iterable[Outcome[Any]]],
    output_lines: Callable[[Line], Iterable[str]],
    output: OutputFile | Path | None,
    on_error: BadLines,
    *,
    input: Path | None,
    quiet: bool,
    records: Texts = PLAIN_TEXTS,
) -> None:
    """Process lines of `input`, and write the results of each chunk; see `open_output`.

    `run` maps the texts of several lines, or of each of two files, to their outcomes.
    `output_lines` maps a line with its outcome to lines of the output, whose format is `records`. A
    `LineReader` continues after the lines that an earlier run has processed. No progress is shown
    if the output is printed to a terminal.
    """
    source = lines if isinstance(lines, LineReader) else None
    done = output.done if isinstance(output, OutputFile) else UnfinishedRun({})
    if source and done.lines:
        source.skip(done.lines, done.sha256)
    begun = bool(done.lines)
    quiet = quiet or (output is None and (input is None or sys.stdout.isatty()))
    total = None
    if not quiet and sys.stderr.isatty() and input is not None and input.is_file():
        with contextlib.suppress(OSError, ValueError):  # reported when the line is read
            # Counting lines takes a thousandth of the time that their translation takes.
            total = count_lines(input)
    bar = progress_bar("lines", quiet, total, done.lines)
    with bar as progress, open_output(output) as out:
        for chunk in process_lines(lines, run, on_error, earlier=(done.total, done.bad)):
            texts = list(itertools.chain.from_iterable(map(output_lines, chunk.lines)))
            if not begun and (chunk.lines or chunk.bad):
                if records.output_header is not None:
                    texts.insert(0, records.output_header)
                begun = True
            if isinstance(out, OutputFile):
                if texts or chunk.bad:  # otherwise, do not replace the files of an earlier run
                    out.write(texts, chunk.bad)
                if chunk.is_complete and source:
                    out.commit(source.lines, source.sha256, chunk.total)
            else:
                for text in texts:
                    print_line(text, out)
            progress(source.lines if source else chunk.total)


def process_lines(
    lines: Iterable[Line],
    run: Callable[..., Iterable[Outcome[Any]]],
    on_error: BadLines,
    chunk_size: int = CHUNK,
    earlier: tuple[int, int] = (0, 0),
) -> Iterator[Chunk]:
    """Process lines, and yield them in chunks, each line with its outcome.

    If a line cannot be read, or cannot be processed and `on_error` is `stop`, the lines before it
    are yielded, and then an error is raised. `earlier` are the numbers of lines and of bad lines
    that an earlier run processed.
    """
    count, bad_count = earlier
    lines = iter(lines)
    failure: Exception | None = None
    while failure is None:
        chunk: list[Line] = []
        characters = 0
        try:
            for line in itertools.islice(lines, chunk_size):
                if line.reason and on_error is BadLines.STOP:
                    raise ValueError(line.problem)
                chunk.append(line)
                characters += sum(map(len, (line.record or "", *line.texts)))
                if characters > CHUNK_CHARACTERS:
                    break
        except (OSError, ValueError) as error:
            failure = error
        if not chunk:
            break
        waiting = [line for line in chunk if not line.reason]
        columns = zip(*(line.texts for line in waiting), strict=True)
        outcomes = iter(run(*columns) if waiting else [])
        done = [line if line.reason else line._replace(outcome=next(outcomes)) for line in chunk]
        bad = [line for line in done if line.reason]
        if bad and on_error is BadLines.STOP:
            yield Chunk(done[: done.index(bad[0])], [], count, is_complete=False)
            raise ValueError(bad[0].problem)
        for line in bad:
            print_line(line.problem)
        count += len(done)
        bad_count += len(bad)
        output = [line for line in done if not line.reason or on_error is BadLines.BLANK]
        yield Chunk(output, bad, count, is_complete=failure is None)
    if failure:
        raise failure
    if bad_count:
        action = "left out" if on_error is BadLines.SKIP else "left blank"
        print_line(f"{bad_count:,} of {count:,} lines could not be processed and were {action}.")
    if not count:
        raise ValueError("input: expected one sentence per line, got no lines.")


def json_lines(values: Callable[[Line], dict[str, Any]]) -> Callable[[Line], list[str]]:
    """Return a format of the output: for each line, its values or its problem as JSON."""

    def output_lines(line: Line) -> list[str]:
        result = {"error": line.problem} if line.reason else values(line)
        return [json.dumps(result, ensure_ascii=False)]

    return output_lines


def model_digest(model: Path) -> str:
    """Return a hash of the files of a model."""
    files = [model]
    if model.is_file():
        files.append(model.with_name(external_weights(model.name)))
    return content_digest(*filter(Path.exists, files))


def check_output(output: Path | None, force: bool) -> None:
    """Lock an output, and refuse one that exists, except a pipe or a device, before any work."""
    lock_output(output, "--output")
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
    """Return whether a run reads a file and writes a file."""
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
    lock_output(output, "--output")
    check_compression(output)
    complete = unfinished_run(output) is None and output.is_file()
    if complete:
        print_line(
            f"{output} exists, and no run is unfinished: nothing to do. --force starts again."
        )
    return complete


@contextlib.contextmanager
def open_output(output: OutputFile | Path | None) -> Iterator[OutputFile | TextIO]:
    """Open standard output, a pipe or a device, or another path as an `OutputFile`.

    After an error, Ctrl-C or SIGTERM, a file is unchanged, and a message names the file that
    contains the finished lines.
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
        if count := out.done.written:
            lines = "1 finished line" if count == 1 else f"{count:,} finished lines"
            message = f"{out.partial} has the {lines}; {out.path} was not written."
            if out.committed:
                message += f" --resume continues after line {out.committed:,} of the input."
            print_line(message)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)
