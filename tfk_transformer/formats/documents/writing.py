"""Write a translation with the markup of its source."""

import bisect
import html
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from tfk_transformer.formats.documents.items import Document
from tfk_transformer.formats.documents.markup import (
    CLOSING_MARKS,
    Gap,
    MarkedText,
    MarkupEvent,
    Node,
    gap_events,
)
from tfk_transformer.text.alignment import Alignment
from tfk_transformer.text.kept_characters import is_unspaced
from tfk_transformer.text.words import Span, word_spans

Escape = Callable[[str, str], str]
Piece = tuple[bool, str]  # whether it is written as it is, and its text
REFERENCE = re.compile(r"&#?\w+;?|<[A-Za-z/!?]")  # it may be a character reference or a tag


class WordGap(NamedTuple):
    """The characters around and between two words of a text."""

    left: str  # the last character of the word before, "" at the start of the text
    blank: str  # the whitespace between the words
    right: str  # the first character of the word after, "" at the end of the text

    @property
    def is_unspaced(self) -> list[bool]:
        """Whether each of the words is of a script without blanks between words."""
        return [bool(side) and is_unspaced(side) for side in (self.left, self.right)]


def word_gap(text: str, words: Sequence[Span], index: int) -> WordGap:
    """Return the gap before a word, or the one at the end if `index` is the number of words."""
    end = words[index - 1][1] if index else 0
    start = words[index][0] if index < len(words) else len(text)
    return WordGap(text[:end][-1:], text[end:start], text[start:][:1])


class PartWriter:
    """Writes the translation of a part of a document.

    Args:
        marked: the part. The target spans of its nodes are set.
        target: the translation.
        alignment: the alignment of `marked.text` and `target`.
        document: the document.
    """

    def __init__(
        self, marked: MarkedText, target: str, alignment: Alignment, document: Document
    ) -> None:
        self._marked = marked
        self._target = target
        self._alignment = alignment
        self._document = document.text
        ends = (len(alignment.source), len(alignment.target))
        self._links = {(-1, -1), *alignment.links, ends}
        self._forms = copied_forms(marked, target)
        self._events: list[list[MarkupEvent]] = [[] for _ in range(len(alignment.target) + 1)]
        for word, event in _events(marked.root):
            self._events[word].append(event)
        self._starts: dict[Node, int] = {}  # the number of pieces up to the start of each element
        self._positions = {
            event: position for position, gap in marked.gaps.items() for event in gap_events(gap)
        }

    def written(self, escape: Escape, is_spaced: bool = False) -> str:
        """Return the translation with its markup.

        Args:
            escape: (text, the markup that follows it, or "") -> the text in the document's format.
            is_spaced: whether elements that may not be empty never touch a word or each other.
        """
        pieces: list[Piece] = []
        done = 0
        for word, (start, end) in enumerate([*self._alignment.target, (len(self._target),) * 2]):
            if self._events[word]:
                for entry in self._markup_gap(word, is_spaced):
                    pieces.append(self._markup_piece(entry, pieces))
            else:
                pieces += self._text_pieces(done, start)
            pieces += self._text_pieces(start, end)
            done = end
        return "".join(_escape_texts(pieces, escape))

    def _text_pieces(self, start: int, end: int) -> Iterator[Piece]:
        """Yield the characters [start:end] of the translation."""
        done = start
        for position in range(start, end) if self._forms else ():
            if position in self._forms:
                yield (False, self._target[done:position])
                yield (True, self._forms[position])
                done = position + 1
        yield (False, self._target[done:end])

    def _markup_gap(self, word: int, is_spaced: bool) -> Gap:
        """Return the markup and the blanks before a target word.

        The blanks are as in the source where the markup and the words around it are.

        Args:
            word: the index of the target word.
            is_spaced: as in `written`.
        """
        events = self._events[word]
        position = self._positions[events[0]]
        gap = self._marked.gaps[position]
        touches = is_spaced and len(gap) == len(events) and any(e.node.needs_text for e in events)
        if gap_events(gap) == events and not touches and self._is_like_source(word, position):
            return gap
        return _spaced(events, word_gap(self._target, self._alignment.target, word), is_spaced)

    def _markup_piece(self, entry: MarkupEvent | str, pieces: Sequence[Piece]) -> Piece:
        """Return the piece of an entry of a gap.

        A link whose label is its key gets the key if it has another label.

        Args:
            entry: the entry.
            pieces: the pieces before it.
        """
        if isinstance(entry, str):
            return (entry != " ", entry)
        opening, closing = entry.node.opening, entry.node.closing
        if entry.type != "close":
            self._starts[entry.node] = len(pieces) + 1
            return (True, self._document[opening.start : opening.end] if opening else "")
        if closing is None:
            return (True, "")
        if closing.explicit and opening is not None:
            label = "".join(piece for _, piece in pieces[self._starts[entry.node] :])
            if label.split() != self._document[opening.end : closing.start].split():
                return (True, closing.explicit)
        return (True, self._document[closing.start : closing.end])

    def _is_like_source(self, word: int, position: int) -> bool:
        """Return whether the words around a gap are the translations of those around a source gap.

        The blank that the model reads, the one that it writes, and the scripts of the words must
        also be alike.

        Args:
            word: the index of the target word after the gap.
            position: the position of the gap in the source.
        """
        words = self._alignment.source
        right = bisect.bisect_left(words, (position, 0))
        source = word_gap(self._marked.text, words, right)
        target = word_gap(self._target, self._alignment.target, word)
        return (
            {(right - 1, word - 1), (right, word)} <= self._links
            and (right == 0 or words[right - 1][1] <= position)
            and bool(source.blank) == bool(target.blank)
            and source.is_unspaced == target.is_unspaced
        )


def copied_forms(marked: MarkedText, target: str) -> dict[int, str]:
    """Return the form in the document of each character that the model copied.

    Args:
        marked: the source.
        target: the translation.

    Returns:
        The form at each position of the translation that has one, such as "&copy;".
    """
    forms: dict[int, str] = {}
    if not marked.forms:
        return forms
    for position, copy in _copied_characters(marked.text, target):
        form = marked.forms.get(position)
        if form is None or marked.text[position] != target[copy]:
            continue
        if form not in ("&", "<") or _is_text(target, copy):
            forms[copy] = form
    return forms


def _is_text(text: str, position: int) -> bool:
    """Return whether a "&" or "<" in HTML does not begin a character reference or a tag."""
    match = REFERENCE.match(text, position)
    return match is None or (match[0][0] == "&" and html.unescape(match[0]) == match[0])


def _copied_characters(source: str, target: str) -> Iterator[tuple[int, int]]:
    """Yield the positions in both texts of the characters that the texts have in common."""
    source_words = word_spans(source)
    target_words = word_spans(target)
    matcher = SequenceMatcher(
        None,
        [source[start:end] for start, end in source_words],
        [target[start:end] for start, end in target_words],
        autojunk=False,
    )
    for first, second, count in matcher.get_matching_blocks():
        for index in range(count):
            start, end = source_words[first + index]
            copy = target_words[second + index][0]
            yield from zip(range(start, end), itertools.count(copy))
            if index < count - 1:  # the blank before the next word, if there is one
                yield end, copy + end - start


def _escape_texts(pieces: Iterable[Piece], escape: Escape) -> Iterator[str]:
    """Yield the pieces. Adjacent pieces of text are joined and escaped together."""
    text = ""
    for is_written, piece in [*pieces, (True, "")]:
        if is_written:
            yield from (escape(text, piece), piece)
        text = "" if is_written else text + piece


def _events(root: Node) -> Iterator[tuple[int, MarkupEvent]]:
    """Yield the starts and ends of elements and the points, with the target word after each."""
    waiting: list[Node | MarkupEvent] = [*reversed(root.children)]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, MarkupEvent):
            yield entry.node.target_span[1], entry
            continue
        if entry.opening is not None:
            event_type = "point" if entry.is_point else "open"
            yield entry.target_span[0], MarkupEvent(event_type, entry)
        if entry.closing is not None:
            waiting.append(MarkupEvent("close", entry))
        waiting += reversed(entry.children)


def _spaced(events: Sequence[MarkupEvent], around: WordGap, is_spaced: bool) -> Gap:
    """Return markup with the blanks between two words.

    Blanks are outside of elements. A point has a blank next to it if it has one in the source.

    Args:
        events: the markup.
        around: the words, and the translation's blank between them.
        is_spaced: as in `PartWriter.written`.
    """
    points = [index for index, event in enumerate(events) if event.type == "point"]
    blanks: set[int] = set()  # the indices of events with a blank before them
    for index in points:
        node = events[index].node
        is_first = index == points[0]
        if not is_first or _has_blank(node.before, around, is_after=False):
            outside = index - _run_length(reversed(events[:index]), "open")
            blanks.add(outside if is_first or node.before == " " else index)
        if index == points[-1] and _has_blank(node.after, around, is_after=True):
            blanks.add(index + 1 + _run_length(events[index + 1 :], "close"))
    needs_blank = is_spaced and any(event.node.needs_text for event in events)
    if not blanks and (around.blank or (needs_blank and around.left and around.right)):
        steps = ({"open": 1, "close": -1}.get(event.type, 0) for event in events)
        depths = list(itertools.accumulate(steps, initial=0))
        blanks.add(depths.index(min(depths)))
    gap: Gap = []
    for index, event in enumerate(events):
        gap += [around.blank or " ", event] if index in blanks else [event]
    return [*gap, around.blank or " "] if len(events) in blanks else gap


def _has_blank(neighbor: str, around: WordGap, is_after: bool) -> bool:
    """Return whether there is a blank between a point and the word on one side of it.

    Args:
        neighbor: the character on that side of the point in the source.
        around: the words around the point, and the translation's blank between them.
        is_after: whether the side is the one after the point.
    """
    near, far = (around.right, around.left) if is_after else (around.left, around.right)
    if not near:
        return False
    if neighbor == " ":
        return bool(around.blank) or not far or near.isalnum() or _takes_blank(near, is_after)
    is_word = neighbor.isalnum() and is_unspaced(neighbor) == is_unspaced(near)
    return bool(around.blank) and near.isalnum() and not is_word


def _takes_blank(mark: str, is_after: bool) -> bool:
    """Return whether a mark may have a blank on the side of a point that is before or after it."""
    if is_after:
        return unicodedata.category(mark) in ("Ps", "Pi")
    return mark in CLOSING_MARKS


def _run_length(events: Iterable[MarkupEvent], type: str) -> int:
    """Return the number of events of a type before the first event of another type."""
    return len(list(itertools.takewhile(lambda event: event.type == type, events)))
