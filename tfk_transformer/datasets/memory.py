"""Text pairs in memory: a list of tuples, a generator, a table with two columns."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfk_transformer.datasets.pairs import USUAL_SPLITS, Pair, Source

_LANGUAGE = re.compile(r"[a-z]{2,3}(_\w+)?")
_SHOWN = 60  # characters of a value in an error message


class MemoryPairs(Source):
    """Pairs in memory. Each of the usual splits has the same pairs.

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


def memory_source(data: Any) -> MemoryPairs:
    """Return the source for pairs in memory.

    Args:
        data: an iterable of pairs of texts, or a mapping or data frame (pandas, Polars) with two
            columns, sources and targets. Names of columns such as "de" and "zh_CN" are the
            languages.
    """
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        return _source_of_columns(data)
    if not isinstance(data, Iterable):
        raise ValueError(
            "data: expected a spec such as numbers:en-de, or pairs of texts, got "
            f"{_shortened(data)}."
        )
    return MemoryPairs([_checked(number, row) for number, row in enumerate(data, start=1)])


def _source_of_columns(table: Any) -> MemoryPairs:
    names = list(table if isinstance(table, Mapping) else table.columns)
    if len(names) != 2:
        raise ValueError(
            "data: expected two columns, sources and targets, got "
            f"{', '.join(map(str, names)) or 'none'}; select two, such as "
            "frame[['source', 'target']]."
        )
    sources, targets = (list(table[name]) for name in names)
    if len(sources) != len(targets):
        raise ValueError(
            f"data: expected columns of the same length, got {len(sources)} sources and "
            f"{len(targets)} targets."
        )
    rows = enumerate(zip(sources, targets, strict=True), start=1)
    pairs = [_checked(number, row) for number, row in rows]
    languages = [name if _LANGUAGE.fullmatch(str(name)) else "" for name in names]
    return MemoryPairs(pairs, *languages)


def _checked(number: int, row: Any) -> tuple[str, str]:
    """Return the texts of a pair."""
    texts = row[:2] if isinstance(row, Pair) else row
    is_pair = isinstance(texts, tuple | list) and len(texts) == 2
    if not is_pair or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"data: expected pairs of two texts, got {_shortened(row)} as pair {number}; for two "
            "lists, pass zip(sources, targets)."
        )
    source, target = texts
    return str(source), str(target)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
