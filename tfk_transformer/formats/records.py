"""Formats of lines: texts, rows of a table with tabs, and JSON objects, with their translations."""

import json
import re
from pathlib import Path
from typing import Any

from tfk_transformer.formats.compression import text_suffix

TABLE = ".tsv"
JSON_LINES = ".jsonl"
ANY_LINE_END = re.compile("\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
BREAKS = str.maketrans("\t\n\r", "   ")  # characters that would end a line or a column


def one_line(text: str) -> str:
    """Return a text with a blank in place of each line end, as some programs read them."""
    return ANY_LINE_END.sub(" ", text)


class Texts:
    """A text in each line, and a translation in each line of the output."""

    has_header = False  # whether the first line is a header
    output_header: str | None = None  # the first line of the output

    def read_header(self, line: str) -> None:
        """Read the names of the columns from the first line."""

    def text(self, record: str) -> str:
        """Return the text of a line.

        Raises:
            ValueError: with the problem, if the text is missing.
        """
        return record

    def result_line(self, record: str | None, text: str | None, problem: str) -> str:
        """Return the line of the output.

        Args:
            record: the line of the input; None if it cannot be read.
            text: the translation, or None.
            problem: the reason for a missing translation.
        """
        return one_line(text or "")


class TableRows(Texts):
    r"""Columns with tabs between them. Quotes have no meaning, as in the tables of corpora.

    `str.split` reads this dialect. The module `csv` without quoting refuses a "\r" in a row and
    columns of more than 131,072 characters, and does not write rows as they were read.

    Args:
        field: the name of the column with the texts, if the first line has the names of the
            columns, or otherwise the column's number from 1.
        output_field: the name of the column with the translations.
    """

    def __init__(self, field: str, output_field: str) -> None:
        self.has_header = not field.isdecimal()
        self._field = field
        self._output_field = output_field
        self._column = 0 if self.has_header else int(field) - 1
        self._width: int | None = None
        if self._column < 0:
            raise ValueError("--field: expected a column's name, or its number from 1, got 0.")

    def read_header(self, line: str) -> None:
        """Find the column by its name."""
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
        self.output_header = f"{line}\t{self._output_field}"

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
    """A JSON object in each line.

    Args:
        field: the name of the value with the text.
        *output_fields: the names of the values to add: the translation, and possibly more.
    """

    def __init__(self, field: str, *output_fields: str) -> None:
        self._field = field
        self._output_fields = output_fields

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
        """Return the object with the translation as the last value.

        The rest of the line is not changed.
        """
        if record is None:
            return json.dumps({"error": problem}, ensure_ascii=False)
        return self.with_values(record, text)

    def with_values(self, record: str, *values: str | float | None) -> str:
        """Return an object that has a text with one more value for each of the output fields."""
        added = json.dumps(dict(zip(self._output_fields, values, strict=True)), ensure_ascii=False)
        return f"{record.rstrip()[:-1].rstrip()}, {added[1:]}"  # an object with a text is not empty


def input_records(path: Path | None, field: str | None, output_field: str) -> Texts:
    """Return the format of the lines of an input, by its suffix.

    Raises:
        ValueError: if `field` is missing, or the format has no fields.
    """
    suffix = "" if path is None else text_suffix(path)
    formats: dict[str, tuple[Any, str]] = {
        TABLE: (TableRows, "the column with the texts, by its name or number"),
        JSON_LINES: (JsonObjects, "the name of the value with the texts"),
    }
    if suffix not in formats:
        if field is not None:
            raise ValueError(
                "--field: expected an --input with the end .tsv or .jsonl, got "
                f"{path or 'standard input'}; leave it out."
            )
        return Texts()
    records, expected = formats[suffix]
    if field is None:
        raise ValueError(f"--field: expected {expected}, since --input is {path}; give one.")
    return records(field, output_field)


def output_records(records: Texts, input: Path | None, output: Path | None) -> Texts:
    """Return the format of the lines of an output, by its suffix.

    The output has the lines of the input with the translations, or only the translations.

    Raises:
        ValueError: if the output has the suffix of a format that the input does not have.
    """
    if output is None:
        return records
    suffix = text_suffix(output)
    if suffix not in (TABLE, JSON_LINES):
        return Texts()
    if input is None or text_suffix(input) != suffix:
        raise ValueError(
            f"--output: expected {suffix} only for an --input with this end, got {output}; give "
            "another name."
        )
    return records


def check_hypotheses(settings: dict[str, Any], *records: Texts) -> None:
    """Refuse several hypotheses for formats that have one translation in a record.

    Raises:
        ValueError: if `n_best` is not 1, and an input or output is not a file of plain texts.
    """
    if settings.get("n_best", 1) != 1 and any(type(each) is not Texts for each in records):
        raise ValueError(
            f"n_best: expected 1 with .tsv and .jsonl files, got {settings['n_best']}; leave it "
            "out, or give texts."
        )
