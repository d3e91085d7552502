"""The source for data in memory: pairs, rows, or tables of other libraries."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tfk_transformer.config.words import shorten
from tfk_transformer.datasets.pairs import USUAL_SPLITS, Pair
from tfk_transformer.datasets.rows import Columns, Rows, RowSource, choose_columns, pairs_of
from tfk_transformer.text.languages import is_language


def memory_source(data: Any, columns: Columns | None) -> RowSource:
    """Return the source for data in memory, or for a mapping of such data by split.

    The name is a hash of the texts, so that a cache of other pairs is refused, and their languages.
    """
    has_splits = isinstance(data, Mapping) and all(
        split in USUAL_SPLITS or hasattr(part, "column_names") for split, part in data.items()
    )
    splits: dict[str, Rows] = {}
    digest = hashlib.sha256()
    for split, part in data.items() if has_splits else [("train", data)]:
        rows = _rows(part)
        if rows and isinstance(rows[0], Mapping):
            columns = choose_columns("memory", rows[0], columns)
        pairs = list(pairs_of(enumerate(rows, start=1), columns, "memory", "pair "))
        splits[split] = partial(iter, pairs)
        for row in [(split,)] * has_splits + pairs:
            digest.update(json.dumps(row[:2] if isinstance(row, Pair) else row).encode())
    name = f"pairs:{digest.hexdigest()[:16]}"
    if columns and any(map(is_language, columns)):
        name += f":{columns[0]}-{columns[1]}"
    return RowSource(name, splits, columns, name)


def _rows(data: Any) -> list[Any]:
    """Return the rows of a table, an array or an iterable: pairs, or values by column."""
    # Of tf.data, pyarrow and NumPy.
    for method in ("as_numpy_iterator", "to_pylist", "tolist"):
        if hasattr(data, method):
            data = getattr(data, method)()
    if isinstance(data, Mapping) or hasattr(data, "columns"):  # pandas, Polars
        names = list(data if isinstance(data, Mapping) else data.columns)
        columns = [list(data[name]) for name in names]
        if len(set(map(len, columns))) > 1:
            raise ValueError(
                "data: expected columns of the same length, got "
                f"{shorten(', '.join(f'{len(column)}' for column in columns))}."
            )
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise ValueError(
            "data: expected a spec such as numbers:en-de, pairs of texts, or a table with two "
            f"columns, got {shorten(repr(data))}."
        )
    rows = [row[:2] if isinstance(row, Pair) else row for row in data]
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping) and not (isinstance(row, tuple | list) and len(row) == 2):
            raise ValueError(
                f"data: expected pairs of two texts, got {shorten(repr(row))} as pair {number}; "
                "for two lists, pass zip(sources, targets)."
            )
    return rows
