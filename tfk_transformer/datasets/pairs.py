"""The text pair, the report on dropped pairs, and what every source of pairs offers."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tfk_transformer.config.record import nearest

USUAL_SPLITS = ("train", "validation", "test")
EMPTY_SIDE = "with an empty side"
_PLACES_SHOWN = 3


class Pair(NamedTuple):
    """A sentence, its translation, and where they stand, for messages: "de.train.txt:17"."""

    source: str
    target: str
    where: str


@dataclass
class _Drops:
    """The pairs dropped for one reason."""

    count: int = 0
    places: list[str] = field(default_factory=list)

    def add(self, where: str) -> None:
        self.count += 1
        if len(self.places) < _PLACES_SHOWN:
            self.places.append(where)

    def line(self, reason: str) -> str:
        more = [f"… and {self.count - len(self.places)} more"] if self.count > len(self.places) else []
        return f"dropped {self.count} pair{'' if self.count == 1 else 's'} {reason} ({', '.join(self.places + more)})"


class Report:
    """Count the dropped pairs by reason, with the first few places of each; use a new one for each pass over the pairs."""

    def __init__(self):
        self._drops: dict[str, _Drops] = {}

    def drop(self, reason: str, where: str) -> None:
        """Count one dropped pair.

        Args:
            reason: a phrase that follows "dropped 2 pairs", such as "with an empty side".
            where: the pair's place, `Pair.where`.
        """
        self._drops.setdefault(reason, _Drops()).add(where)

    @property
    def dropped(self) -> int:
        """The number of dropped pairs, all reasons together."""
        return sum(drops.count for drops in self._drops.values())

    def lines(self) -> list[str]:
        """Return one line a reason, such as "dropped 2 pairs with an empty side (de.train.txt:17, en.train.txt:40)"."""
        return [drops.line(reason) for reason, drops in self._drops.items()]

    def to_dict(self) -> dict:
        """Return what `restore` takes: by reason, the count and the first places."""
        return {reason: [drops.count, drops.places] for reason, drops in self._drops.items()}

    def restore(self, drops: dict) -> None:
        """Take over what `to_dict` gave."""
        self._drops.update({reason: _Drops(count, places) for reason, (count, places) in drops.items()})


class Source(ABC):
    """A source of text pairs, as `load` returns it.

    Attributes:
        name: the spec it was loaded from.
        source_language: its code, or "" if unknown.
        target_language: its code, or "" if unknown.
    """

    def __init__(self, name: str, source_language: str = "", target_language: str = ""):
        self.name = name
        self.source_language = source_language
        self.target_language = target_language

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r})"

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names `pairs` takes."""

    @abstractmethod
    def _read(self, split: str) -> Iterator[Pair]:
        """Stream every pair of a split, those with an empty side included."""

    def _check(self, split: str) -> None:  # noqa: B027 (most sources have nothing to check)
        """Raise a ValueError naming every problem of a split's data; called before each pass."""

    def pairs(self, split: str, report: Report | None = None) -> Iterator[Pair]:
        """Stream the pairs of a split; those with an empty (or blank) side are dropped.

        Args:
            split: one of `splits`.
            report: where the dropped pairs are counted, while the pairs are taken; None: nowhere.

        Returns:
            An iterator; it reads on as it is asked and holds no file in memory.

        Raises:
            ValueError: at once, for an unknown split or for data that cannot be used.
        """
        if split not in self.splits:
            raise ValueError(f"split: {self.name} has {', '.join(self.splits)}, got '{split}'.{nearest(split, self.splits)}")
        self._check(split)
        return _drop_empty(self._read(split), report)


def usual_first(splits: Iterable[str]) -> tuple[str, ...]:
    """Return split names sorted: train, validation, test, then the others by name."""
    names = set(splits)
    return tuple(name for name in USUAL_SPLITS if name in names) + tuple(sorted(names.difference(USUAL_SPLITS)))


def _drop_empty(pairs: Iterable[Pair], report: Report | None) -> Iterator[Pair]:
    for pair in pairs:
        if pair.source.strip() and pair.target.strip():
            yield pair
        elif report is not None:
            report.drop(EMPTY_SIDE, pair.where)
