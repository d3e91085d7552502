"""Sources of text pairs from a data spec, a string such as "numbers:en-de", or from memory."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.hugging_face import hub_source, is_saved
from tfk_transformer.datasets.memory import memory_source
from tfk_transformer.datasets.numbers import AdditionSource, NumberSource
from tfk_transformer.datasets.pairs import NoPair, Pair, Source, spec_error
from tfk_transformer.datasets.parallel_text import files_source, folder_source
from tfk_transformer.datasets.rows import Columns, RowSource, pairs_of
from tfk_transformer.datasets.tables import Row, read_csv, read_jsonl, read_parquet, read_tsv
from tfk_transformer.datasets.tfds_source import TfdsSource
from tfk_transformer.datasets.translation_files import read_po, read_tmx
from tfk_transformer.formats.compression import text_suffix
from tfk_transformer.formats.output_file import content_digest
from tfk_transformer.text.languages import is_language


def load(
    spec: str | Source | Mapping[str, Any] | Iterable[Any],
    source: str | None = None,
    target: str | None = None,
) -> Source:
    """Return the source of text pairs that a spec names, or of pairs in memory.

    - `numbers:en-de`: generated number words with 60,000 training pairs, in any two languages that
      num2words knows. It needs no download.
    - `addition:2`: generated sums of two numbers with 2 to 9 digits, for a decoder-only model.
    - `files:SOURCE,TARGET`: two parallel UTF-8 files, plain or .gz, with one sentence per line. The
      splits train, validation and test all have the same pairs. For a classifier, the second file
      has one label per line.
    - `folder:DIR:de-en`: files `de.train.txt`, `en.train.txt` and so on in a folder, plain or .gz,
      the layout of TFDS's TranslateFolder.
    - `tfds:NAME:pt-en`: a TFDS dataset whose features are a Translation. NAME may include a config
      and a version, such as `ted_hrlr_translate/pt_to_en:1.0.0`. TFDS downloads it into
      TFDS_DATA_DIR when its splits or pairs are first used.
    - `tsv:PATH`, `csv:PATH`, `jsonl:PATH` and `parquet:PATH`: a table with a pair in each row, the
      first three plain, .gz or .zst; `tmx:PATH`: a translation memory; `po:PATH`: a gettext file.
      The path suffices if it ends in the kind.
    - `hf:NAME`, `hf:NAME:SPLIT` or `hf:FOLDER`: a data set of the Hugging Face hub, which is
      downloaded here, or a folder of its `save_to_disk`. `,config=NAME` selects a configuration.
    - Instead of a spec: an iterable of pairs of texts or of mappings, an array (N, 2), a table with
      named columns (pandas, Polars, pyarrow, Hugging Face `datasets`), or a mapping of such data by
      split. The texts stay in RAM. A source is returned as it is.

    The last three kinds need `source` and `target`, unless there are two columns, columns of known
    names, or a column "translation" with a text by language. If they have no validation split,
    part of the training pairs is left out for it and for a test split; see `Source.note`.

    This imports neither TensorFlow nor Keras, except for `tfds:`, and does not read files.

    Args:
        spec: the spec, a source, or data in memory.
        source: the column or the language of the sources: a name, or in a table without names a
            number from 1. A spec may end in `,source=NAME,target=NAME` instead.
        target: the column or the language of the targets.

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
    text, options = _split_options(spec)
    scheme, colon, rest = text.partition(":")
    if scheme not in {*_SOURCES, *_FILES, "hf"} and (kind := _kind_of_path(text)):
        scheme, rest = kind, text
    if scheme in _FILES or scheme == "hf":
        if not rest:
            raise spec_error(spec, f"nothing follows '{scheme}:'.")
        columns = columns or _columns(options.get("source"), options.get("target"))
        one, other = (name if is_language(name) else "" for name in columns or ("", ""))
        if scheme == "hf":
            return hub_source(spec, rest, columns, (one, other), options.get("config"))
        return _file_source(spec, scheme, rest, columns, (one, other))
    scheme, colon, rest = spec.partition(":")
    if scheme not in _SOURCES:
        raise spec_error(
            spec, f"unknown kind '{scheme}'.{nearest(scheme, [*_SOURCES, *_FILES, 'hf'])}"
        )
    if not rest:
        raise spec_error(spec, f"nothing follows '{scheme}{colon}'.")
    return _SOURCES[scheme](spec, rest)


def _columns(source: str | None, target: str | None) -> Columns | None:
    if (source is None) != (target is None) or (source and source == target):
        raise ValueError(
            f"data: expected two columns, source and target, got source={source} and "
            f"target={target}; name both."
        )
    return None if source is None or target is None else (source, target)


def _file_source(
    spec: str, kind: str, rest: str, columns: Columns | None, languages: Columns
) -> RowSource:
    path = Path(rest).expanduser()
    if not path.is_file():
        raise ValueError(f"data: expected a file, got {path}, which does not exist.")

    def rows() -> Iterator[Pair | NoPair]:
        return pairs_of(_FILES[kind](path, columns), path.name, columns)

    return RowSource(
        spec,
        {"train": rows},
        lambda: content_digest(path) if path.is_file() else "",
        languages,
    )


def _split_options(spec: str) -> tuple[str, dict[str, str]]:
    """Return a spec without the options at its end, such as ",source=de,target=en", and these."""
    options: dict[str, str] = {}
    while match := re.fullmatch(r"(.*),(source|target|config)=([^,]+)", spec, re.DOTALL):
        spec, options[match[2]] = match[1], match[3].strip()
    return spec, options


def _kind_of_path(text: str) -> str:
    """Return the kind of data that a path names by its ending; "" if it is none."""
    path = Path(text).expanduser()
    suffix = text_suffix(path)[1:]
    return suffix if suffix in _FILES else "hf" if is_saved(path) else ""


_FILES: dict[str, Callable[[Path, Columns | None], Iterator[Row]]] = {
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
}
