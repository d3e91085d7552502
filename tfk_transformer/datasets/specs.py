"""Sources of text pairs from a data spec, a string such as "numbers:en-de", or from memory."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.numbers import AdditionSource, NumberSource
from tfk_transformer.datasets.pairs import USUAL_SPLITS, Pair, Source, spec_error
from tfk_transformer.datasets.parallel_text import files_source, folder_source
from tfk_transformer.datasets.tfds_source import TfdsSource

_LANGUAGE = re.compile(r"[a-z]{2,3}(_\w+)?")
_SHOWN_CHARACTERS = 60  # of a value in an error message


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
        return _memory_source(spec)
    scheme, colon, rest = spec.partition(":")
    if scheme not in _SOURCES:
        raise spec_error(spec, f"unknown kind '{scheme}'.{nearest(scheme, _SOURCES)}")
    if not rest:
        raise spec_error(spec, f"nothing follows '{scheme}{colon}'.")
    return _SOURCES[scheme](spec, rest)


class MemoryPairs(Source):
    """Pairs in memory, the same ones in each split.

    The name is a hash of the texts, so that a cache of other pairs is refused.
    """

    splits = USUAL_SPLITS

    def __init__(
        self, pairs: list[tuple[str, str]], source_language: str = "", target_language: str = ""
    ):
        digest = hashlib.sha256()
        for pair in pairs:
            digest.update(json.dumps(pair).encode())
        super().__init__(f"pairs:{digest.hexdigest()[:16]}", source_language, target_language)
        self._pairs = pairs

    def _read(self, split: str) -> Iterator[Pair]:
        for number, (source, target) in enumerate(self._pairs, start=1):
            yield Pair(source, target, f"pair {number}")


def _memory_source(data: Any) -> MemoryPairs:
    """Return the source for pairs of texts, or two columns whose names may be languages."""
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        names = list(data if isinstance(data, Mapping) else data.columns)
        if len(names) != 2:
            raise ValueError(
                "data: expected two columns, sources and targets, got "
                f"{', '.join(map(str, names)) or 'none'}; select two, such as "
                "frame[['source', 'target']]."
            )
        sources, targets = (list(data[name]) for name in names)
        if len(sources) != len(targets):
            raise ValueError(
                f"data: expected columns of the same length, got {len(sources)} sources and "
                f"{len(targets)} targets."
            )
        rows = enumerate(zip(sources, targets, strict=True), start=1)
        pairs = [_checked(number, row) for number, row in rows]
        languages = [name if _LANGUAGE.fullmatch(str(name)) else "" for name in names]
        return MemoryPairs(pairs, *languages)
    if not isinstance(data, Iterable):
        raise ValueError(
            f"data: expected a spec such as numbers:en-de, or pairs of texts, got {_shown(data)}."
        )
    return MemoryPairs([_checked(number, row) for number, row in enumerate(data, start=1)])


def _checked(number: int, row: Any) -> tuple[str, str]:
    texts = row[:2] if isinstance(row, Pair) else row
    is_pair = isinstance(texts, tuple | list) and len(texts) == 2
    if not is_pair or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"data: expected pairs of two texts, got {_shown(row)} as pair {number}; for two "
            "lists, pass zip(sources, targets)."
        )
    source, target = texts
    return str(source), str(target)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


_SOURCES: dict[str, Callable[[str, str], Source]] = {
    "numbers": NumberSource,
    "addition": AdditionSource,
    "files": files_source,
    "folder": folder_source,
    "tfds": TfdsSource,
}
