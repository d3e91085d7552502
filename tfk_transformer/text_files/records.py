"""What a line of a file is: a text, a row of a table with tabs, or a JSON object; and the line with
a translation added.
"""

import json
from pathlib import Path
from typing import Any

from tfk_transformer.text_files.compression import text_suffix

TABLE, JSON_LINES = ".tsv", ".jsonl"
BREAKS = str.maketrans("\t\n\r", "   ")  # what would end a line or a column


def one_line(text: str) -> str:
    """Return a text without line ends, which a model with byte tokens can write."""
    return text.replace("\n", " ")


class Texts:
    """A text in each line, and a translation in each line of the output."""

    has_header = False  # whether the first line is none of the texts
    output_header: str | None = None  # the first line of the output

    def read_header(self, line: str) -> None:
        """Take the names of the columns from the first line."""

    def text(self, record: str) -> str:
        """Return the text of a line.

        Raises:
            ValueError: with what is wrong with the line.
        """
        return record

    def result_line(self, record: str | None, text: str | None, problem: str) -> str:
        """Return the line of the output.

        Args:
            record: the line of the input; None if it has no text.
            text: the translation; None if there is none.
            problem: the reason for that.
        """
        return one_line(text or "")


class TableRows(Texts):
    r"""Columns with tabs between them. Quotes are characters as any other, as in the tables of
    corpora.

    `str.split` reads this dialect. The module `csv` without quoting refuses a "\r" in a row and
    columns of more than 131,072 characters, and rows would not come back as they were.

    Args:
        field: the name of the column with the texts, if the first line has names, or the column's
            number from 1, if it has none.
        output_field: the name of the column with the translations.
    """

    def __init__(self, field: str, output_field: str) -> None:
        self.has_header = not field.isdecimal()
        self._field, self._output_field = field, output_field
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
                f"--output-field: expected a new column, got {self._output_field}, which is "
                "there; give another name."
            )
        self._column, self._width = names.index(self._field), len(names)
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
        """Return the row with the translation as a last column."""
        return "" if record is None else f"{record}\t{(text or '').translate(BREAKS)}"


class JsonObjects(Texts):
    """A JSON object in each line.

    Args:
        field: the name of the value with the text.
        *output_fields: the names of the values that are added: the translation, and perhaps more.
    """

    def __init__(self, field: str, *output_fields: str) -> None:
        self._field, self._output_fields = field, output_fields

    def text(self, record: str) -> str:
        """Return the value with the text."""
        try:
            found = json.loads(record)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"expected a JSON object, got a line that is none ({error})."
            ) from None
        if not isinstance(found, dict):
            raise ValueError(
                f"expected a JSON object, got another value, of type {type(found).__name__}."
            )
        for name in self._output_fields:
            if name in found:
                raise ValueError(
                    f"expected an object without {name}, got one with it; choose another name for "
                    "the new value."
                )
        if not isinstance(text := found.get(self._field), str):
            raise ValueError(
                f"expected a string in {self._field}, got "
                f"{'nothing' if text is None else type(text).__name__}."
            )
        return text

    def result_line(self, record: str | None, text: str | None, problem: str) -> str:
        """Return the object with the translation as a last value. The rest of the line stays as it
        was written.
        """
        return (
            json.dumps({"error": problem}, ensure_ascii=False)
            if record is None
            else self.with_values(record, text)
        )

    def with_values(self, record: str, *values: str | float | None) -> str:
        """Return an object that has a text with further last values, one for each of the output
        fields.
        """
        added = json.dumps(dict(zip(self._output_fields, values, strict=True)), ensure_ascii=False)
        return f"{record.rstrip()[:-1].rstrip()}, {added[1:]}"  # an object with a text is not empty


def input_records(path: Path | None, field: str | None, output_field: str) -> Texts:
    """Return what the lines of an input are, by its name.

    Raises:
        ValueError: if `field` is missing, or there is no use for it.
    """
    suffix = "" if path is None else text_suffix(path)
    kinds: dict[str, Any] = {TABLE: TableRows, JSON_LINES: JsonObjects}
    if suffix not in kinds:
        if field is not None:
            raise ValueError(
                "--field: expected an --input with the end .tsv or .jsonl, got "
                f"{path or 'standard input'}; leave it out."
            )
        return Texts()
    if field is None:
        what = (
            "the column with the texts, by its name or number"
            if suffix == TABLE
            else "the name of the value with the texts"
        )
        raise ValueError(f"--field: expected {what}, since --input is {path}; give one.")
    return kinds[suffix](field, output_field)


def output_records(records: Texts, input: Path | None, output: Path | None) -> Texts:
    """Return what the lines of an output are, by its name: those of the input with the
    translations, or only the translations.

    Raises:
        ValueError: if the output has the name of another kind of records than the input.
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
    """Refuse several hypotheses for a record, which has a place for one translation.

    Raises:
        ValueError: if `n_best` is more than 1 and an input or output has other lines than texts.
    """
    if settings.get("n_best", 1) != 1 and any(type(each) is not Texts for each in records):
        raise ValueError(
            f"n_best: expected 1 with .tsv and .jsonl files, got {settings['n_best']}; leave it "
            "out, or give texts."
        )
