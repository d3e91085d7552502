"""Readers of tables: TSV, CSV, JSON lines, Parquet, and data sets of Hugging Face."""

import csv
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tfk_transformer.config.array_files import check_total
from tfk_transformer.config.small_files import one_line_error, parse_json_object
from tfk_transformer.config.words import shorten
from tfk_transformer.datasets.pairs import USUAL_SPLITS, NoPair, Pair, split_options
from tfk_transformer.datasets.parallel_text import raw_lines
from tfk_transformer.datasets.rows import NAMES, Columns, Reader, Row, RowSource, pairs_of
from tfk_transformer.runtime_environment import require
from tfk_transformer.text.languages import is_language

BATCH_ROWS = 1000  # of Parquet and Arrow, in memory at the same time


def read_tsv(path: Path, columns: Columns | None) -> Iterator[Row]:
    """Yield the rows of a table with tabs between its columns, in which quotes have no meaning."""
    rows = (line.rstrip("\r\n").split("\t") for line in _lines(path))
    return _table(path, enumerate(rows, start=1), columns, has_names=False)


def read_csv(path: Path, columns: Columns | None) -> Iterator[Row]:
    """Yield the rows of a table with commas or semicolons between its columns, and quotes."""
    lines = _lines(path)
    first = next(lines, "")
    delimiter = ";" if ";" in first and "," not in first else ","
    reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter, strict=True)
    try:
        yield from _table(path, ((reader.line_num, row) for row in reader), columns, has_names=True)
    except csv.Error as error:  # a text may have several lines, so other rows could be lost
        raise ValueError(
            f"data: expected quotes in pairs, and doubled within a text, got {error} in line "
            f"{reader.line_num} of {path}; correct it, or save the table with tabs (tsv:)."
        ) from None


def _table(
    path: Path, rows: Iterator[tuple[int, list[str]]], columns: Columns | None, has_names: bool
) -> Iterator[Row]:
    """Yield the rows by column. Columns without names in the first row are numbered from 1."""
    start, first = next(rows, (1, [""]))
    if len(first) < 2:
        raise ValueError(
            f"data: expected at least two columns in {path}, got {shorten(''.join(first))!r} in "
            f"line {start}; check that it is the right file."
        )
    if columns is not None:
        has_names = not all(name.isdecimal() for name in columns)
    elif has_names and any(name.rstrip().endswith((".", "!", "?", "。")) for name in first):
        raise ValueError(
            f"data: expected names of columns in the first line of {path}, got "
            f"{shorten(first[0])!r}; for a table without names, add ,source=1,target=2."
        )
    else:
        has_names = has_names or tuple(first) in NAMES or all(map(is_language, first))
    names = first if has_names else [str(number + 1) for number in range(len(first))]
    for number, row in rows if has_names else itertools.chain([(start, first)], rows):
        if len(row) == len(names):
            yield number, dict(zip(names, row, strict=True))
        else:
            change = "more" if len(row) > len(names) else "fewer"
            yield number, f"with {change} than {len(names)} columns"


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
        yield from _arrow_rows(file.iter_batches(BATCH_ROWS))


def _arrow_rows(batches: Iterable[Any]) -> Iterator[Row]:
    return enumerate((row for batch in batches for row in batch.to_pylist()), start=1)


def is_saved(path: Path) -> bool:
    """Return whether a folder was written by `save_to_disk` of `datasets`."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def hub_source(spec: str, rest: str) -> RowSource:
    """Return the source for a saved folder, or for "NAME" or "NAME:SPLIT" of the hub."""
    datasets = require("datasets")
    text, columns, config = split_options(rest)
    path = Path(text).expanduser()
    name, _, split = text.partition(":")
    with one_line_error(f"data: expected a data set that `datasets` opens, got '{text}': ", "."):
        if is_saved(path):
            data = datasets.load_from_disk(os.fspath(path))
        else:
            data = datasets.load_dataset(name, config, split=split or None)
    if not isinstance(data, Mapping):
        data = {split if split in USUAL_SPLITS else "train": data}

    def read(split: str) -> Iterator[Pair | NoPair]:
        batches = data[split].with_format("arrow").iter(BATCH_ROWS)
        return pairs_of(_arrow_rows(batches), columns, split)

    # The attribute has no public name. It is a hash of the data and of its split.
    content = "-".join(f"{part}:{table._fingerprint}" for part, table in sorted(data.items()))
    return RowSource(spec, {part: partial(read, part) for part in data}, columns, content)


def _lines(path: Path) -> Iterator[str]:
    """Return the lines of a text file. Bytes that are not UTF-8 become surrogates."""
    return (line.decode("utf-8", "surrogateescape") for line in raw_lines(path))


TABLES: dict[str, Reader] = {
    "tsv": read_tsv,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
}
