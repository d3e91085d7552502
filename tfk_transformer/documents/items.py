"""The items that a document consists of: text, and the markup in it."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

# The word that a sentence splitter reads in place of something that is not translated.
STAND_IN = "Code"


class ItemType(Enum):
    """What an item is."""

    TEXT = auto()
    OPEN = auto()  # the beginning of an inline element, such as <b> or **
    CLOSE = auto()  # its end
    # Something inside a sentence that stays as it is, such as inline code or a placeholder.
    POINT = auto()
    BREAK = auto()  # the end of a paragraph, a heading, a line of a poem, …


class Item(NamedTuple):
    """A part of a document. Items are in the document's order and do not overlap; what lies between
    them stays as it is.
    """

    kind: ItemType
    start: int  # the item is document[start:end]
    end: int
    # Of TEXT: what a reader sees; of POINT: STAND_IN if it has the place of a word, else "".
    text: str = ""
    pair: int = -1  # of OPEN and CLOSE: the number that both ends of an element have
    # Of OPEN and CLOSE: an element without text is no element, as in Markdown's emphasis.
    needs_text: bool = False

    def cut(self, start: int, end: int) -> "Item":
        """Return the part [start:end] of the text. An item that shows other characters than it has,
        such as &amp;, stays whole.
        """
        if self.kind is not ItemType.TEXT or (start <= 0 and end >= len(self.text)):
            return self
        if len(self.text) != self.end - self.start:
            return self if start <= 0 < end else self._replace(start=self.end, text="")
        start = max(start, 0)
        end = max(start, min(end, len(self.text)))
        return self._replace(
            start=self.start + start, end=self.start + end, text=self.text[start:end]
        )


class Document(NamedTuple):
    """A document that is read."""

    text: str
    items: Sequence[Item]
    # (text, the markup behind it, or "") -> what stands for the text in the format of the document.
    escaped: Callable[[str, str], str]


def shown(items: Sequence[Item]) -> tuple[str, list[int]]:
    """Return the text of items as a sentence splitter reads it, and for each item the place where
    it begins.
    """
    starts, length = [], 0
    for item in items:
        starts.append(length)
        length += len(item.text)
    return "".join(item.text for item in items), starts


def runs(items: Sequence[Item]) -> list[list[Item]]:
    """Return the items between breaks."""
    found: list[list[Item]] = [[]]
    for item in items:
        if item.kind is ItemType.BREAK:
            found.append([])
        else:
            found[-1].append(item)
    return [run for run in found if run]
