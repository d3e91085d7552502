"""Files of lines: what is in a line, how the lines are read, and the outcome of each."""

import codecs
import contextlib
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tfk_transformer.formats.compression import open_decompressed, read_lines
from tfk_transformer.text.outcome import Refused

ANY_LINE_END = re.compile("\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
BREAKS = str.maketrans("\t\n\r", "   ")  # characters that would end a line or a column


def one_line(text: str) -> str:
    """Return a text with a blank in place of each line end, as some programs read them."""
    return ANY_LINE_END.sub(" ", text)


class Texts:
    """A text in each line, and a translation in each line of the output."""

    has_header = False  # whether the first line is a header
    output_header: str | None = None  # the first line of the output

    def read_header(self, line: str, end: str = "") -> None:
        """Read the names of the columns from the first line."""

    def text(self, record: str) -> str:
        """Return the text of a line; a `ValueError` says why there is none."""
        return record

    def result_line(self, record: str | None, text: str | None, problem: str) -> str:
        """Return the line of the output, which lacks a translation if there is a `problem`.

        `text` is None then, and `record` too if the line of the input cannot be read.
        """
        return one_line(text or "")


class TableRows(Texts):
    r"""Columns with tabs between them. Quotes have no meaning, as in the tables of corpora.

    The module `csv` without quoting refuses a "\r" in a row and columns of more than 131,072
    characters, and does not write rows as they were read.

    `field` is the name of the column with the texts, if the first line has the names of the
    columns, or otherwise the column's number from 1.
    """

    def __init__(self, field: str, output_field: str) -> None:
        self.has_header = not field.isdecimal()
        self._field = field
        self._output_field = output_field
        self._column = 0 if self.has_header else int(field) - 1
        self._width: int | None = None
        if self._column < 0:
            raise ValueError("--field: expected a column's name, or its number from 1, got 0.")

    def read_header(self, line: str, end: str = "") -> None:
        """Find the column by its name; `end` is the `Line.end` of the line."""
        names = line.split("\t")
        if names.count(self._field) != 1:
            raise ValueError(
                f"--field: expected one of the columns {', '.join(names)}, got {self._field}."
            )
        if self._output_field in names:
            raise ValueError(
                f"--output-field: expected a new column, got {self._output_field}, which "
                "exists; give another name."
            )
        self._column = names.index(self._field)
        self._width = len(names)
        self.output_header = f"{line}\t{self._output_field}{end}"

    def text(self, record: str) -> str:
        """Return the column with the text."""
        columns = record.split("\t")
        if self._width is not None and len(columns) != self._width:
            raise ValueError(
                f"expected {self._width} columns, as in the first line, got {len(columns)}."
            )
        if len(columns) <= self._column:
            raise ValueError(
                f"expected a column {self._column + 1}, got {len(columns)} in this line."
            )
        return columns[self._column]

    def result_line(self, record: str | None, text: str | None, problem: str) -> str:
        """Return the row with the translation as the last column."""
        return "" if record is None else f"{record}\t{(text or '').translate(BREAKS)}"


class JsonObjects(Texts):
    """A JSON object in each line, with the text in the value `field`."""

    def __init__(self, field: str, *output_fields: str) -> None:
        self._field = field
        self._output_fields = output_fields  # to add: the translation, and possibly more

    def text(self, record: str) -> str:
        """Return the value with the text."""
        try:
            value = json.loads(record)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"expected a JSON object, got a line that cannot be parsed ({error})."
            ) from None
        if not isinstance(value, dict):
            raise ValueError(f"expected a JSON object, got a value of type {type(value).__name__}.")
        for name in self._output_fields:
            if name in value:
                raise ValueError(
                    f"expected an object without {name}, got one with it; choose another name for "
                    "the new value."
                )
        text = value.get(self._field)
        if not isinstance(text, str):
            raise ValueError(
                f"expected a string in {self._field}, got "
                f"{'nothing' if text is None else type(text).__name__}."
            )
        return text

    def result_line(self, record: str | None, text: str | None, problem: str) -> str:
        """Return the object with the translation as the last value, and the rest unchanged."""
        if record is None:
            return json.dumps({"error": problem}, ensure_ascii=False)
        return self.with_values(record, text)

    def with_values(self, record: str, *values: str | float | None) -> str:
        """Return an object that has a text with one more value for each of the output fields."""
        added = json.dumps(dict(zip(self._output_fields, values, strict=True)), ensure_ascii=False)
        return f"{record.rstrip()[:-1].rstrip()}, {added[1:]}"  # an object with a text is not empty


class Line(NamedTuple):
    """A line of the input, or a line of each of two files."""

    files: tuple[str, ...]  # the name of each file
    number: int  # from 1
    texts: tuple[str, ...] = ()
    record: str | None = None  # the whole line; the text may be a part of it
    end: str = ""  # "\r" if the line ends with "\r\n"
    outcome: Any = None  # its result, or `Refused`; None: not processed so far

    @property
    def reason(self) -> str:
        """Why the line cannot be processed, or an empty string."""
        return self.outcome.reason if isinstance(self.outcome, Refused) else ""

    @property
    def bad_file(self) -> str:
        """The file whose line cannot be processed; `targets` are the second file."""
        return self.files[-1 if self.outcome.argument == "targets" else 0]

    @property
    def problem(self) -> str:
        """FILE:NUMBER: reason, or an empty string if the line can be processed."""
        return f"{self.bad_file}:{self.number}: {self.reason}" if self.reason else ""


def decode_line(data: bytes) -> str:
    """Return the text of a line without its line end; if it is not UTF-8, raise `ValueError`."""
    try:
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected UTF-8, got byte 0x{data[error.start]:02x} at column {error.start + 1}."
        ) from None


class LineReader:
    """Read the lines of a file, or of standard input if `path` is None, and count and hash them.

    Only the byte "\\n" ends a line. A byte order mark at the start is left out.
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
        """Read the first lines, which an earlier run has processed, and compare their hash."""
        self._begin()
        while self.lines < lines and next(self._data, None) is not None:
            pass
        if (self.lines, self.sha256) != (lines, sha256):
            raise ValueError(
                f"--resume: expected the input of the unfinished run, got {self.name}, whose first "
                f"{lines:,} lines differ; give the same input, or --force to start over."
            )

    def __iter__(self) -> Iterator[Line]:
        self._begin()
        for data in self._data:
            yield self._line(data, self._records.text)

    def _begin(self) -> None:
        """Read the header, at the first call."""
        if self._records.has_header and not self._begun:
            header = self._line(next(self._data, b""), str)
            if header.reason:
                raise ValueError(header.problem)
            self._records.read_header(header.texts[0], header.end)
        self._begun = True

    def _line(self, data: bytes, text: Callable[[str], str]) -> Line:
        line = Line((self.name,), self.lines, end="\r" * data.endswith(b"\r\n"))
        try:
            record = decode_line(data)
            return line._replace(texts=(text(record),), record=record)
        except ValueError as error:
            return line._replace(outcome=Refused("texts", str(error)))

    def _read(self) -> Iterator[bytes]:
        path = self._path
        with open_decompressed(path) if path else contextlib.nullcontext(sys.stdin.buffer) as file:
            for data in read_lines(file, self.name):
                self.lines += 1
                self._digest.update(data)
                yield data.removeprefix(codecs.BOM_UTF8) if self.lines == 1 else data
