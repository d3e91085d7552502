"""The source for data in memory: pairs, rows, or tables of other libraries."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tfk_transformer.config.words import shorten
from tfk_transformer.datasets.pairs import USUAL_SPLITS, Pair
from tfk_transformer.datasets.rows import (
    NESTED,
    Columns,
    Names,
    RowSource,
    choose_columns,
    pairs_of,
)

_LANGUAGE = re.compile(r"[a-z]{2,3}(_\w+)?")


def memory_source(data: Any, columns: Columns | None = None) -> RowSource:
    """Return the source for data in memory, or for a mapping of such data by split.

    The name is a hash of the texts, so that a cache of other pairs is refused.
    """
    has_splits = isinstance(data, Mapping) and all(
        split in USUAL_SPLITS or hasattr(part, "column_names") for split, part in data.items()
    )
    parts = data if has_splits else {"train": data}
    pairs = {}
    digest = hashlib.sha256()
    names: Names | None = None
    for split, part in parts.items():
        rows, names = _rows(part, columns)
        numbered = ((f"pair {number}", row) for number, row in enumerate(rows, start=1))
        pairs[split] = list(pairs_of(numbered, "memory", names))
        for row in [(split,)] * has_splits + pairs[split]:
            digest.update(json.dumps(row[:2] if isinstance(row, Pair) else row).encode())
    name = f"pairs:{digest.hexdigest()[:16]}"
    source, target = (name if _LANGUAGE.fullmatch(str(name)) else "" for name in names or ("", ""))
    readers = {split: partial(iter, rows) for split, rows in pairs.items()}
    return RowSource(name, readers, lambda: name, (source, target))


def _rows(data: Any, columns: Columns | None) -> tuple[list[Any], Names | None]:
    """Return the rows of a table, or of an iterable of pairs or mappings, and the column names."""
    if hasattr(data, "as_numpy_iterator"):  # tf.data
        data = data.as_numpy_iterator()
    elif hasattr(data, "tolist"):  # NumPy
        data = data.tolist()
    names = getattr(data, "column_names", None)  # Hugging Face's datasets, pyarrow
    if names is None:
        names = data if isinstance(data, Mapping) else getattr(data, "columns", None)
    if names is not None and hasattr(data, "__getitem__"):  # not a stream
        if NESTED not in names:
            chosen = choose_columns("memory", list(names), columns)
            sources, targets = (_column(data, name) for name in chosen)
            if len(sources) != len(targets):
                raise ValueError(
                    f"data: expected columns of the same length, got {len(sources)} sources and "
                    f"{len(targets)} targets."
                )
            return list(zip(sources, targets, strict=True)), chosen
        data = _column(data, NESTED)
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
    if not rows or not isinstance(rows[0], Mapping):
        return rows, None
    first = rows[0].get(NESTED)
    names = list(first if isinstance(first, Mapping) else rows[0])
    return rows, choose_columns("memory", names, columns)


def _column(data: Any, name: Any) -> list[Any]:
    column = data[name]
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)
