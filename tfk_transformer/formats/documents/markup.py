"""The text of a part as a model translates it, with a tree of its markup, and its placement."""

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tfk_transformer.formats.documents.items import Document, Item, ItemType
from tfk_transformer.text.alignment import TAKEN, UNLINKED, Alignment
from tfk_transformer.text.kept_characters import is_unspaced
from tfk_transformer.text.words import Span

# Marks that follow a word without a blank, even where the source has a blank and a point there.
CLOSING_MARKS = ",.;:!?)]}»”’…%"
ALL_CLOSING_MARKS = f"{CLOSING_MARKS}，。、；：！？）」』】》"
BAD_START = 1.5  # how many characters nearer a line may begin with a closing mark
UNALIGNED = (ItemType.TEXT, ItemType.BORDER)
# Elements that continue in the part before or after get their words first.
ORDER = {"start": 0, "end": 1, "": 2}


@dataclass(eq=False)
class Node:
    """An inline element, a point, the text up to a border or after it, or the root of a part."""

    first: int  # the node is text[first:last]
    last: int
    opening: Item | None = None  # None in the root, and if the element begins before the part
    # None in the root, in points, and if the element ends after the part.
    closing: Item | None = None
    anchor: str = ""  # "start" or "end" if the element begins before the part or ends after it
    before: str = " "  # of points: the source's character before it, " " if there is none
    after: str = " "  # of points: the source's character after it
    children: list["Node"] = field(default_factory=list)
    has_point: bool = False  # whether there is a point in the element
    is_piece: bool = False  # whether it is one of the pieces of its parent, divided by borders
    target_span: Span = (0, 0)  # in the words of the translation; set by `place_markup`

    @property
    def is_point(self) -> bool:
        """Whether this is a point, and not an element."""
        return self.opening is not None and self.opening.type is ItemType.POINT

    @property
    def needs_text(self) -> bool:
        """Whether the element may not be empty."""
        return any(end is not None and end.needs_text for end in (self.opening, self.closing))


class MarkupEvent(NamedTuple):
    """The start or the end of an element, a point, or a border."""

    type: ItemType  # OPEN, CLOSE, POINT or BORDER
    node: Node


# The events and the blanks between two characters, in order. A blank is as in the document, such as
# "&nbsp;" or a line break with the marker of a quotation.
Gap = list[MarkupEvent | str]


def gap_events(gap: Gap) -> list[MarkupEvent]:
    """Return the events of a gap."""
    return [entry for entry in gap if not isinstance(entry, str)]


class MarkedText:
    """The text of some items, with each run of whitespace as one blank, and its markup."""

    def __init__(self, items: Sequence[Item], document: Document) -> None:
        self._document = document
        self._characters: list[str] = []
        self._gap: Gap = []  # since the last character that is not whitespace
        self._has_blank = False  # whether whitespace follows the last item or character
        self._done = 0  # the end in the document of the last item or character
        self._last_point: Node | None = None  # if nothing or only whitespace follows it
        # Whether attention places anything: borders divide words in proportion.
        self.needs_attention = any(item.type not in UNALIGNED for item in items)
        self.root = Node(0, 0)
        self._open = [self.root]  # the elements around the next item
        # The gap before the character at each position, if it has events.
        self.gaps: dict[int, Gap] = {}
        # The form in the document of each character whose form is not the usual one, such as
        # "&copy;", "\\*" or a line break.
        self.forms: dict[int, str] = {}
        for item in items:
            if item.type is ItemType.TEXT:
                self._add_text(item)
            else:
                self._add_markup(item)
        self.text = "".join(self._characters)
        if gap_events(self._gap):
            self.gaps[len(self.text)] = self._gap
        for node in self._open:
            node.last = len(self.text)
        for node in self._open[1:]:
            node.anchor = "" if node.is_piece else "end"

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
            self._end_gap(character, item.text[index + 1 : index + 2])
            self._add(character, form)

    def _end_blank(self, position: int) -> None:
        """Add the blank that ends at a position of the document, if there is one, to the gap."""
        if self._has_blank:
            self._gap.append(self._document.text[self._done : position])
        self._has_blank = False

    def _ends_with_blank(self) -> bool:
        return bool(self._gap) and isinstance(self._gap[-1], str)

    def _end_gap(self, character: str, following: str) -> None:
        """End the gap before a character, with the blank that the model reads there, if any."""
        if self._last_point is not None:
            self._last_point.after = " " if self._ends_with_blank() else character
            self._last_point = None
        if self._characters and self._needs_blank(character, following):
            blanks = [entry for entry in self._gap if isinstance(entry, str)]
            self._add(" ", blanks[-1] if blanks else " ")
        if gap_events(self._gap):
            self.gaps[len(self._characters)] = self._gap
        self._gap = []

    def _add(self, character: str, form: str) -> None:
        is_usual = form == character and character.isalnum()
        if not is_usual and form != self._document.encode(character):
            self.forms[len(self._characters)] = form
        self._characters.append(character)

    def _needs_blank(self, character: str, following: str) -> bool:
        """Return whether the model reads a blank before a character, which another may follow."""
        types = [None if isinstance(entry, str) else entry.type for entry in self._gap]
        if ItemType.BORDER in types:
            return True
        has_blank = None in types
        if ItemType.POINT not in types:
            return has_blank
        if None in types[::-1][: types[::-1].index(ItemType.POINT)]:  # after the last point
            return True
        if has_blank:
            return character not in CLOSING_MARKS or following.isalnum()
        return self._characters[-1].isalnum() and character.isalnum()

    def _add_markup(self, item: Item) -> None:
        is_point = item.type is ItemType.POINT
        last = self._last_point
        if is_point and last and last.opening and self._open[-1].children[-1:] == [last]:
            last.opening = last.opening._replace(end=item.end)  # adjacent points become one
            self._has_blank = False
        else:
            if item.type is ItemType.BORDER:
                self._begin_piece()
            self._end_blank(item.start)
            add = self._close_element if item.type is ItemType.CLOSE else self._add_node
            self._gap.append(MarkupEvent(item.type, add(item)))
        self._done = item.end

    def _add_node(self, item: Item) -> Node:
        """Add an element, a point or a piece to the open element."""
        position = len(self._characters)
        node = Node(position, position, item, is_piece=item.type is ItemType.BORDER)
        self._open[-1].children.append(node)
        if item.type is not ItemType.POINT:
            self._open.append(node)
            return node
        if self._characters and not self._ends_with_blank():
            node.before = self._characters[-1]
        self._last_point = node
        for outer in reversed(self._open):  # around an element with a point, all have one
            if outer.has_point:
                break
            outer.has_point = True
        return node

    def _begin_piece(self) -> None:
        """End the piece before a border, which is the content of the open element so far."""
        self._close_piece()
        node = self._open[-1]
        if not any(child.is_piece for child in node.children):
            first = Node(node.first, len(self._characters), is_piece=True, children=node.children)
            node.children = [first]
        self._has_blank = False

    def _close_piece(self) -> None:
        """End the piece that began at the last border inside of the open element, if any."""
        if self._open[-1].is_piece:
            self._open.pop().last = len(self._characters)

    def _close_element(self, item: Item) -> Node:
        self._close_piece()
        node = self._open[-1]
        if node.opening is not None and node.opening.pair == item.pair:
            self._open.pop()
        elif node is not self.root:
            raise AssertionError(f"elements are not nested: {item}")
        else:  # the element begins before this part, and contains all items up to here
            root = self.root
            node = Node(0, 0, anchor="start", children=root.children, has_point=root.has_point)
            self.root.children = [node]
        node.last = len(self._characters)
        node.closing = item
        return node


def place_markup(root: Node, alignment: Alignment, target: str) -> None:
    """Set the target spans of all nodes below a root, whose own span is set."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.children and node.children[0].is_piece:
            _divide(node, alignment.target, target)
            waiting += node.children
            continue
        elements = [
            child
            for child in node.children
            if not child.is_point and alignment.words(child.first, child.last)
        ]
        for child in elements:  # without links, they are at the end of their parent
            child.target_span = (node.target_span[child.anchor != "start"],) * 2
        values = np.full(len(alignment.target), UNLINKED)  # TAKEN: in an element
        for child in sorted(elements, key=lambda child: ORDER[child.anchor]):
            child.target_span = _range(child, node, alignment, values)
            values[slice(*child.target_span)] = TAKEN
        _fill(elements, node, values)
        spans = sorted(child.target_span for child in elements if range(*child.target_span))
        others = set(node.children).difference(elements)
        for child in others:
            child.target_span = (_gap(child, node, alignment, spans),) * 2
        node.children.sort(key=lambda child: child.target_span)
        waiting += node.children


def _divide(node: Node, words: Sequence[Span], target: str) -> None:
    """Divide the target words of a node among its pieces, in proportion to their characters.

    Where the words are too few for all pieces, borders that need no text are left out.
    """
    first, last = node.target_span
    gaps = [n for n in range(first + 1, last) if _can_divide(target, words[n][0])]
    missing = len(node.children) - 1 - len(gaps)
    pieces = node.children[:1]
    for piece in node.children[1:]:
        if missing > 0 and not piece.needs_text:
            missing -= 1
            pieces[-1].children += piece.children
            pieces[-1].last = piece.last
        else:
            pieces.append(piece)
    start, end = (words[first][0], words[last - 1][1]) if first < last else (0, 0)
    scale = (end - start) / max(1, node.last - node.first)
    ends = [words[n - 1][1] for n in gaps]
    penalties = [BAD_START * (target[words[n][0]] in ALL_CLOSING_MARKS) for n in gaps]
    borders = [first]
    low = 0
    for high, piece in enumerate(pieces[1:], len(gaps) + 2 - len(pieces)):  # gaps[low:high] is free
        position = start + (piece.first - node.first) * scale
        near = bisect.bisect_left(ends, position)
        window = range(max(low, min(near, high - 1) - 2), min(high, max(near, low) + 3))
        costs = ((abs(ends[n] - position) + penalties[n], n) for n in window)
        _, nearest = min(costs, default=(0.0, len(gaps)))
        borders.append(gaps[nearest] if nearest < len(gaps) else last)
        low = nearest + 1
    for piece, span in zip(pieces, itertools.pairwise([*borders, last]), strict=True):
        piece.target_span = span
    node.children = pieces


def _can_divide(text: str, position: int) -> bool:
    """Return whether a line can begin at a position of a text."""
    before, after = text[position - 1], text[position]
    if before.isspace():
        return True
    return after not in ALL_CLOSING_MARKS and (is_unspaced(before) or is_unspaced(after))


def _range(child: Node, node: Node, alignment: Alignment, values: np.ndarray) -> Span:
    """Return the target words of an element, different from its neighbors'."""
    first, last = node.target_span
    inside = alignment.words(child.first, child.last)
    if TAKEN not in values and inside == alignment.words(node.first, node.last):
        return node.target_span
    if child.anchor == "start" and any(other.anchor == "end" for other in node.children):
        last = max(first, last - 1)
    start, end = alignment.best_range(inside, first, last, values, child.anchor)
    return child.target_span if start == end else (start, end)


def _fill(elements: Sequence[Node], node: Node, values: np.ndarray) -> None:
    """Give the last free word of a node to each of its elements that may not be empty."""
    first, last = node.target_span
    filled = [n for n, child in enumerate(elements) if range(*child.target_span)]
    latest = max(filled, default=-1)  # the last element with a word
    moved: set[Node] = set()
    for n, child in enumerate(elements):
        if not child.needs_text or child.has_point or range(*child.target_span):
            continue
        free = np.flatnonzero(values[first:last] == UNLINKED)
        if free.size:
            word = first + int(free[0 if child.anchor == "start" else -1])
            child.target_span = (word, word + 1)
            values[word] = TAKEN
            latest = max(latest, n)
        elif latest >= 0 and not child.anchor:
            # Without a free word, the child moves into another element, and encloses its content.
            outer = elements[latest]
            child.first = outer.first
            child.last = outer.last
            outer.children.append(child)
            moved.add(child)
    node.children = [child for child in node.children if child not in moved]


def _gap(child: Node, node: Node, alignment: Alignment, spans: Sequence[Span]) -> int:
    """Return where to insert a point or an element without words: outside of other elements.

    `spans` are those of the elements, in order. At an end of a piece, it stays there.
    """
    if node.is_piece and child.first in (node.first, node.last):
        return node.target_span[child.first > node.first]
    before = bisect.bisect_left(alignment.source, (child.first, 0))
    gap = alignment.best_gap(before, *node.target_span)
    start, end = spans[max(0, bisect.bisect_left(spans, (gap, 0)) - 1)] if spans else (0, 0)
    if start < gap < end:
        return start if gap - start < end - gap else end
    return gap
