"""Places in a translation for the markup of its source."""

from tfk_transformer.documents.alignment import Alignment
from tfk_transformer.documents.markup import Node

# Elements that cross the ends of a part get their words first.
ORDER = {"start": 0, "end": 1, "": 2}


def place(node: Node, alignment: Alignment) -> None:
    """Find the places of everything below a node whose own place is known.

    Elements beside each other get different words. What has no place is put at the end of the node.
    """
    elements = [child for child in node.children if _words(child, alignment) and not child.is_point]
    for child in elements:
        child.place = (node.place[child.anchor != "start"],) * 2
    for child in sorted(elements, key=lambda child: ORDER[child.anchor]):
        child.place = _range(child, node, alignment)
    for child in elements:
        if child.needs_text and _is_empty(child) and not child.has_point:
            _put_in_some_word(child, node)
    for child in node.children:
        if child not in elements:
            child.place = (_gap(child, node, alignment),) * 2
    node.children.sort(key=lambda child: child.place)
    for child in node.children:
        place(child, alignment)


def _is_empty(node: Node) -> bool:
    return node.place[0] == node.place[1]


def _range(child: Node, node: Node, alignment: Alignment) -> tuple[int, int]:
    """Return the target words of an element."""
    first, last = node.place
    taken = {word for other in node.children for word in range(*other.place)}
    inside = _words(child, alignment)
    if inside and not taken and inside == _words(node, alignment):
        return node.place
    if child.anchor == "start" and any(other.anchor == "end" for other in node.children):
        last = max(first, last - 1)
    found = alignment.best_range(inside, first, last, taken, child.anchor)
    return child.place if found[0] == found[1] else found


def _words(node: Node, alignment: Alignment) -> set[int]:
    """Return the source words of a node."""
    return {
        n
        for n, (start, end) in enumerate(alignment.source)
        if start < node.last and end > node.first
    }


def _put_in_some_word(child: Node, node: Node) -> None:
    """Give an element that may not be empty the last free word of a node, or else move it around
    that word inside another element.
    """
    first, last = node.place
    taken = {word for other in node.children for word in range(*other.place)}
    free = [word for word in range(first, last) if word not in taken]
    if free:
        word = free[0 if child.anchor == "start" else -1]
        child.place = (word, word + 1)
    elif holders := [other for other in node.children if not child.anchor and not _is_empty(other)]:
        node.children.remove(child)
        child.first, child.last = holders[-1].first, holders[-1].last
        holders[-1].children.append(child)


def _gap(child: Node, node: Node, alignment: Alignment) -> int:
    """Return the place, between target words and outside of the elements beside it, of a point or
    of an element with nothing but points.
    """
    before = sum(start < child.first for start, _ in alignment.source)
    gap = alignment.best_gap(before, *node.place)
    for other in node.children:
        start, end = other.place
        if start < gap < end:
            return start if gap - start < end - gap else end
    return gap
