"""Sources of text pairs from a data spec, a string such as "numbers:en-de", or from memory."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.hugging_face import hub_rows, is_saved
from tfk_transformer.datasets.memory import memory_source
from tfk_transformer.datasets.numbers import AdditionSource, NumberSource
from tfk_transformer.datasets.pairs import NoPair, Pair, Source, spec_error
from tfk_transformer.datasets.parallel_text import files_source, folder_source
from tfk_transformer.datasets.rows import Columns, RowSource, pairs_of
from tfk_transformer.datasets.tables import Row, read_csv, read_jsonl, read_parquet, read_tsv
from tfk_transformer.datasets.tfds_source import TfdsSource
from tfk_transformer.datasets.translation_files import read_po, read_tmx
from tfk_transformer.formats.compression import text_suffix

Reader: TypeAlias = Callable[[Path, Columns | None], Iterator[Row]]


def load(
    spec: str | Source | Mapping[str, Any] | Iterable[Any],
    source: str | None = None,
    target: str | None = None,
) -> Source:
    """Return the source of text pairs that a spec names, or of pairs in memory.

    - `numbers:en-de`: generated number words, in any two languages that num2words knows.
    - `addition:2`: generated sums of two numbers with 2 to 9 digits, for a decoder-only model.
    - `files:SOURCE,TARGET`: two parallel files. The second one has labels for a classifier.
    - `folder:DIR:de-en`: files `de.train.txt`, `en.train.txt` and so on in a folder.
    - `tfds:NAME:pt-en`: a data set of TensorFlow Datasets, downloaded when it is first used.
    - `tsv:`, `csv:`, `jsonl:`, `parquet:`, `tmx:` or `po:` and a path: a file with pairs. The path
      suffices if it ends in the kind, as in `pairs.tsv.gz`.
    - `hf:NAME`, `hf:NAME:SPLIT` or `hf:NAME,config=CONFIG`: a data set of the Hugging Face hub,
      downloaded at once. `hf:FOLDER` or the folder: what its `save_to_disk` wrote.
    - Instead of a spec: an iterable of pairs of texts or of mappings, an array (N, 2), a table with
      named columns, or a mapping of such data by split. The texts stay in RAM.

    If one of the last three has no validation split, see `Source.note`. This imports neither
    TensorFlow nor Keras, except for `tfds:`, and does not read files.

    Args:
        spec: the spec, a source, or data in memory.
        source: the column or language of the sources in the last three, also at the end of a spec:
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
    columns = _columns(source, target)
    if not isinstance(spec, str):
        return memory_source(spec, columns)
    if columns:
        spec = f"{spec},source={source},target={target}"
    scheme, colon, rest = spec.partition(":")
    if scheme not in _SOURCES:
        path = Path(_split_options(spec)[0]).expanduser()
        kind = "hf" if is_saved(path) else text_suffix(path)[1:]
        if kind not in _SOURCES:
            raise spec_error(spec, f"unknown kind '{scheme}'.{nearest(scheme, _SOURCES)}")
        scheme, rest = kind, spec
    if not rest:
        raise spec_error(spec, f"nothing follows '{scheme}{colon}'.")
    return _SOURCES[scheme](spec, rest)


def _columns(source: str | None, target: str | None) -> Columns | None:
    if bool(source) != bool(target) or (source and source == target):
        raise ValueError(
            f"data: expected two columns, got source={source} and target={target}; name both."
        )
    return (source, target) if source else None


def _split_options(spec: str) -> tuple[str, Columns | None, str | None]:
    """Return a spec without the options at its end, the columns and the config in these."""
    options: dict[str, str] = {}
    while match := re.fullmatch(r"(.*),(source|target|config)=([^,]+)", spec):
        spec, options[match[2]] = match[1], match[3]
    return spec, _columns(options.get("source"), options.get("target")), options.get("config")


def _hub_source(spec: str, rest: str) -> RowSource:
    name, columns, config = _split_options(rest)
    rows, content = hub_rows(name, columns, config)
    return RowSource(spec, rows, columns, content)


def _file_source(spec: str, rest: str, read: Reader) -> RowSource:
    name, columns, _ = _split_options(rest)
    path = Path(name).expanduser()
    if not path.is_file():
        raise ValueError(f"data: expected a file, got {path}, which does not exist.")

    def rows() -> Iterator[Pair | NoPair]:
        numbered = ((f"{path.name}:{number}", row) for number, row in read(path, columns))
        return pairs_of(numbered, path.name, columns)

    return RowSource(spec, {"train": rows}, columns, path)


_READERS: dict[str, Reader] = {
    "tsv": read_tsv,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "tmx": read_tmx,
    "po": read_po,
}
_SOURCES: dict[str, Callable[[str, str], Source]] = {
    "numbers": NumberSource,
    "addition": AdditionSource,
    "files": files_source,
    "folder": folder_source,
    "tfds": TfdsSource,
    "hf": _hub_source,
    **{kind: partial(_file_source, read=read) for kind, read in _READERS.items()},
}
