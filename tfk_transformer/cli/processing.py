"""Lines that are processed in chunks, and what happens to those that cannot be processed."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tfk_transformer.cli.arguments import BadLines
from tfk_transformer.inference.text_errors import results_and_refusals
from tfk_transformer.text_files.lines import Line

# Lines that are processed together, and that are written as one part of a compressed file.
CHUNK = 2000


class Chunk(NamedTuple):
    """Lines that were processed together."""

    lines: list[Line]  # those with a place in the output
    bad: list[Line]  # those that could not be processed
    total: int  # lines of all chunks so far
    complete: bool  # False if the command ends with an error after these lines


def processed(
    lines: Iterable[Line],
    run: Callable[..., Iterable[Any]],
    on_error: BadLines,
    together: int = CHUNK,
    before: tuple[int, int] = (0, 0),
) -> Iterator[Chunk]:
    """Yield the lines in chunks, each line with its result, or with its problem where `on_error`
    keeps a place for it.

    Args:
        lines: the lines.
        run: maps the texts of several lines, or the texts of each of two files, to results.
        on_error: what to do with a line that cannot be processed.
        together: lines that are processed together.
        before: lines that an earlier run processed, and how many of them it could not process.

    Raises:
        ValueError: if a line cannot be processed and `on_error` is `stop`, after the lines before
            it; if there is no line.
    """
    count, bad = before
    for given, complete in _chunks(lines, on_error, together):
        done = _run_once(given, run)
        problems = [line for line in done if line.reason]
        if problems and on_error is BadLines.STOP:
            yield Chunk(done[: done.index(problems[0])], [], count, complete=False)
            raise ValueError(problems[0].problem)
        for line in problems:
            print(line.problem, file=sys.stderr, flush=True)
        count, bad = count + len(done), bad + len(problems)
        kept = [line for line in done if not line.reason or on_error is BadLines.BLANK]
        yield Chunk(kept, problems, count, complete)
    if bad:
        where = "left out" if on_error is BadLines.SKIP else "left blank"
        print(
            f"{bad:,} of {count:,} lines could not be processed and were {where}.", file=sys.stderr
        )
    if not count:
        raise ValueError("input: expected a sentence a line, got nothing.")


def _run_once(lines: list[Line], run: Callable[..., Iterable[Any]]) -> list[Line]:
    """Process lines, and return each with its result or its problem."""
    done = dict(enumerate(lines))
    given = [number for number, line in done.items() if not line.reason]
    if given:
        results, refusals = results_and_refusals(
            run, *zip(*(done[number].texts for number in given), strict=True)
        )
        done |= {given[i]: done[given[i]]._replace(result=result) for i, result in results.items()}
        done |= {given[i]: done[given[i]].refused(*refusal) for i, refusal in refusals.items()}
    return list(done.values())


def _chunks(
    lines: Iterable[Line], on_error: BadLines, size: int
) -> Iterator[tuple[list[Line], bool]]:
    """Yield the lines in lists of at most `size`, and whether the list is complete.

    The lines before one that stops the command, or before an error of reading, are an incomplete
    list.
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
