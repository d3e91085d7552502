"""Text files with one sentence per line, plain or .gz, read line by line and checked before use.

Only the byte "\\n" ends a line: `str.splitlines` and Python's text mode also split at characters
that occur within sentences (U+2028, form feed, a single carriage return), which would misalign all
later sentences with their translations.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from tfk_transformer.datasets.pairs import Occurrences

_BAD_LINES_SHOWN = 10


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, without line ends and without a byte order mark.

    Raises:
        UnicodeDecodeError: (a ValueError) for bytes that are not UTF-8; `check_parallel` finds all
            of them beforehand.
        OSError: if the file cannot be read.
    """
    return (line.decode("utf-8") for line in _raw_lines(path))


def check_parallel(source: Path, target: Path) -> None:
    """Read both files once, line by line, and check them.

    Raises:
        ValueError: with all problems: a missing, unreadable or empty file, corrupt gzip, text that
            is not UTF-8, and unequal line counts.
    """
    source_count, source_problems = _check_file(source)
    target_count, target_problems = _check_file(target)
    problems = source_problems + target_problems
    if None not in (source_count, target_count) and source_count != target_count:
        problems.append(
            f"unequal line counts: {source} has {source_count}, {target} has {target_count}"
        )
    _refuse(problems)


def check_presence(source: Path, target: Path) -> None:
    """Check that both files exist, without reading them.

    Raises:
        ValueError: if a file is missing.
    """
    _refuse([f"{path}: not found" for path in (source, target) if not path.exists()])


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ValueError(f"expected two parallel text files, got: {'; '.join(problems)}.")


def _raw_lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
        for number, line in enumerate(file):
            start = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
            yield start.removesuffix(b"\n").rstrip(b"\r")


def _check_file(path: Path) -> tuple[int | None, list[str]]:
    """Return the number of lines, or None if the file cannot be read to its end, and problems."""
    # A pipe can be read only once, but the pairs are read again after this check.
    if path.exists() and not path.is_file():
        return None, [f"{path}: not a regular file"]
    bad = Occurrences(shown=_BAD_LINES_SHOWN)  # lines that are not UTF-8
    line_count = 0
    failure = ""
    try:
        for line_count, line in enumerate(_raw_lines(path), start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                bad.add(f"{path}:{line_count}")
    except (OSError, EOFError, zlib.error) as error:
        failure = _reading_problem(path, line_count, error)
    problems: list[str] = []
    if bad.count:
        lines = "line" if bad.count == 1 else "lines"
        more = bad.count - len(bad.locations)
        locations = ", ".join(bad.locations) + (f" … and {more} more" if more else "")
        problems = [f"{bad.count} {lines} not UTF-8 ({locations}); convert with iconv"]
    if failure:
        return None, [*problems, failure]
    return line_count, problems if line_count else [f"{path}: empty"]


def _reading_problem(path: Path, lines_read: int, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path}: not found"
    if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
        return f"{path}: corrupt gzip after line {lines_read} ({error})"
    return f"{path}: {getattr(error, 'strerror', None) or error}"
