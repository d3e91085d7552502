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
    """Writes `target`, the translation of a part whose markup is placed, with this markup.

    `alignment` is the alignment of `marked.text` and `target`.
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
        """Return the translation with its markup, its texts written by `escape`.

        With `is_spaced`, elements that may not be empty never touch a word or each other.
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
        """Yield the characters [start:end] of the translation, some in the form of the source."""
        for position in range(start, end):
            form = self._forms.get(position)
            yield (False, self._target[position]) if form is None else (True, form)

    def _markup_gap(self, word: int, is_spaced: bool) -> Gap:
        """Return the markup and the blanks before a target word.

        The blanks are as in the source where the markup and the words around it are.
        """
        events = self._events[word]
        position = self._positions[events[0]]
        gap = self._marked.gaps[position]
        touches = is_spaced and len(gap) == len(events) and any(e.node.needs_text for e in events)
        if gap_events(gap) == events and not touches and self._is_like_source(word, position):
            return gap
        return _spaced(events, word_gap(self._target, self._alignment.target, word), is_spaced)

    def _markup_piece(self, entry: MarkupEvent | str, pieces: Sequence[Piece]) -> Piece:
        """Return the piece of an entry of a gap, which follows other pieces.

        A link whose label is its key gets the key if it has another label.
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

        The gaps are the one before a target word and the one at a position of the source. The blank
        that the model reads, the one that it writes, and the scripts of the words must also be
        alike.
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
    """Return the form in the document, such as "&copy;", of each character that the model copied.

    The keys are positions in the translation.
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
    text: list[str] = []
    for is_written, piece in [*pieces, (True, "")]:
        if is_written:
            yield from (escape("".join(text), piece), piece)
            text.clear()
        else:
            text.append(piece)


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
    """Return whether there is a blank between a point and the word before or after it.

    `neighbor` is the character on that side of the point in the source.
    """
    near, far = (around.right, around.left) if is_after else (around.left, around.right)
    if not near:
        return False
    if neighbor == " ":
        takes_blank = (
            unicodedata.category(near) in ("Ps", "Pi") if is_after else near in CLOSING_MARKS
        )
        return bool(around.blank) or not far or near.isalnum() or takes_blank
    is_word = neighbor.isalnum() and is_unspaced(neighbor) == is_unspaced(near)
    return bool(around.blank) and near.isalnum() and not is_word


def _run_length(events: Iterable[MarkupEvent], type: str) -> int:
    """Return the number of events of a type before the first event of another type."""
    return len(list(itertools.takewhile(lambda event: event.type == type, events)))
