"""Pair the starts and ends of inline elements."""

from collections.abc import Sequence
from typing import NamedTuple

from tfk_transformer.formats.documents.items import Item, ItemType


class Mark(NamedTuple):
    """An item, and of OPEN and CLOSE the name of the element."""

    item: Item
    name: str = ""
    is_sure: bool = False  # whether it certainly has a partner, as Markdown's own elements do


def pair_elements(marks: Sequence[Mark]) -> list[Item]:
    """Return the items, with a number for each pair of OPEN and CLOSE.

    An OPEN or CLOSE without a partner, or one that is not nested correctly, becomes a point.
    """
    items = [mark.item for mark in marks]
    waiting: list[int] = []  # the indices of elements without an end so far
    for index, mark in enumerate(marks):
        if mark.item.type is ItemType.OPEN:
            waiting.append(index)
        elif mark.item.type is ItemType.CLOSE:
            depth = len(waiting) - 1
            while depth >= 0 and marks[waiting[depth]].name != mark.name:
                depth -= 1
            if depth < 0 or any(marks[inner].is_sure for inner in waiting[depth + 1 :]):
                items[index] = _point(mark.item)
                continue
            start = waiting[depth]
            del waiting[depth:]
            items[start] = items[start]._replace(pair=start)
            items[index] = mark.item._replace(pair=start)
    return [
        _point(item) if item.type in (ItemType.OPEN, ItemType.CLOSE) and item.pair < 0 else item
        for item in items
    ]


def _point(item: Item) -> Item:
    return item._replace(type=ItemType.POINT, needs_text=False)
