"""Beginnings and ends of inline elements, and which of them belong together."""

from collections.abc import Sequence
from typing import NamedTuple

from tfk_transformer.documents.items import Item, ItemType


class Mark(NamedTuple):
    """An item, and of OPEN and CLOSE the name of the element."""

    item: Item
    name: str = ""
    is_sure: bool = False  # whether its partner is certainly there, as in Markdown's own elements


def paired(marks: Sequence[Mark]) -> list[Item]:
    """Return the items, with a number for each pair of beginning and end. One without a partner, or
    not well nested, is a point.
    """
    items = [mark.item for mark in marks]
    waiting: list[int] = []
    for number, mark in enumerate(marks):
        if mark.item.kind is ItemType.OPEN:
            waiting.append(number)
        elif mark.item.kind is ItemType.CLOSE:
            depth = next(
                (depth for depth, n in enumerate(reversed(waiting)) if marks[n].name == mark.name),
                len(waiting),
            )
            inner = waiting[len(waiting) - depth :]
            if depth == len(waiting) or any(marks[n].is_sure for n in inner):
                items[number] = _point(mark.item)
                continue
            del waiting[len(waiting) - depth :]
            start = waiting.pop()
            items[start], items[number] = (
                items[start]._replace(pair=start),
                mark.item._replace(pair=start),
            )
    return [
        _point(item) if item.kind in (ItemType.OPEN, ItemType.CLOSE) and item.pair < 0 else item
        for item in items
    ]


def _point(item: Item) -> Item:
    return item._replace(kind=ItemType.POINT, needs_text=False)
