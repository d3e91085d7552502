"""Sources whose pairs are rows: columns, broken rows, and splits that are held out."""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.datasets.pairs import (
    EMPTY_SIDE,
    USUAL_SPLITS,
    NoPair,
    Pair,
    Report,
    Source,
    order_splits,
)

MIN_HELD_OUT, MAX_HELD_OUT = 200, 2000  # different sources in each split that is made
ALL = "all"  # the split of all pairs, if others were made from it
NESTED = "translation"  # the column that has a text by language, in Hugging Face's data sets
NAMES = (("source", "target"), ("src", "tgt"), ("text", "label"))  # used if there are others too
MAX_NAMES_SHOWN = 10
HASHES = 2**64  # the number of hashes of sources

Columns: TypeAlias = tuple[str, str]
Rows: TypeAlias = Callable[[], Iterator[Pair | NoPair]]


class Skip(str):
    """The reason why a row has no pair, although it is not broken."""


class RowSource(Source):
    """Rows by split. Each split is checked once, before it is read.

    Without them, the splits validation and test are made from the split train. They have the pairs
    whose sources have the smallest hashes, so that no source is in two splits.

    Args:
        name: the spec, or another name that identifies the data.
        rows: by split, a function that returns the rows.
        content: a function that returns a hash of the data.
        languages: codes of the languages, or "".
    """

    def __init__(
        self,
        name: str,
        rows: Mapping[str, Rows],
        content: Callable[[], str],
        languages: Columns = ("", ""),
    ):
        super().__init__(name, *languages)
        self._rows = rows
        self._content = content
        self._checked: set[str] = set()

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, for which the training rows may be read."""
        return order_splits({*self._rows, *self._held_out.values(), *([ALL] * bool(self.note))})

    @property
    def note(self) -> str:
        """A line about the splits that were made; "" if there are none."""
        if not self._held_out:
            return ""
        made = self._made
        return (
            f"{self.name}: {len(self._held_out) // len(made):,} sources, chosen by their hashes, "
            f"are left out of train for {' and as many for '.join(made)}; the split '{ALL}' has all pairs"
        )

    def undivided(self) -> Source:
        """Return a source in which all pairs are in each split that was not there."""
        if "train" not in self._rows or "validation" in self._rows:
            return self
        rows = {**dict.fromkeys(USUAL_SPLITS, self._rows["train"]), **self._rows}
        languages = (self.source_language, self.target_language)
        return RowSource(self.name, rows, self._content, languages)

    def digest(self, split: str) -> str:
        """Return a hash of the data; "" if it is gone."""
        return self._content()

    @property
    def _made(self) -> list[str]:
        """The splits that are made, if there are enough training pairs."""
        can_make = "train" in self._rows and "validation" not in self._rows
        return [split for split in USUAL_SPLITS if can_make and split not in self._rows]

    @cached_property
    def _held_out(self) -> dict[int, str]:
        """The split of each source that is left out of train, by the hash of the source."""
        made = self._made
        hashes, sources = self._check("train") if made else ([], 0)
        count = min(max(sources // 100, MIN_HELD_OUT), MAX_HELD_OUT, sources // 10)
        return dict(zip(hashes[: count * len(made)], itertools.cycle(made), strict=False))

    def _read(self, split: str) -> Iterator[Pair | NoPair]:
        if split in self._rows and split not in self._checked:
            self._check(split)
        if split != ALL and self._held_out and split in ("train", *self._made):
            return self._part(split)
        return self._rows.get(split, self._rows["train"])()

    def _part(self, split: str) -> Iterator[Pair | NoPair]:
        """Yield the training rows that are in a split. Broken rows are in train."""
        for row in self._rows["train"]():
            key = _hash(row.source) if isinstance(row, Pair) else 0
            if self._held_out.get(key, "train") == split:
                yield row

    def _check(self, split: str) -> tuple[list[int], int]:
        """Refuse a split that has more broken rows than pairs.

        Return the smallest hashes of its sources in order, and the number of different sources,
        which is estimated from the hashes if there are many.
        """
        report = Report()
        pairs = broken = 0
        smallest: set[int] = set()
        limit = HASHES
        for row in self._rows[split]():
            if isinstance(row, NoPair):
                broken += row.is_broken
                report.drop(row.reason, row.where)
            elif not (row.source.strip() and row.target.strip()):
                broken += 1
                report.drop(EMPTY_SIDE, row.where)
            else:
                pairs += 1
                if (key := _hash(row.source)) < limit:
                    smallest.add(key)
                if len(smallest) > 4 * MAX_HELD_OUT:
                    smallest = set(sorted(smallest)[: 2 * MAX_HELD_OUT])
                    limit = max(smallest)
        if broken > pairs or not pairs:
            reasons = "; ".join(report.lines())
            raise ValueError(
                f"data: expected more pairs than broken rows in {self.name}, got {pairs:,} and "
                f"{broken:,}{': ' if reasons else ''}{reasons}; correct the data, or name its kind "
                "and columns (docs/data.md)."
            )
        self._checked.add(split)
        ordered = sorted(smallest)
        # Hashes are uniform: the share of them below a limit is the limit's share of all hashes.
        return ordered, len(ordered) if limit == HASHES else len(ordered) * HASHES // ordered[-1]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.strip().encode()).digest()[:8])


def choose_columns(what: str, names: Sequence[Any], columns: Columns | None) -> tuple[Any, Any]:
    """Return the names of the columns of sources and targets.

    Args:
        what: the data, for the message.
        names: the names of all columns.
        columns: the names that were asked for. None: two columns are used as they are, or known
            names.
    """
    if columns is None and len(names) == 2:
        return names[0], names[1]
    for pair in NAMES if columns is None else [columns]:
        if set(pair) <= set(names):
            return pair
    shown = [*map(str, names[:MAX_NAMES_SHOWN]), *["…"] * (len(names) > MAX_NAMES_SHOWN)]
    example = ",target=".join((*filter(None, map(str, names)), "source", "target")[:2])
    wrong = [name for name in columns or () if name not in names][:1]
    expected = f"the column '{wrong[0]}'" if wrong else "two columns"
    raise ValueError(
        f"data: expected {expected}, got "
        f"{shorten(', '.join(shown), 200) or 'none'} in {what}; name the columns of sources and "
        f"targets, such as source={example}.{nearest(wrong[0], map(str, names)) if wrong else ''}"
    )


def pairs_of(
    rows: Iterable[tuple[object, Any]], what: str, columns: Columns | None = None
) -> Iterator[Pair | NoPair]:
    """Yield a pair for each row.

    Args:
        rows: the location of each row, and its values by column, two values, or the reason why it
            has no pair.
        what: the data, for messages.
        columns: the names of the columns. None: see `choose_columns`.
    """
    names: tuple[Any, Any] | None = None
    for number, row in rows:
        where = f"{what}:{number}" if isinstance(number, int) else str(number)
        values: Sequence[Any] = ()
        if isinstance(row, Mapping):
            nested = row.get(NESTED)
            row = nested if isinstance(nested, Mapping) else row
            names = names or choose_columns(what, list(row), columns)
            values = [row.get(name) for name in names]
        elif isinstance(row, str):
            yield NoPair(row, where, not isinstance(row, Skip))
            continue
        else:
            values = row
        try:
            source, target = map(_text, values)
            yield Pair(source, target, where)
        except UnicodeError:
            yield NoPair("not in UTF-8", where)
        except TypeError as error:
            yield NoPair(f"with {error}, which is not text", where)


def _text(value: Any) -> str:
    """Return a value as text, and a missing value (None, NaN) as an empty text."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        value.encode()  # refuses half of a surrogate pair
        return str(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    raise TypeError(type(value).__name__)
