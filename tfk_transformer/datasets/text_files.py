"""Text files with one sentence per line, plain or .gz, which are read line by line and checked
before use.

Only the byte "\\n" ends a line: `str.splitlines` and Python's text mode also split at characters
that occur within sentences (U+2028, form feed, a single carriage return), which would misalign all
later sentences with their translations.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

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
    checks = [_check_file(source), _check_file(target)]
    problems = [problem for check in checks for problem in check.problems]
    counts = [check.line_count for check in checks]
    if None not in counts and counts[0] != counts[1]:
        problems.append(f"unequal line counts: {source} has {counts[0]}, {target} has {counts[1]}")
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


@dataclass
class _FileCheck:
    """The result of one pass over a file; line_count is None if the file could not be read to its
    end.
    """

    line_count: int | None = None
    problems: list[str] = field(default_factory=list)


@dataclass
class _Reading:
    """The state of a pass: the number of lines, and the number and first ten of those that are not
    UTF-8.
    """

    path: Path
    line_count: int = 0
    bad_count: int = 0
    first_bad: list[int] = field(default_factory=list)

    def run(self) -> None:
        for line in _raw_lines(self.path):
            self.line_count += 1
            if not _is_utf8(line):
                self.bad_count += 1
                self.first_bad += [self.line_count] if self.bad_count <= _BAD_LINES_SHOWN else []

    def problems(self) -> list[str]:
        if not self.bad_count:
            return []
        places = ", ".join(f"{self.path}:{number}" for number in self.first_bad)
        more = (
            f" … and {self.bad_count - len(self.first_bad)} more"
            if self.bad_count > len(self.first_bad)
            else ""
        )
        return [
            (
                f"{self.bad_count} line{'' if self.bad_count == 1 else 's'} not UTF-8 "
                f"({places}{more}); convert with iconv"
            )
        ]


def _check_file(path: Path) -> _FileCheck:
    # A pipe can be read only once, but the pairs are read again after this check.
    if path.exists() and not path.is_file():
        return _FileCheck(problems=[f"{path}: not a regular file"])
    reading = _Reading(path)
    try:
        reading.run()
    except (OSError, EOFError, zlib.error) as error:
        return _FileCheck(
            problems=reading.problems() + [_reading_problem(path, reading.line_count, error)]
        )
    return _FileCheck(
        reading.line_count, reading.problems() if reading.line_count else [f"{path}: empty"]
    )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _reading_problem(path: Path, lines_read: int, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path}: not found"
    if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
        return f"{path}: corrupt gzip after line {lines_read} ({error})"
    return f"{path}: {getattr(error, 'strerror', None) or error}"
