"""Write a translation with the markup of its source."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tfk_transformer.documents.items import Document, Item
from tfk_transformer.documents.markup import Node
from tfk_transformer.documents.words import Span

Piece = tuple[bool, str]  # whether it is markup, and its text


class OutputEvent(NamedTuple):
    """A target word, the start or end of an element, or a point, in the translation's order."""

    type: str  # "word", "open", "close" or "point"
    markup: str = ""
    word: int = -1
    node: Node | None = None


def insert_markup(root: Node, target: str, words: Sequence[Span], document: Document) -> str:
    """Return a translation with markup.

    Args:
        root: the markup, with the target span of each node.
        target: the translation.
        words: the spans of its words.
        document: the document that the markup comes from.
    """
    spans = [*words, (len(target), len(target))]
    pieces: list[Piece] = []
    gap: list[OutputEvent] = []
    done = 0
    for event in [*_events(root, document.text), OutputEvent("word", word=len(words))]:
        if event.type != "word":
            gap.append(event)
            continue
        start, end = spans[event.word]
        pieces += _gap(gap, target[:done][-1:], target[done:start], target[start:][:1])
        pieces.append((False, target[start:end]))
        gap = []
        done = end
    return "".join(_escape_texts(pieces, document.escape))


def _escape_texts(pieces: Sequence[Piece], escape: Callable[[str, str], str]) -> Iterator[str]:
    """Yield the pieces. Adjacent pieces of text are joined and escaped together."""
    text = ""
    for is_markup, piece in [*pieces, (True, "")]:
        if is_markup:
            yield from (escape(text, piece), piece)
        text = "" if is_markup else text + piece


def _events(node: Node, document: str) -> Iterator[OutputEvent]:
    position, last = node.target_span
    for child in node.children:
        start = child.target_span[0]
        yield from (OutputEvent("word", word=word) for word in range(position, start))
        opening = _markup(child.opening, document)
        if child.is_point:
            yield OutputEvent("point", opening, node=child)
        else:
            yield OutputEvent("open", opening)
            yield from _events(child, document)
            yield OutputEvent("close", _markup(child.closing, document))
        position = child.target_span[1]
    yield from (OutputEvent("word", word=word) for word in range(position, last))


def _markup(item: Item | None, document: str) -> str:
    return "" if item is None else document[item.start : item.end]


def _gap(events: Sequence[OutputEvent], left: str, blank: str, right: str) -> Iterator[Piece]:
    """Yield the markup and the blanks between two words.

    Blanks are outside of elements. A point has a blank next to it if it has one in the source.

    Args:
        events: the markup.
        left: the last character of the word before it, "" at the start of the target.
        blank: the target's blank between the words, or "".
        right: the first character of the word after it, "" at the end of the target.
    """
    points = [index for index, event in enumerate(events) if event.type == "point"]
    spaces: set[int] = set()  # the indices of events with a blank before them
    for index in points:
        node = events[index].node
        assert node is not None
        is_first = index == points[0]
        if not is_first or _has_blank(node.before, left, right, blank):
            outside = index - _run_length(reversed(events[:index]), "open")
            spaces.add(outside if is_first or node.before == " " else index)
        if index == points[-1] and _has_blank(node.after, right, left, blank):
            spaces.add(index + 1 + _run_length(events[index + 1 :], "close"))
    if blank and not spaces:
        steps = ({"open": 1, "close": -1}.get(event.type, 0) for event in events)
        depths = list(itertools.accumulate(steps, initial=0))
        spaces.add(depths.index(min(depths)))
    for index in range(len(events) + 1):
        if index in spaces:
            yield False, blank or " "
        if index < len(events):
            yield True, events[index].markup


def _has_blank(neighbor: str, near: str, far: str, blank: str) -> bool:
    """Return whether there is a blank between a point and the target's character near it.

    Args:
        neighbor: the character next to the point in the source.
        near: the target's character on that side, "" at the target's end.
        far: the target's character on the other side.
        blank: the target's blank at the position of the point, or "".
    """
    if not near:
        return False
    if neighbor == " ":
        return bool(blank) or not far or near.isalnum()
    return bool(blank) and near.isalnum() and not neighbor.isalnum()


def _run_length(events: Iterable[OutputEvent], type: str) -> int:
    """Return the number of events of a type before the first event of another type."""
    return len(list(itertools.takewhile(lambda event: event.type == type, events)))
