"""Split items into sentences, and sentences that are too long for a model into parts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sentencex import get_sentence_boundaries

from tfk_transformer.formats.documents.items import (
    Item,
    ItemType,
    shown_text,
    split_at_breaks,
    text_starts,
)
from tfk_transformer.text.splitting import cut_in_two


class Segment(NamedTuple):
    """A sentence or a part of a sentence: document[start:end]."""

    start: int
    end: int
    items: tuple[Item, ...]


def sentences(items: Sequence[Item], language: str) -> Iterator[Segment]:
    """Yield the sentences of a document.

    Args:
        items: the items of the document.
        language: the ISO 639 code of its language.
    """
    for run in split_at_breaks(items):
        indexed = IndexedItems(run)
        for boundary in get_sentence_boundaries(language, indexed.text):
            part = indexed.part(boundary["start_index"], boundary["end_index"])
            if part is not None:
                yield part


class IndexedItems:
    """A list of items with values precomputed for all of its parts.

    Args:
        items: the items.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.text = shown_text(items)
        self.starts = text_starts(items)
        # The positions of both ends of each element.
        self._ends: dict[tuple[ItemType, int], int] = {
            (item.type, item.pair): position
            for item, position in zip(items, self.starts, strict=True)
            if item.type in (ItemType.OPEN, ItemType.CLOSE)
        }

    def part(self, start: int, end: int) -> Segment | None:
        """Return the part [start:end] of the text, without whitespace around it.

        The part contains the inline elements inside it, and the ends of elements that are partly
        inside. An element that contains the whole part is not in it.

        Returns:
            The part, or None if its text is blank.
        """
        piece = self.text[start:end]
        end = start + len(piece.rstrip())
        start += len(piece) - len(piece.lstrip())
        if start >= end:
            return None
        indexed = list(zip(self.items, self.starts, strict=True))
        inside = [
            n
            for n, (item, position) in enumerate(indexed)
            if _belongs(item, position, self._ends, start, end)
        ]
        cut_items = [
            item.cut(start - position, end - position)
            for item, position in indexed[inside[0] : inside[-1] + 1]
        ]
        selected = tuple(item for item in cut_items if item.type is not ItemType.TEXT or item.text)
        return Segment(selected[0].start, selected[-1].end, selected)


def _belongs(
    item: Item, position: int, ends: dict[tuple[ItemType, int], int], start: int, end: int
) -> bool:
    """Return whether an item at `position` of the text belongs to its part [start:end]."""
    if item.text:
        return position < end and position + len(item.text) > start
    if item.type is ItemType.OPEN and position == start:
        return start < ends.get((ItemType.CLOSE, item.pair), end + 1) <= end
    if item.type is ItemType.CLOSE and position == end:
        return start <= ends.get((ItemType.OPEN, item.pair), -1) < end
    return start < position < end


def halves(part: Segment) -> list[Segment]:
    """Cut a part that is too long in two, near its middle; see `cut_in_two`.

    Returns:
        The two parts, or the part itself if it has a single character.
    """
    indexed = IndexedItems(part.items)
    uncut: set[int] = set()  # the positions inside points
    for item, start in zip(indexed.items, indexed.starts, strict=True):
        if item.type is ItemType.POINT:
            uncut.update(range(start + 1, start + len(item.text)))
    middle = cut_in_two(indexed.text, uncut)
    if middle is None:
        return [part]
    parts = (indexed.part(0, middle), indexed.part(middle, len(indexed.text)))
    return [half for half in parts if half is not None]
