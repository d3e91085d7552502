"""Sources of text pairs from a data spec, a string such as "numbers:en-de", or from memory."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.datasets.numbers import AdditionSource, NumberSource
from tfk_transformer.datasets.pairs import (
    USUAL_SPLITS,
    Pair,
    Source,
    column_pair,
    spec_error,
    split_options,
)
from tfk_transformer.datasets.parallel_text import files_source, folder_source
from tfk_transformer.datasets.rows import Columns, Reader, Rows, RowSource, choose_columns, pairs_of
from tfk_transformer.datasets.tables import TABLES, hub_source, is_saved
from tfk_transformer.datasets.tfds_source import TfdsSource
from tfk_transformer.datasets.translation_files import TRANSLATION_FILES
from tfk_transformer.formats.compression import text_suffix
from tfk_transformer.text.languages import is_language


def load(
    spec: str | Source | Mapping[str, Any] | Iterable[Any],
    source: str | None = None,
    target: str | None = None,
) -> Source:
    """Return the source of text pairs that a spec names, or of pairs in memory.

    docs/data.md lists the specs. Pairs in memory are an iterable of pairs of texts or of mappings,
    an array (N, 2), a table with named columns, or a mapping of such data by split. Their texts
    stay in RAM. This imports neither TensorFlow nor Keras, except for `tfds:`, and does not read
    files.

    Args:
        spec: the spec, a source, or data in memory.
        source: the column or language of the sources in rows, also at the end of a spec:
            `,source=NAME,target=NAME`. Columns without names have numbers from 1. None: the first
            of two columns, or a known name.
        target: the column or language of the targets.

    Raises:
        ValueError: for a malformed spec, for values that are not pairs of texts, or if a language,
            column, file, folder or dataset does not exist.
        ImportError: if a package that the spec needs is not installed.
    """
    if isinstance(spec, Source):
        return spec
    columns = column_pair(source, target)
    if not isinstance(spec, str):
        return _memory_source(spec, columns)
    if columns:
        spec = f"{spec},source={source},target={target}"
    scheme, colon, rest = spec.partition(":")
    if scheme not in _SOURCES:
        path = Path(split_options(spec)[0]).expanduser()
        kind = "hf" if is_saved(path) else text_suffix(path)[1:]
        if kind not in _SOURCES:
            raise spec_error(spec, f"unknown kind '{scheme}'.{nearest(scheme, _SOURCES)}")
        scheme, rest = kind, spec
    if not rest:
        raise spec_error(spec, f"nothing follows '{scheme}{colon}'.")
    return _SOURCES[scheme](spec, rest)


def _file_source(spec: str, rest: str, read: Reader) -> RowSource:
    name, columns, _ = split_options(rest)
    path = Path(name).expanduser()
    if not path.is_file():
        raise ValueError(f"data: expected a file, got {path}, which does not exist.")
    rows = {"train": lambda: pairs_of(read(path, columns), columns, path.name)}
    return RowSource(spec, rows, columns, path)


def _memory_source(data: Any, columns: Columns | None) -> RowSource:
    """Return the source for data in memory, or for a mapping of such data by split.

    The name is a hash of the texts, so that a cache of other pairs is refused, and their languages.
    """
    has_splits = isinstance(data, Mapping) and all(
        split in USUAL_SPLITS or hasattr(part, "column_names") for split, part in data.items()
    )
    splits: dict[str, Rows] = {}
    digest = hashlib.sha256()
    for split, part in data.items() if has_splits else [("train", data)]:
        rows = _memory_rows(part)
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


def _memory_rows(data: Any) -> list[Any]:
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


_READERS = {**TABLES, **TRANSLATION_FILES}
_SOURCES: dict[str, Callable[[str, str], Source]] = {
    "numbers": NumberSource,
    "addition": AdditionSource,
    "files": files_source,
    "folder": folder_source,
    "tfds": TfdsSource,
    "hf": hub_source,
    **{kind: partial(_file_source, read=read) for kind, read in _READERS.items()},
}
