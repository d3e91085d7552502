"""The text of a part as a model translates it, with a tree of the markup in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tfk_transformer.documents.items import Item, ItemType


@dataclass(eq=False)
class Node:
    """An inline element, a point, or the root of a part."""

    first: int  # place in the text, in characters
    last: int
    opening: Item | None = None  # None in the root, and where the element begins before the part
    # None in the root, in points, and where the element ends after the part.
    closing: Item | None = None
    anchor: str = ""  # "start" or "end" if the element begins before the part or ends after it
    before: str = " "  # of points: the character beside them in the source, " " if there is none
    after: str = " "
    children: list["Node"] = field(default_factory=list)
    place: tuple[int, int] = (0, 0)  # in the translation, in words: what `placement` finds

    @property
    def is_point(self) -> bool:
        """Whether this is no element."""
        return self.opening is not None and self.opening.kind is ItemType.POINT

    @property
    def has_point(self) -> bool:
        """Whether there is a point in the element."""
        return any(child.is_point or child.has_point for child in self.children)

    @property
    def needs_text(self) -> bool:
        """Whether the element may not be empty."""
        return any(end is not None and end.needs_text for end in (self.opening, self.closing))


class Marked:
    """A part: its text, each run of whitespace a blank, and its markup.

    Args:
        items: the items of the part.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self._characters: list[str] = []
        self._blank = False  # whether whitespace was read behind the last character
        # The point right before, if nothing but whitespace follows it.
        self._waiting: Node | None = None
        self.root = Node(0, 0)
        self._open = [self.root]
        for item in items:
            {
                ItemType.TEXT: self._text,
                ItemType.POINT: self._point,
                ItemType.OPEN: self._opening,
                ItemType.CLOSE: self._closing,
            }[item.kind](item)
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

    def _text(self, item: Item) -> None:
        for character in item.text:
            if character.isspace():
                self._blank = True
            else:
                if self._waiting is not None:
                    self._waiting.after = " " if self._blank else character
                    self._blank |= self._waiting.before.isalnum() and character.isalnum()
                    self._waiting = None
                if self._blank and self._characters:
                    self._characters.append(" ")
                self._characters.append(character)
                self._blank = False

    def _point(self, item: Item) -> None:
        here = self._waiting
        if here is not None and here.opening is not None and self._open[-1].children[-1:] == [here]:
            here.opening = here.opening._replace(end=item.end)  # points side by side are one
        else:
            before = " " if self._blank or not self._characters else self._characters[-1]
            here = Node(len(self._characters), len(self._characters), item, before=before)
            self._open[-1].children.append(here)
        self._waiting, self._blank = here, False

    def _opening(self, item: Item) -> None:
        node = Node(len(self._characters), len(self._characters), item)
        self._open[-1].children.append(node)
        self._open.append(node)

    def _closing(self, item: Item) -> None:
        node = self._open[-1]
        if node.opening is not None and node.opening.pair == item.pair:
            self._open.pop()
        elif node is not self.root:
            raise AssertionError(f"elements are not nested: {item}")
        else:  # the element begins before this part, and has all that was read until now
            node = Node(0, 0, anchor="start", children=self.root.children)
            self.root.children = [node]
        node.last, node.closing = len(self._characters), item
