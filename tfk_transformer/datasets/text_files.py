"""Text files, a sentence a line, plain or .gz: streamed line by line, and checked before use.

Lines end at the byte "\\n" and nowhere else: `str.splitlines` and Python's text mode also split at characters that stand
inside sentences (U+2028, form feed, a lone carriage return), and would shift every later sentence against its translation.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BAD_LINES_SHOWN = 10


def lines(path: Path) -> Iterator[str]:
    """Stream the lines of a UTF-8 file, without line ends and without a byte order mark.

    Raises:
        ValueError: (UnicodeDecodeError) for bytes that are not UTF-8; `check_parallel` finds them all beforehand.
        OSError: for a file that cannot be read.
    """
    return (line.decode("utf-8") for line in _raw_lines(path))


def check_parallel(source: Path, target: Path) -> None:
    """Read both files once, streaming, and refuse them with every problem found.

    Raises:
        ValueError: for a file missing, unreadable, empty, of a corrupt .gz or not UTF-8, and for unequal line counts.
    """
    checks = [_check_file(source), _check_file(target)]
    problems = [problem for check in checks for problem in check.problems]
    counts = [check.line_count for check in checks]
    if None not in counts and counts[0] != counts[1]:
        problems.append(f"unequal line counts: {source} has {counts[0]}, {target} has {counts[1]}")
    if problems:
        raise ValueError(f"expected two parallel text files, got: {'; '.join(problems)}.")


def _raw_lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
        for number, line in enumerate(file):
            start = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
            yield start.removesuffix(b"\n").rstrip(b"\r")


@dataclass
class _FileCheck:
    """What one pass over a file found; line_count is None if the file could not be read to its end."""

    line_count: int | None = None
    problems: list[str] = field(default_factory=list)


@dataclass
class _Reading:
    """How far a pass has come, and the lines that are not UTF-8: the number of them, and the first ten."""

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
        more = f" … and {self.bad_count - len(self.first_bad)} more" if self.bad_count > len(self.first_bad) else ""
        return [f"{self.bad_count} line{'' if self.bad_count == 1 else 's'} not UTF-8 ({places}{more}); convert with iconv"]


def _check_file(path: Path) -> _FileCheck:
    # A pipe could be read only once, and the pairs are read after this check.
    if path.exists() and not path.is_file():
        return _FileCheck(problems=[f"{path}: not a regular file"])
    reading = _Reading(path)
    try:
        reading.run()
    except (OSError, EOFError, zlib.error) as error:
        return _FileCheck(problems=reading.problems() + [_reading_problem(path, reading.line_count, error)])
    return _FileCheck(reading.line_count, reading.problems() if reading.line_count else [f"{path}: empty"])


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
