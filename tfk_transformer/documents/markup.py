"""The text of a part as a model translates it, with a tree of the markup in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tfk_transformer.documents.items import Item, ItemType
from tfk_transformer.documents.words import Span


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
        return any(child.is_point or child.has_point for child in self.children)

    @property
    def needs_text(self) -> bool:
        """Whether the element may not be empty."""
        return any(end is not None and end.needs_text for end in (self.opening, self.closing))


class MarkedText:
    """The text of a part, with each run of whitespace as one blank, and its markup.

    Args:
        items: the items of the part.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self._characters: list[str] = []
        self._blank = False  # whether whitespace follows the last character
        self._last_point: Node | None = None  # if nothing or only whitespace follows it
        self.root = Node(0, 0)
        self._open = [self.root]
        handlers = {
            ItemType.TEXT: self._add_text,
            ItemType.POINT: self._add_point,
            ItemType.OPEN: self._open_element,
            ItemType.CLOSE: self._close_element,
        }
        for item in items:
            handlers[item.type](item)
        self.text = "".join(self._characters)
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
        for character in item.text:
            if character.isspace():
                self._blank = True
                continue
            if self._last_point is not None:
                self._last_point.after = " " if self._blank else character
                self._blank |= self._last_point.before.isalnum() and character.isalnum()
                self._last_point = None
            if self._blank and self._characters:
                self._characters.append(" ")
            self._characters.append(character)
            self._blank = False

    def _add_point(self, item: Item) -> None:
        siblings = self._open[-1].children
        point = self._last_point
        if point is not None and point.opening is not None and siblings[-1:] == [point]:
            point.opening = point.opening._replace(end=item.end)  # adjacent points become one
        else:
            before = " " if self._blank or not self._characters else self._characters[-1]
            point = Node(len(self._characters), len(self._characters), item, before=before)
            siblings.append(point)
        self._last_point = point
        self._blank = False

    def _open_element(self, item: Item) -> None:
        node = Node(len(self._characters), len(self._characters), item)
        self._open[-1].children.append(node)
        self._open.append(node)

    def _close_element(self, item: Item) -> None:
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
