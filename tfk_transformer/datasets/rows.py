"""Sources whose pairs are rows: columns, broken rows, and splits that are held out."""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.datasets.pairs import (
    USUAL_SPLITS,
    NoPair,
    Pair,
    Report,
    Skip,
    Source,
    drop_unusable,
    order_splits,
)
from tfk_transformer.formats.output_file import content_digest
from tfk_transformer.text.languages import is_language

MIN_HELD_OUT = 200  # sources in a split that is made; at most a tenth of all, or else 1 %
MAX_HASHES = 20_000  # that are kept, so that a tenth of them limits a split that is made
ALL = "all"  # the split of all pairs, if others were made from it
NESTED = "translation"  # the column that has a text by language, in Hugging Face's data sets
NAMES = (("source", "target"), ("src", "tgt"), ("text", "label"))  # used if there are others too

Columns: TypeAlias = tuple[Any, Any]  # strings, or in some data frames numbers
Rows: TypeAlias = Callable[[], Iterator[Pair | NoPair]]
# Its number, and its values by column, two values, or the reason why it has no pair.
Row: TypeAlias = tuple[int, Any]
Reader: TypeAlias = Callable[[Path, Columns | None], Iterator[Row]]


class RowSource(Source):
    """Rows by split, which are checked before they are read.

    Without a validation split, it and a missing test split are left out of train: the pairs whose
    sources have the smallest hashes. No source is in two of these splits.

    The columns may have the names of languages. The content is the file with the rows, or a hash.
    """

    def __init__(
        self, name: str, rows: Mapping[str, Rows], columns: Columns | None, content: Path | str
    ):
        super().__init__(name, *[code if is_language(code) else "" for code in columns or ()])
        self._rows = rows
        self._columns = columns
        self._content = content
        self._checked: set[str] = set()
        is_divided = "train" in rows and "validation" not in rows
        self._made = [split for split in USUAL_SPLITS if is_divided and split not in rows]

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, for which the training rows may be read."""
        made = [ALL, *self._held_out.values()] if self._made else []
        return order_splits([*self._rows, *made])

    @property
    def note(self) -> str:
        """A line about the sources that are left out of train; "" if there are none."""
        made = " and ".join(dict.fromkeys(self._held_out.values()))
        return made and (
            f"{self.name}: {len(self._held_out):,} sources, chosen by their hashes, are left out "
            f"of train for {made}; the split '{ALL}' has all pairs"
        )

    def undivided(self) -> Source:
        """Return a source whose missing splits have all training pairs, as train has."""
        if not self._made:
            return self
        rows = {**self._rows, **dict.fromkeys(self._made, self._rows["train"])}
        return RowSource(self.name, rows, self._columns, self._content)

    def digest(self, split: str) -> str:
        """Return a hash of the data; "" if it is gone."""
        if isinstance(self._content, str):
            return self._content
        return content_digest(self._content) if self._content.is_file() else ""

    @cached_property
    def _held_out(self) -> dict[int, str]:
        """The split of each source that is left out of train, by the hash of the source."""
        if not self._made:
            return {}
        hashes, pairs = self._check("train")
        count = min(max(pairs // 100, MIN_HELD_OUT), len(hashes) // 10)
        hashes = hashes[: count * len(self._made)]
        return dict(zip(hashes, itertools.cycle(self._made), strict=False))

    def _read(self, split: str) -> Iterator[Pair | NoPair]:
        if split in self._rows and split not in self._checked:
            self._check(split)
        rows = (self._rows.get(split) or self._rows["train"])()
        if split == "train" or split in self._held_out.values():
            return (row for row in rows if self._split_of(row) == split)
        return rows

    def _split_of(self, row: Pair | NoPair) -> str:
        """Return the split of a training row. Broken rows are in train."""
        return self._held_out.get(_hash(row.source), "train") if isinstance(row, Pair) else "train"

    def _check(self, split: str) -> tuple[list[int], int]:
        """Return the smallest hashes of sources and the number of pairs; refuse too few pairs."""
        report = Report()
        hashes: set[int] = set()
        pairs = 0
        for pair in drop_unusable(self._rows[split](), report):
            pairs += 1
            hashes.add(_hash(pair.source))
            if len(hashes) > 2 * MAX_HASHES:
                hashes = set(sorted(hashes)[:MAX_HASHES])
        drops = report.to_dict().items()
        broken = sum(count for reason, (count, _) in drops if not isinstance(reason, Skip))
        if broken > pairs or not pairs:
            raise ValueError(
                f"data: expected more pairs than broken rows in {self.name}, got {pairs:,} and "
                f"{broken:,}: {'; '.join(report.lines()) or 'it is empty'}."
            )
        self._checked.add(split)
        return sorted(hashes)[:MAX_HASHES], pairs


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.strip().encode()).digest()[:8])


def choose_columns(data: str, row: Mapping[Any, Any], columns: Columns | None) -> Columns:
    """Return the names in `columns`, or else two known names or the only two of a row."""
    names = list(_texts(row))
    for pair in [columns] if columns else [*NAMES, names]:
        if len(pair) == 2 and set(pair) <= set(names):
            return pair[0], pair[1]
    wrong = next((name for name in columns or () if name not in names), "")
    example = ",target=".join((*filter(None, map(str, names)), "source", "target")[:2])
    raise ValueError(
        f"data: expected {f'the column {wrong!r}' if wrong else 'two columns'}, got "
        f"{shorten(', '.join(map(str, names)), 200) or 'none'} in {data}; name the columns of "
        f"sources and targets, such as source={example}.{nearest(wrong, map(str, names))}"
    )


def _texts(row: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the texts by language in a row, if it has them, or else the row."""
    nested = row.get(NESTED)
    return nested if isinstance(nested, Mapping) else row


def pairs_of(
    rows: Iterable[Row], columns: Columns | None, name: str, prefix: str = ""
) -> Iterator[Pair | NoPair]:
    """Yield the pair in each row. Messages name the data, and locations begin with a prefix."""
    names: Columns | None = None
    prefix = prefix or f"{name}:"
    for number, row in rows:
        where = f"{prefix}{number}"
        if isinstance(row, str):
            yield NoPair(row, where)
            continue
        if isinstance(row, Mapping):
            names = names or choose_columns(name, row, columns)
            row = [_texts(row).get(column) for column in names]
        try:
            source, target = map(_text, row)
            yield Pair(source, target, where)
        except UnicodeError:
            yield NoPair("not in UTF-8", where)
        except TypeError as error:
            yield NoPair(f"with a value of type {error}", where)


def _text(value: Any) -> str:
    """Return a value as text, and a missing value (None, NaN) as an empty text."""
    if isinstance(value, str):
        value.encode()  # refuses surrogates
        return str(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(type(value).__name__)
