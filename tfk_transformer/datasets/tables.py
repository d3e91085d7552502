"""The sources for files with a pair in each row: `tsv:`, `csv:`, `jsonl:` and `parquet:`."""

import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tfk_transformer.config.array_files import check_total
from tfk_transformer.config.small_files import one_line_error, parse_json_object
from tfk_transformer.config.words import shorten
from tfk_transformer.datasets.rows import NAMES, Columns
from tfk_transformer.formats.compression import open_decompressed
from tfk_transformer.runtime_environment import require
from tfk_transformer.text.languages import is_language

MAX_LINE_BYTES = 2**20
BATCH_ROWS = 1000  # of Parquet and Arrow, in memory at the same time

Row: TypeAlias = tuple[int, Any]  # its number, and its values by column or why there are none


def read_tsv(path: Path, columns: Columns | None) -> Iterator[Row]:
    """Yield the rows of a table with tabs between its columns, in which quotes have no meaning."""
    rows = (line.rstrip("\r\n").split("\t") for line in _lines(path))
    return _table(path, enumerate(rows, start=1), columns, False)


def read_csv(path: Path, columns: Columns | None) -> Iterator[Row]:
    """Yield the rows of a table with commas or semicolons between its columns, and quotes."""
    return _table(path, _csv_rows(path), columns, True)


def _csv_rows(path: Path) -> Iterator[Row]:
    lines = _lines(path)
    first = next(lines, "")
    delimiter = ";" if ";" in first and "," not in first else ","
    reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if reader.line_num > number:  # other rows would be lost
                raise ValueError(
                    f"data: expected a closing quote for the row in line {number} of {path}, got "
                    f"none up to line {reader.line_num} ({error}); double quotes within a text."
                ) from None
            yield number, f"with quotes that do not fit ({error})"


def _table(
    path: Path, rows: Iterator[Row], columns: Columns | None, has_names: bool
) -> Iterator[Row]:
    """Yield the rows by column. The first row has names, unless columns are named by numbers."""
    if columns is not None:
        has_names = not all(name.isdecimal() for name in columns)
    first_number, first = next(rows, (1, []))
    if isinstance(first, str) or len(first) < 2:
        raise ValueError(
            f"data: expected at least two columns in the first line of {path}, got "
            f"{shorten(str(first))}; check that it is the right file."
        )
    looks_like_names = tuple(map(str.lower, first)) in NAMES or all(map(is_language, first))
    looks_like_texts = any(name.rstrip().endswith((".", "!", "?", "。")) for name in first)
    if columns is None and (looks_like_texts if has_names else looks_like_names):
        expected, cure = ("the names", "1,target=2") if has_names else ("texts", "{},target={}")
        raise ValueError(
            f"data: expected {expected} of the columns in the first line of {path}, got "
            f"{', '.join(first[:2])}; name the columns, as in "
            f"{path},source={cure.format(*first[:2])}."
        )
    names = first if has_names else [str(index + 1) for index in range(len(first))]
    others = rows if has_names else itertools.chain([(first_number, first)], rows)
    for number, row in others:
        if isinstance(row, str):
            yield number, row
        elif len(row) != len(names):
            yield number, f"with another number of columns than {len(names)}"
        else:
            yield number, dict(zip(names, row, strict=True))


def read_jsonl(path: Path, columns: Columns | None) -> Iterator[Row]:
    """Yield the JSON object in each line."""
    for number, line in enumerate(_lines(path), start=1):
        try:
            yield number, parse_json_object(line, "")
        except ValueError:
            yield number, "not written as a JSON object"


def read_parquet(path: Path, columns: Columns | None) -> Iterator[Row]:
    """Yield the rows of a Parquet file."""
    parquet = require("pyarrow.parquet")
    with one_line_error(f"{path}: expected a Parquet file, got ", "."), path.open("rb") as opened:
        file = parquet.ParquetFile(opened)
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        check_total(sum(group.total_byte_size for group in groups), path.stat().st_size)
        used = [name for name in columns or () if name in file.schema_arrow.names]
        batches = file.iter_batches(BATCH_ROWS, columns=used if len(used) == 2 else None)
        yield from table_rows(batches)


def table_rows(tables: Iterable[Any]) -> Iterator[Row]:
    """Yield the rows of tables of Arrow."""
    return enumerate(itertools.chain.from_iterable(map(_dicts, tables)), start=1)


def _dicts(table: Any) -> Sequence[dict[str, Any]]:
    return table.to_pylist()


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file. Bytes that are not UTF-8 become surrogates."""
    with open_decompressed(path) as file:
        for number in itertools.count(1):
            line = file.readline(MAX_LINE_BYTES + 1)
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(
                    f"data: expected lines of at most {MAX_LINE_BYTES:,} bytes in {path}, got a "
                    f"longer one, line {number}; check that it is the right file."
                )
            if not line:
                return
            yield line.decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape")
