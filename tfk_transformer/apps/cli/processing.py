"""Processing of lines in chunks, and the handling of lines that cannot be processed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tfk_transformer.apps.cli.arguments import BadLines
from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.formats.lines import Line
from tfk_transformer.text.outcome import Outcome, Refused

CHUNK = 2000  # lines that are processed together, and written as one part of a compressed file


class Chunk(NamedTuple):
    """Lines that were processed together."""

    lines: list[Line]  # lines that are in the output
    bad: list[Line]  # lines that could not be processed
    total: int  # number of lines of all chunks so far
    complete: bool  # False if the command ends with an error after these lines


def process_lines(
    lines: Iterable[Line],
    run: Callable[..., Iterable[Outcome[Any]]],
    on_error: BadLines,
    chunk_size: int = CHUNK,
    earlier: tuple[int, int] = (0, 0),
) -> Iterator[Chunk]:
    """Process lines, and yield them in chunks.

    Each line has a result or, if `on_error` is `blank`, possibly a problem instead.

    Args:
        lines: the lines.
        run: maps the texts of several lines, or the texts of each of two files, to outcomes.
        on_error: the action for a line that cannot be processed.
        chunk_size: maximum number of lines that are processed together.
        earlier: the numbers of lines and of bad lines that an earlier run processed.

    Raises:
        ValueError: if there are no lines; or if a line cannot be processed and `on_error` is
            `stop`, after the previous lines are processed.
    """
    count, bad_count = earlier
    for chunk_lines, complete in _chunks(lines, on_error, chunk_size):
        done = _run_lines(chunk_lines, run)
        bad = [line for line in done if line.reason]
        if bad and on_error is BadLines.STOP:
            yield Chunk(done[: done.index(bad[0])], [], count, complete=False)
            raise ValueError(bad[0].problem)
        for line in bad:
            print_line(line.problem)
        count += len(done)
        bad_count += len(bad)
        output = [line for line in done if not line.reason or on_error is BadLines.BLANK]
        yield Chunk(output, bad, count, complete)
    if bad_count:
        action = "left out" if on_error is BadLines.SKIP else "left blank"
        print_line(f"{bad_count:,} of {count:,} lines could not be processed and were {action}.")
    if not count:
        raise ValueError("input: expected one sentence per line, got no lines.")


def _run_lines(lines: list[Line], run: Callable[..., Iterable[Outcome[Any]]]) -> list[Line]:
    """Process lines, and return each with its result or its problem."""
    done = dict(enumerate(lines))
    indices = [index for index, line in enumerate(lines) if not line.reason]
    if indices:
        columns = zip(*(lines[index].texts for index in indices), strict=True)
        for index, outcome in zip(indices, run(*columns), strict=True):
            line = lines[index]
            done[index] = (
                line.with_problem(*outcome)
                if isinstance(outcome, Refused)
                else line._replace(result=outcome)
            )
    return list(done.values())


def _chunks(
    lines: Iterable[Line], on_error: BadLines, size: int
) -> Iterator[tuple[list[Line], bool]]:
    """Yield lists of at most `size` lines, and whether each list is complete.

    A list is incomplete if it ends before a line that stops the command, or before a read error.
    """
    chunk: list[Line] = []
    try:
        for line in lines:
            if line.reason and on_error is BadLines.STOP:
                raise ValueError(line.problem)
            chunk.append(line)
            if len(chunk) == size:
                yield chunk, True
                chunk = []
    except (OSError, ValueError):
        if chunk:
            yield chunk, False
        raise
    if chunk:
        yield chunk, True
