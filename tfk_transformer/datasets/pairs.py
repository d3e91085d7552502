"""The base of all sources: pairs, the report on dropped ones, `Source`, and the syntax of specs."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tfk_transformer.config.words import nearest
from tfk_transformer.text.languages import Languages, is_language

FORMS = (
    "numbers:en-de, addition:2, files:SOURCE,TARGET, folder:DIR:de-en, tfds:NAME:pt-en, hf:NAME or "
    "a file such as tsv:PATH, csv:PATH, jsonl:PATH, parquet:PATH, tmx:PATH or po:PATH"
)
USUAL_SPLITS = ("train", "validation", "test")
EMPTY_SIDE = "with an empty side"
LOCATIONS_SHOWN = 3  # of each reason in a report


class Pair(NamedTuple):
    """A sentence, its translation, and their location for messages, such as "de.train.txt:17"."""

    source: str
    target: str
    where: str


class Skip(str):
    """The reason why a row has no pair, although it is not broken."""


class NoPair(NamedTuple):
    """A row without a pair: the reason, as in `Report.drop`, and its location."""

    reason: str
    where: str


class Report:
    """Count the dropped pairs by reason, with the first few locations of each.

    Use a new report for each pass over the pairs.
    """

    def __init__(self) -> None:
        self._drops: dict[str, tuple[int, list[str]]] = {}  # counts and locations by reason

    def drop(self, reason: str, where: str) -> None:
        """Count a dropped pair. The reason follows "dropped 1 pair", as in "not in UTF-8"."""
        count, locations = self._drops.get(reason, (0, []))
        if len(locations) < LOCATIONS_SHOWN:
            locations = [*locations, where]
        self._drops[reason] = count + 1, locations

    @property
    def dropped(self) -> int:
        """The total number of dropped pairs."""
        return sum(count for count, _ in self._drops.values())

    def lines(self) -> list[str]:
        """Return one line per reason: "dropped 1 pair with an empty side (de.train.txt:17)"."""
        lines = []
        for reason, (count, shown) in self._drops.items():
            pairs = "pair" if count == 1 else "pairs"
            more = count - len(shown)
            locations = [*shown, f"… and {more} more"] if more > 0 else shown
            lines.append(f"dropped {count} {pairs} {reason} ({', '.join(locations)})")
        return lines

    def to_dict(self) -> dict[str, tuple[int, list[str]]]:
        """Return the count and the first locations by reason, for `restore`."""
        return dict(self._drops)

    def restore(self, drops: Mapping[str, tuple[int, list[str]]]) -> None:
        """Add the counts and locations that `to_dict` returned."""
        for reason, (count, locations) in drops.items():
            self._drops[reason] = int(count), list(map(str, locations))


class Source(ABC):
    """A source of text pairs; `load` returns one.

    Attributes:
        name: the spec, as in `load(spec)`.
        source_language: language code, or "" if unknown.
        target_language: language code, or "" if unknown.
    """

    def __init__(self, name: str, source_language: str = "", target_language: str = ""):
        self.name = name
        self.source_language = source_language
        self.target_language = target_language

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""

    def digest(self, split: str) -> str:
        """Return a hash of a split's files, "" if they are gone; the name if there are none."""
        return self.name

    @property
    def note(self) -> str:
        """A line about splits that were made from the training pairs; "" if there are none."""
        return ""

    def undivided(self) -> "Source":
        """Return the source without splits that were made from the training pairs."""
        return self

    @abstractmethod
    def _read(self, split: str) -> Iterator[Pair | NoPair]:
        """Return an iterator over all pairs of a split, including pairs with an empty side."""

    def pairs(self, split: str, report: Report | None = None) -> Iterator[Pair]:
        """Return an iterator over the pairs of a split.

        Pairs with an empty (or blank) side and broken rows are dropped. The data is read during the
        iteration, and does not stay in RAM.

        Args:
            split: one of `splits`.
            report: counts the dropped pairs during the iteration. None: they are not counted.

        Raises:
            ValueError: before the iteration, for an unknown split or for unusable data.
        """
        if split not in self.splits:
            raise ValueError(
                f"split: expected one of {', '.join(self.splits)}, which {self.name} has, got "
                f"'{split}'; choose one of them, or add the split to the data."
                f"{nearest(split, self.splits)}"
            )
        # Data that can be checked is checked now, before the iteration.
        return drop_unusable(self._read(split), report or Report())


def order_splits(splits: Iterable[str]) -> tuple[str, ...]:
    """Return split names in order: train, validation, test, then all other names sorted."""
    names = set(splits)
    usual = [name for name in USUAL_SPLITS if name in names]
    return (*usual, *sorted(names.difference(USUAL_SPLITS)))


def drop_unusable(rows: Iterable[Pair | NoPair], report: Report) -> Iterator[Pair]:
    """Yield the pairs whose sides have text; the report counts all other rows."""
    for row in rows:
        if isinstance(row, NoPair):
            report.drop(row.reason, row.where)
        elif row.source.strip() and row.target.strip():
            yield row
        else:
            report.drop(EMPTY_SIDE, row.where)


def spec_error(spec: str, problem: str) -> ValueError:
    """Return the error for a malformed spec, with examples of all forms."""
    return ValueError(f"data: expected {FORMS}, got '{spec}': {problem}")


def language_pair(spec: str, text: str) -> tuple[str, str]:
    """Return the two codes of "en-de", a part of a spec."""
    match = re.fullmatch(r"([^-\s]+)-([^-\s]+)", text)
    if not match:
        raise spec_error(spec, f"'{text}' is not two language codes joined by one hyphen.")
    if match[1] == match[2]:
        raise spec_error(spec, f"source and target are both '{match[1]}'; name two languages.")
    return match[1], match[2]


def name_and_languages(spec: str, text: str) -> tuple[str, str, str]:
    """Return NAME and the two codes of "NAME:en-de"; NAME may contain colons."""
    name, colon, languages = text.rpartition(":")
    if not name:
        raise spec_error(
            spec, "the name is missing." if colon else "the languages are missing after a last ':'."
        )
    return name, *language_pair(spec, languages)


def column_pair(source: str | None, target: str | None) -> tuple[str, str] | None:
    """Return the names of two columns, or None if there are no names."""
    if bool(source) != bool(target) or (source and source == target):
        raise ValueError(
            f"data: expected two columns, got source={source} and target={target}; name both."
        )
    return (source, target) if source and target else None


def split_options(spec: str) -> tuple[str, tuple[str, str] | None, str | None]:
    """Return a spec without the options at its end, and the columns and the config in these."""
    options: dict[str, str] = {}
    while match := re.fullmatch(r"(.*),(source|target|config)=([^,]+)", spec):
        spec, options[match[2]] = match[1], match[3]
    return spec, column_pair(options.get("source"), options.get("target")), options.get("config")


def spec_languages(spec: str) -> Languages:
    """Return the languages that a spec names. Names such as "source" are not languages."""
    _, columns, _ = split_options(spec)
    codes = re.search(r":([^-:\s]+)-([^-:\s]+)$", spec)
    named = codes.groups() if codes else columns or ()
    return Languages(*[code if is_language(code) else None for code in named])
