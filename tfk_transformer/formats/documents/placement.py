"""Positions in a translation for the markup of its source."""

from tfk_transformer.formats.documents.markup import Node
from tfk_transformer.text.alignment import Alignment
from tfk_transformer.text.words import Span

# Elements that continue in the part before or after get their words first.
ORDER = {"start": 0, "end": 1, "": 2}


def place_markup(root: Node, alignment: Alignment) -> None:
    """Set the target spans of all nodes below a root, whose own span is set.

    Neighboring elements get different words. Markup without links is put at the end of its parent.
    """
    waiting = [root]
    while waiting:
        node = waiting.pop()
        _place_children(node, alignment)
        waiting += node.children


def _place_children(node: Node, alignment: Alignment) -> None:
    elements = [child for child in node.children if _words(child, alignment) and not child.is_point]
    for child in elements:
        child.target_span = (node.target_span[child.anchor != "start"],) * 2
    for child in sorted(elements, key=lambda child: ORDER[child.anchor]):
        child.target_span = _range(child, node, alignment)
    for child in elements:
        if child.needs_text and _is_empty(child) and not child.has_point:
            _assign_word(child, node)
    for child in node.children:
        if child not in elements:
            child.target_span = (_gap(child, node, alignment),) * 2
    node.children.sort(key=lambda child: child.target_span)


def _is_empty(node: Node) -> bool:
    return node.target_span[0] == node.target_span[1]


def _range(child: Node, node: Node, alignment: Alignment) -> Span:
    """Return the target words of an element."""
    first, last = node.target_span
    taken = _taken(node)
    inside = _words(child, alignment)
    if inside and not taken and inside == _words(node, alignment):
        return node.target_span
    if child.anchor == "start" and any(other.anchor == "end" for other in node.children):
        last = max(first, last - 1)
    start, end = alignment.best_range(inside, first, last, taken, child.anchor)
    return child.target_span if start == end else (start, end)


def _words(node: Node, alignment: Alignment) -> set[int]:
    """Return the source words of a node."""
    return {
        word
        for word, (start, end) in enumerate(alignment.source)
        if start < node.last and end > node.first
    }


def _taken(node: Node) -> set[int]:
    """Return the target words that the children of a node have."""
    return set[int]().union(*(range(*child.target_span) for child in node.children))


def _assign_word(child: Node, node: Node) -> None:
    """Give the last free word of a node to a child that may not be empty.

    If no word is free, the child moves into another element, and encloses that element's content.
    """
    taken = _taken(node)
    free = [word for word in range(*node.target_span) if word not in taken]
    if free:
        word = free[0 if child.anchor == "start" else -1]
        child.target_span = (word, word + 1)
        return
    filled = [other for other in node.children if not _is_empty(other)]
    if filled and not child.anchor:
        node.children.remove(child)
        child.first = filled[-1].first
        child.last = filled[-1].last
        filled[-1].children.append(child)


def _gap(child: Node, node: Node, alignment: Alignment) -> int:
    """Return the index in the target at which to insert a point or an element without words.

    The index is outside of the other elements of the node.
    """
    before = sum(start < child.first for start, _ in alignment.source)
    gap = alignment.best_gap(before, *node.target_span)
    for other in node.children:
        start, end = other.target_span
        if start < gap < end:
            return start if gap - start < end - gap else end
    return gap
