"""The source for data in memory: pairs, rows or tables of any library."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from tfk_transformer.datasets.pairs import USUAL_SPLITS, NoPair, Pair
from tfk_transformer.datasets.rows import NESTED, Columns, RowSource, choose_columns, pairs_of

_LANGUAGE = re.compile(r"[a-z]{2,3}(_\w+)?")
_SHOWN_CHARACTERS = 60  # of a value in an error message


def memory_source(data: Any, columns: Columns | None = None) -> RowSource:
    """Return the source for data in memory, or for a mapping of such data by split.

    The name is a hash of the texts, so that a cache of other pairs is refused.
    """
    has_splits = isinstance(data, Mapping) and (
        bool(data)
        and all(name in USUAL_SPLITS or hasattr(data[name], "column_names") for name in data)
    )
    parts = data if has_splits else {"train": data}
    lists: dict[str, list[Pair | NoPair]] = {}
    chosen: Sequence[Any] = ("", "")
    digest = hashlib.sha256()
    for split, part in parts.items():
        rows, names = _rows(part, columns)
        chosen = names or chosen
        lists[split] = list(
            pairs_of(((f"pair {n}", row) for n, row in enumerate(rows, 1)), "data", names)
        )
        if has_splits:
            digest.update(split.encode())
        for row in lists[split]:
            digest.update(json.dumps(row[:2] if isinstance(row, Pair) else row.reason).encode())
    name = f"pairs:{digest.hexdigest()[:16]}"
    source, target = (name if _LANGUAGE.fullmatch(str(name)) else "" for name in chosen)
    readers = {split: partial(iter, rows) for split, rows in lists.items()}
    return RowSource(name, readers, lambda: name, (source, target))


def _rows(data: Any, columns: Columns | None) -> tuple[list[Any], tuple[Any, Any] | None]:
    """Return the rows of a table, or of an iterable of pairs or mappings, and the column names."""
    if hasattr(data, "as_numpy_iterator"):  # tf.data
        data = data.as_numpy_iterator()
    elif hasattr(data, "tolist"):  # NumPy
        data = data.tolist()
    names = getattr(data, "column_names", None)  # Hugging Face's datasets, pyarrow
    if names is None:
        names = data if isinstance(data, Mapping) else getattr(data, "columns", None)
    if names is not None and hasattr(data, "__getitem__"):  # not a stream
        if NESTED in names:
            data = _column(data, NESTED)
        else:
            chosen = choose_columns("memory", list(names), columns)
            sources, targets = (_column(data, name) for name in chosen)
            if len(sources) != len(targets):
                raise ValueError(
                    f"data: expected columns of the same length, got {len(sources)} sources and "
                    f"{len(targets)} targets."
                )
            return list(zip(sources, targets, strict=True)), chosen
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise ValueError(
            f"data: expected a spec such as numbers:en-de, or pairs of texts, got {_shown(data)}."
        )
    rows = [_checked(number, row) for number, row in enumerate(data, start=1)]
    if not rows or not isinstance(rows[0], Mapping):
        return rows, None
    first = rows[0].get(NESTED)
    return rows, choose_columns(
        "data", list(first if isinstance(first, Mapping) else rows[0]), columns
    )


def _column(data: Any, name: Any) -> list[Any]:
    column = data[name]
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


def _checked(number: int, row: Any) -> Any:
    """Return a row: a mapping, or a pair without its location."""
    if isinstance(row, Mapping):
        return row
    pair = row[:2] if isinstance(row, Pair) else row
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(
            f"data: expected pairs of two texts, got {_shown(row)} as pair {number}; for two "
            "lists, pass zip(sources, targets)."
        )
    return pair


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
