"""The lines of a file or of standard input, and the result or the problem of each."""

import codecs
import contextlib
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tfk_transformer.formats.compression import open_decompressed
from tfk_transformer.formats.records import Texts


class Line(NamedTuple):
    """A line of the input, or a line of each of two files, and its result or problem."""

    files: tuple[str, ...]  # the name of each file
    number: int  # from 1
    texts: tuple[str, ...] = ()
    record: str | None = None  # the whole line; the text may be a part of it
    bad_file: str = ""  # the file whose line cannot be processed
    reason: str = ""  # why it cannot be processed
    result: Any = None  # of a processed line

    @property
    def problem(self) -> str:
        """FILE:NUMBER: reason, or an empty string if the line can be processed."""
        return f"{self.bad_file}:{self.number}: {self.reason}" if self.reason else ""

    def with_problem(self, argument: str, reason: str) -> "Line":
        """Return this line with its problem.

        Args:
            argument: the argument that the text was passed as; "targets" is the second file.
            reason: what is wrong.
        """
        bad_file = self.files[-1 if argument == "targets" else 0]
        return self._replace(bad_file=bad_file, reason=reason)


def decode_line(data: bytes) -> str:
    """Return the text of a line without its line end.

    Raises:
        ValueError: if the line is not UTF-8.
    """
    try:
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected UTF-8, got byte 0x{data[error.start]:02x} at column {error.start + 1}."
        ) from None


class LineReader:
    """Read the lines of a file or of standard input, and count and hash them.

    Only the byte "\\n" ends a line. A byte order mark at the start is left out.

    Args:
        path: the file, plain or compressed by its name; None for standard input.
        records: the format of the lines.
    """

    def __init__(self, path: Path | None, records: Texts) -> None:
        self.name = "standard input" if path is None else str(path)
        self.lines = 0  # lines that were read
        self._path = path
        self._records = records
        self._digest = hashlib.sha256()
        self._data = self._read()
        self._begun = False

    @property
    def sha256(self) -> str:
        """The hash of all bytes that were read, decompressed."""
        return self._digest.hexdigest()

    def skip(self, lines: int, sha256: str) -> None:
        """Read the lines that an earlier run has processed.

        Args:
            lines: the number of lines.
            sha256: the hash of these lines.

        Raises:
            ValueError: if the lines have changed.
        """
        self._begin()
        while self.lines < lines and next(self._data, None) is not None:
            pass
        if (self.lines, self.sha256) != (lines, sha256):
            raise ValueError(
                f"--resume: expected the input of the unfinished run, got {self.name}, whose first "
                f"{lines:,} lines differ; "
                "give the same input, or --force to start over."
            )

    def __iter__(self) -> Iterator[Line]:
        self._begin()
        for data in self._data:
            yield self._line(Line((self.name,), self.lines), data)

    def _begin(self) -> None:
        """Read the header, at the first call."""
        if self._records.has_header and not self._begun:
            header = self._line(Line((self.name,), 1), next(self._data, b""), header=True)
            if header.reason:
                raise ValueError(header.problem)
            self._records.read_header(header.texts[0])
        self._begun = True

    def _line(self, line: Line, data: bytes, header: bool = False) -> Line:
        try:
            record = decode_line(data)
            text = record if header else self._records.text(record)
            return line._replace(texts=(text,), record=record)
        except ValueError as error:
            return line.with_problem("texts", str(error))

    def _read(self) -> Iterator[bytes]:
        file = (
            contextlib.nullcontext(sys.stdin.buffer)
            if self._path is None
            else open_decompressed(self._path)
        )
        with file as lines:
            for data in lines:
                self.lines += 1
                self._digest.update(data)
                yield data.removeprefix(codecs.BOM_UTF8) if self.lines == 1 else data
