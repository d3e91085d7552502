"""The text of a part as a model translates it, with a tree of the markup in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tfk_transformer.formats.documents.items import Document, Item, ItemType
from tfk_transformer.text.words import Span

# Marks that follow a word without a blank, even where the source has a blank and a point there.
CLOSING_MARKS = ",.;:!?)]}»”’…%"


@dataclass(eq=False)
class Node:
    """An inline element, a point, or the root of a part."""

    first: int  # the node is text[first:last]
    last: int
    opening: Item | None = None  # None in the root, and if the element begins before the part
    # None in the root, in points, and if the element ends after the part.
    closing: Item | None = None
    anchor: str = ""  # "start" or "end" if the element begins before the part or ends after it
    before: str = " "  # of points: the source's character before it, " " if there is none
    after: str = " "  # of points: the source's character after it
    children: list["Node"] = field(default_factory=list)
    target_span: Span = (0, 0)  # in the words of the translation; set by `placement`

    @property
    def is_point(self) -> bool:
        """Whether this is a point."""
        return self.opening is not None and self.opening.type is ItemType.POINT

    @property
    def has_point(self) -> bool:
        """Whether there is a point in the element."""
        waiting = [*self.children]
        while waiting:
            node = waiting.pop()
            if node.is_point:
                return True
            waiting += node.children
        return False

    @property
    def needs_text(self) -> bool:
        """Whether the element may not be empty."""
        return any(end is not None and end.needs_text for end in (self.opening, self.closing))


class MarkupEvent(NamedTuple):
    """The start or the end of an element, or a point."""

    type: str  # "open", "close" or "point"
    node: Node


# The events and the blanks between two characters, in order. A blank is as in the document, such as
# "&nbsp;" or a line break with the marker of a quotation.
Gap = list[MarkupEvent | str]


def gap_events(gap: Gap) -> list[MarkupEvent]:
    """Return the events of a gap."""
    return [entry for entry in gap if not isinstance(entry, str)]


class MarkedText:
    """The text of a part, with each run of whitespace as one blank, and its markup.

    Args:
        items: the items of the part.
        document: the document that they are from.
    """

    def __init__(self, items: Sequence[Item], document: Document) -> None:
        self._document = document
        self._characters: list[str] = []
        self._gap: Gap = []  # since the last character that is not whitespace
        self._has_blank = False  # whether whitespace follows the last item or character
        self._done = 0  # the end in the document of the last item or character
        self._last_point: Node | None = None  # if nothing or only whitespace follows it
        self.root = Node(0, 0)
        self._open = [self.root]
        # The gap before the character at each position, if it has events.
        self.gaps: dict[int, Gap] = {}
        # The form in the document of each character whose form is not the usual one, such as
        # "&copy;", "\\*" or a line break.
        self.forms: dict[int, str] = {}
        handlers = {
            ItemType.TEXT: self._add_text,
            ItemType.POINT: self._add_point,
            ItemType.OPEN: self._open_element,
            ItemType.CLOSE: self._close_element,
        }
        for item in items:
            handlers[item.type](item)
        self.text = "".join(self._characters)
        if gap_events(self._gap):
            self.gaps[len(self.text)] = self._gap
        for node in self._open:
            node.last = len(self.text)
        for node in self._open[1:]:
            node.anchor = "end"

    def __bool__(self) -> bool:
        return bool(self.root.children)

    @property
    def has_words(self) -> bool:
        """Whether there is anything to translate."""
        return any(character.isalpha() for character in self.text)

    def _add_text(self, item: Item) -> None:
        is_plain = len(item.text) == item.end - item.start
        for index, character in enumerate(item.text):
            start = item.start + index if is_plain else item.start
            end = start + 1 if is_plain else item.end
            if character.isspace():
                self._has_blank = True
                continue
            self._end_blank(start)
            self._done = end
            if is_plain or len(item.text) == 1:
                form = self._document.text[start:end]
            else:
                form = self._document.encode(character)
            self._add_character(character, form, item.text[index + 1 : index + 2])

    def _end_blank(self, position: int) -> None:
        """Add the blank that ends at a position of the document, if there is one, to the gap."""
        if self._has_blank:
            self._gap.append(self._document.text[self._done : position])
        self._has_blank = False

    def _add_character(self, character: str, form: str, following: str) -> None:
        blanks = [entry for entry in self._gap if isinstance(entry, str)]
        if self._last_point is not None:
            self._last_point.after = " " if self._ends_with_blank() else character
            self._last_point = None
        if self._characters and self._needs_blank(character, following):
            self._add(" ", blanks[-1] if blanks else " ")
        if gap_events(self._gap):
            self.gaps[len(self._characters)] = self._gap
        self._add(character, form)
        self._gap = []

    def _ends_with_blank(self) -> bool:
        return bool(self._gap) and isinstance(self._gap[-1], str)

    def _add(self, character: str, form: str) -> None:
        is_usual = form == character and character.isalnum()
        if not is_usual and form != self._document.encode(character):
            self.forms[len(self._characters)] = form
        self._characters.append(character)

    def _needs_blank(self, character: str, following: str) -> bool:
        """Return whether the model reads a blank before the next character.

        Args:
            character: the next character.
            following: the character after it, or "".
        """
        points = [
            index
            for index, entry in enumerate(self._gap)
            if not isinstance(entry, str) and entry.type == "point"
        ]
        if not points:
            return any(isinstance(entry, str) for entry in self._gap)
        if any(isinstance(entry, str) for entry in self._gap[points[-1] :]):
            return True
        if any(isinstance(entry, str) for entry in self._gap):
            return character not in CLOSING_MARKS or following.isalnum()
        return self._characters[-1].isalnum() and character.isalnum()

    def _add_point(self, item: Item) -> None:
        siblings = self._open[-1].children
        point = self._last_point
        if point is not None and point.opening is not None and siblings[-1:] == [point]:
            point.opening = point.opening._replace(end=item.end)  # adjacent points become one
            self._has_blank = False
            self._done = item.end
            return
        self._end_blank(item.start)
        is_blank = not self._characters or self._ends_with_blank()
        before = " " if is_blank else self._characters[-1]
        point = Node(len(self._characters), len(self._characters), item, before=before)
        siblings.append(point)
        self._gap.append(MarkupEvent("point", point))
        self._last_point = point
        self._done = item.end

    def _open_element(self, item: Item) -> None:
        self._end_blank(item.start)
        node = Node(len(self._characters), len(self._characters), item)
        self._gap.append(MarkupEvent("open", node))
        self._open[-1].children.append(node)
        self._open.append(node)
        self._done = item.end

    def _close_element(self, item: Item) -> None:
        self._end_blank(item.start)
        node = self._open[-1]
        if node.opening is not None and node.opening.pair == item.pair:
            self._open.pop()
        elif node is not self.root:
            raise AssertionError(f"elements are not nested: {item}")
        else:  # the element begins before this part, and contains all items up to here
            node = Node(0, 0, anchor="start", children=self.root.children)
            self.root.children = [node]
        node.last = len(self._characters)
        node.closing = item
        self._gap.append(MarkupEvent("close", node))
        self._done = item.end
