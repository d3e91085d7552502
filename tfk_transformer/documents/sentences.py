"""Items to sentences, and sentences that are too long for a model to parts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sentencex import get_sentence_boundaries

from tfk_transformer.documents.items import Item, ItemType, runs, shown

CLAUSE_MARKS = ",;:–—"  # they end a clause where a blank follows
FULL_WIDTH_MARKS = "、，；：،؛"  # these end one everywhere


class Segment(NamedTuple):
    """A sentence or a part of one: document[start:end]."""

    start: int
    end: int
    items: tuple[Item, ...]


def sentences(items: Sequence[Item], language: str) -> Iterator[Segment]:
    """Yield the sentences of a document.

    Args:
        items: the items of the document.
        language: the ISO 639 code of its language.
    """
    for run in runs(items):
        read = _read(run)
        for found in get_sentence_boundaries(language, read.text):
            part = _part(read, found["start_index"], found["end_index"])
            if part is not None:
                yield part


def part_of(items: Sequence[Item], start: int, end: int) -> Segment | None:
    """Return the part [start:end] of the text that items show, without whitespace around it, or
    None if it is blank.

    It contains the inline elements that lie in it, and the ends of those that lie partly in it. An
    element that contains all of it stays outside.
    """
    return _part(_read(items), start, end)


class _Read(NamedTuple):
    """Items with what follows from all of them, so that it is found once for all parts."""

    items: Sequence[Item]
    text: str  # that they show
    starts: Sequence[int]  # of each item in the text
    ends: dict[tuple[ItemType, int], int]  # the places of both ends of each element


def _read(items: Sequence[Item]) -> _Read:
    text, starts = shown(items)
    ends: dict[tuple[ItemType, int], int] = {
        (item.kind, item.pair): place
        for item, place in zip(items, starts, strict=True)
        if item.kind in (ItemType.OPEN, ItemType.CLOSE)
    }
    return _Read(items, text, starts, ends)


def _part(read: _Read, start: int, end: int) -> Segment | None:
    items, text, starts, ends = read
    piece = text[start:end]
    start, end = start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
    if start >= end:
        return None
    inside = [n for n, item in enumerate(items) if _belongs(item, starts[n], ends, start, end)]
    chosen = [
        item.cut(start - place, end - place) for item, place in zip(items, starts, strict=True)
    ]
    kept = tuple(
        item
        for item in chosen[inside[0] : inside[-1] + 1]
        if item.kind is not ItemType.TEXT or item.text
    )
    return Segment(kept[0].start, kept[-1].end, kept)


def _belongs(
    item: Item, place: int, ends: dict[tuple[ItemType, int], int], start: int, end: int
) -> bool:
    """Return whether an item at `place` of the shown text belongs to its part [start:end]."""
    if item.text:
        return place < end and place + len(item.text) > start
    if item.kind is ItemType.OPEN and place == start:
        return start < ends.get((ItemType.CLOSE, item.pair), end + 1) <= end
    if item.kind is ItemType.CLOSE and place == end:
        return start <= ends.get((ItemType.OPEN, item.pair), -1) < end
    return start < place < end


def halves(part: Segment) -> list[Segment]:
    """Cut a part that is too long in two: at the clause mark that is nearest to its middle, or else
    between words, or anywhere.

    Returns:
        The two parts, or the part itself if it has a single character.
    """
    text, starts = shown(part.items)
    uncut = {
        place + k
        for item, place in zip(part.items, starts, strict=True)
        if item.kind is ItemType.POINT
        for k in range(1, len(item.text))
    }
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())  # neither half may be blank
    places = [place for place in range(first + 1, last) if place not in uncut]
    for allowed in (_ends_clause, _ends_word, _anywhere):
        if fitting := [place for place in places if allowed(text, place)]:
            middle = min(fitting, key=lambda place: abs(2 * place - len(text)))
            return [
                half
                for half in (part_of(part.items, 0, middle), part_of(part.items, middle, len(text)))
                if half is not None
            ]
    return [part]


def _ends_clause(text: str, place: int) -> bool:
    return text[place - 1] in FULL_WIDTH_MARKS or (
        text[place - 1] in CLAUSE_MARKS and text[place].isspace()
    )


def _ends_word(text: str, place: int) -> bool:
    return text[place].isspace()


def _anywhere(text: str, place: int) -> bool:
    return True
