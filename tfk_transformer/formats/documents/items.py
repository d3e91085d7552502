"""The items of a document: text, and the markup in it."""

import itertools
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

# The word that a sentence splitter reads in place of something that is not translated.
STAND_IN = "Code"


class ItemType(Enum):
    """The type of an item."""

    TEXT = auto()
    OPEN = auto()  # the start of an inline element, such as <b> or **
    CLOSE = auto()  # the end of an inline element
    POINT = auto()  # unchanged, inside a sentence, such as inline code or a placeholder
    BREAK = auto()  # the end of a paragraph, a heading, a line of a poem, …


class Item(NamedTuple):
    """A part of a document.

    Items are in the document's order and do not overlap. Text between them stays unchanged.
    """

    type: ItemType
    start: int  # the item is document[start:end]
    end: int
    text: str = ""  # of TEXT: the text that is displayed; of POINT: STAND_IN if it is a word, or ""
    pair: int = -1  # of OPEN and CLOSE: a number that both ends of an element have
    # Of OPEN and CLOSE: whether the element may not be empty, such as Markdown's emphasis.
    needs_text: bool = False
    # Of CLOSE: its markup where other text is in the element, such as "][key]" of a link whose
    # label is its key; "" if it is the same.
    explicit: str = ""

    def cut(self, start: int, end: int) -> "Item":
        """Return the part [start:end] of the text.

        An item whose text is written with other characters in the document, such as &amp;, is not
        cut.
        """
        if self.type is not ItemType.TEXT or (start <= 0 and end >= len(self.text)):
            return self
        if len(self.text) != self.end - self.start:
            return self if start <= 0 < end else self._replace(start=self.end, text="")
        start = max(start, 0)
        end = max(start, min(end, len(self.text)))
        return self._replace(
            start=self.start + start, end=self.start + end, text=self.text[start:end]
        )


def no_structure(text: str) -> list[str]:
    """Return the structure of a plain text: it has no markup."""
    return []


class Document(NamedTuple):
    """A parsed document."""

    text: str
    items: Sequence[Item]
    # (text, the markup that follows it, or "") -> the text in the format of the document, without
    # anything that could be markup.
    escape: Callable[[str, str], str]
    # The text of a document -> its blocks, inline elements and tags in order, without the words.
    # The strings of inline elements begin with "inline ". A translation may change the order of
    # neighboring strings that do, but not of other strings.
    structure: Callable[[str], list[str]] = no_structure
    # A text -> the text with the escapes without which it always reads otherwise. `escape` is used
    # where the structure of the document would change.
    encode: Callable[[str], str] = str


def shown_text(items: Sequence[Item]) -> str:
    """Return the text of items as a sentence splitter reads it."""
    return "".join(item.text for item in items)


def text_starts(items: Sequence[Item]) -> list[int]:
    """Return the position of each item in `shown_text`."""
    return list(itertools.accumulate((len(item.text) for item in items), initial=0))[:-1]


def split_at_breaks(items: Sequence[Item]) -> list[list[Item]]:
    """Return the items between breaks."""
    groups = itertools.groupby(items, lambda item: item.type is ItemType.BREAK)
    return [list(group) for is_break, group in groups if not is_break]
