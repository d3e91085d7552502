"""A translation written with the markup of its source."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tfk_transformer.documents.markup import Node
from tfk_transformer.documents.words import Span


class OutputEvent(NamedTuple):
    """A target word, the beginning or end of an element, or a point, in the order of the
    translation.
    """

    kind: str  # "word", "open", "close", "point"
    markup: str = ""
    word: int = -1
    node: Node | None = None


def written(
    root: Node,
    target: str,
    places: Sequence[Span],
    document: str,
    escaped: Callable[[str, str], str],
) -> str:
    """Return a translation with markup.

    Args:
        root: the markup, which is placed.
        target: the translation.
        places: its words.
        document: the document that the markup is from.
        escaped: see `Document`.
    """
    found: list[tuple[bool, str]] = []  # whether it is markup, and the piece
    gap: list[OutputEvent] = []
    done = 0
    for event in [*_events(root, document), OutputEvent("word", word=len(places))]:
        if event.kind != "word":
            gap.append(event)
            continue
        start, end = places[event.word] if event.word < len(places) else (len(target),) * 2
        found += [*_gap(gap, target, done, start), (False, target[start:end])]
        gap, done = [], end
    return "".join(_joined(found, escaped))


def _joined(found: Sequence[tuple[bool, str]], escaped: Callable[[str, str], str]) -> Iterator[str]:
    """Yield the pieces, those of text side by side escaped as one."""
    text = ""
    for is_markup, piece in [*found, (True, "")]:
        if is_markup:
            yield from (escaped(text, piece), piece)
        text = "" if is_markup else text + piece


def _events(node: Node, document: str) -> Iterator[OutputEvent]:
    here, last = node.place
    for child in node.children:
        yield from (OutputEvent("word", word=word) for word in range(here, child.place[0]))
        opening, closing = (
            "" if end is None else document[end.start : end.end]
            for end in (child.opening, child.closing)
        )
        if child.is_point:
            yield OutputEvent("point", opening, node=child)
        else:
            yield OutputEvent("open", opening)
            yield from _events(child, document)
            yield OutputEvent("close", closing)
        here = child.place[1]
    yield from (OutputEvent("word", word=word) for word in range(here, last))


def _gap(
    events: Sequence[OutputEvent], target: str, start: int, end: int
) -> Iterator[tuple[bool, str]]:
    """Yield the markup between two words, which are before target[start:end] and behind it, and the
    blanks.

    Blanks are outside of elements. Points have blanks beside them where they have some in the
    source.
    """
    blank, left, right = target[start:end], target[:start][-1:], target[end:][:1]
    points = [n for n, event in enumerate(events) if event.kind == "point"]
    spaces: set[int] = set()  # the numbers of events with a blank before them
    for n in points:
        node = events[n].node
        assert node is not None
        if n != points[0] or _has_blank(node.before, left, right, blank):
            spaces.add(
                _outside(events, n, -1, "open") if node.before == " " or n == points[0] else n
            )
        if n == points[-1] and _has_blank(node.after, right, left, blank):
            spaces.add(_outside(events, n + 1, 1, "close"))
    if blank and not spaces:
        depths = itertools.accumulate(
            ({"open": 1, "close": -1}.get(event.kind, 0) for event in events), initial=0
        )
        spaces.add(min(enumerate(depths), key=lambda pair: pair[1])[0])
    for n in range(len(events) + 1):
        if n in spaces:
            yield False, blank or " "
        if n < len(events):
            yield True, events[n].markup


def _has_blank(beside: str, near: str, far: str, blank: str) -> bool:
    """Return whether there is a blank between a point and the target's character near it.

    Args:
        beside: the character beside the point in the source.
        near: the target's character on that side, "" at the target's end.
        far: the target's character on the other side.
        blank: the target's blank at the place of the point, or "".
    """
    if not near:
        return False
    if beside == " ":
        return bool(blank) or not far or near.isalnum()
    return bool(blank) and near.isalnum() and not beside.isalnum()


def _outside(events: Sequence[OutputEvent], n: int, step: int, kind: str) -> int:
    """Return the place before event `n`, moved over the events of a kind before it (step -1) or
    from it on (step 1).
    """
    while 0 <= (beside := n - (step < 0)) < len(events) and events[beside].kind == kind:
        n += step
    return n
