"""Sources of text pairs from a data spec, a string such as "numbers:en-de", or from memory."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.addition import AdditionSource
from tfk_transformer.datasets.memory import memory_source
from tfk_transformer.datasets.numbers import NumberSource
from tfk_transformer.datasets.pairs import Source, spec_error
from tfk_transformer.datasets.parallel_text import files_source, folder_source


def load(spec: str | Source | Mapping[str, Any] | Iterable[Any]) -> Source:
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
    - Instead of a spec: an iterable of pairs of texts, such as a list of tuples, or a mapping or
      data frame with two columns, sources and targets. The pairs stay in RAM, and the splits train,
      validation and test all have the same pairs. A source is returned as it is.

    This imports neither TensorFlow nor Keras, except for `tfds:`, and does not read the data.

    Raises:
        ValueError: for a malformed spec, for values that are not pairs of texts, or if a language,
            file, folder or dataset does not exist.
        ImportError: if a package that the spec needs is not installed.
    """
    if isinstance(spec, Source):
        return spec
    if not isinstance(spec, str):
        return memory_source(spec)
    scheme, colon, rest = spec.partition(":")
    if scheme not in _SOURCES:
        raise spec_error(spec, f"unknown kind '{scheme}'.{nearest(scheme, _SOURCES)}")
    if not rest:
        raise spec_error(spec, f"nothing follows '{scheme}{colon}'.")
    return _SOURCES[scheme](spec, rest)


def _tfds_source(spec: str, rest: str) -> Source:
    # This import is here so that all other sources work without TFDS and TensorFlow.
    from tfk_transformer.datasets.tfds_source import TfdsSource

    return TfdsSource(spec, rest)


_SOURCES: dict[str, Callable[[str, str], Source]] = {
    "numbers": NumberSource,
    "addition": AdditionSource,
    "files": files_source,
    "folder": folder_source,
    "tfds": _tfds_source,
}
