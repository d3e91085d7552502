"""Sources of text pairs from a data spec, a string such as "numbers:en-de", or from memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.memory import memory_source
from tfk_transformer.datasets.numbers import AdditionSource, NumberSource
from tfk_transformer.datasets.pairs import (
    NoPair,
    Pair,
    Source,
    column_pair,
    spec_error,
    split_options,
)
from tfk_transformer.datasets.parallel_text import files_source, folder_source
from tfk_transformer.datasets.rows import Reader, RowSource, pairs_of
from tfk_transformer.datasets.tables import TABLES, hub_source, is_saved
from tfk_transformer.datasets.tfds_source import TfdsSource
from tfk_transformer.datasets.translation_files import TRANSLATION_FILES
from tfk_transformer.formats.compression import text_suffix


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
        return memory_source(spec, columns)
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

    def rows() -> Iterator[Pair | NoPair]:
        return pairs_of(read(path, columns), columns, path.name)

    return RowSource(spec, {"train": rows}, columns, path)


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
