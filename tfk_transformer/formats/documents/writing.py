"""Write a translation with the markup of its source."""

import bisect
import html
import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from tfk_transformer.formats.documents.items import Document, ItemType
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
# Of words in a text, and of pairs of equal words in both texts for each word.
MANY_WORDS, MANY_PAIRS = 400, 8
BLANKS = {"", " ", "\xa0", "\u202f", "\u3000"}
REFERENCE = re.compile(r"&#?\w+;?|<[A-Za-z/!?]")  # it may be a character reference or a tag


def word_gap(text: str, words: Sequence[Span], index: int) -> tuple[str, str, str]:
    """Return the last character before a gap between words, its blank, and the next character."""
    end = words[index - 1][1] if index else 0
    start = words[index][0] if index < len(words) else len(text)
    return text[max(0, end - 1) : end], text[end:start], text[start : start + 1]


class PartWriter:
    """Writes `target`, the translation of a part whose markup is placed, with this markup."""

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
        written: list[str] = []
        text = ""  # adjacent pieces of text are escaped together
        for is_written, piece in [*pieces, (True, "")]:
            if is_written:
                written += [escape(text, piece), piece]
                text = ""
            else:
                text += piece
        return "".join(written)

    def _text_pieces(self, start: int, end: int) -> Iterator[Piece]:
        """Yield the characters [start:end] of the translation, some in the form of the source."""
        for position in range(start, end):
            form = self._forms.get(position)
            yield (False, self._target[position]) if form is None else (True, form)

    def _markup_gap(self, word: int, is_spaced: bool) -> Gap:
        """Return the markup before a target word, with the source's blanks if both are alike."""
        events = self._events[word]
        position = self._positions[events[0]]
        gap = self._marked.gaps[position]
        touches = is_spaced and len(gap) == len(events) and any(e.node.needs_text for e in events)
        if gap_events(gap) == events and not touches and self._is_like_source(word, position):
            return gap
        left, blank, right = word_gap(self._target, self._alignment.target, word)
        borders = [index for index, event in enumerate(events) if event.type is ItemType.BORDER]
        if borders:  # they have a blank of their own, at which the text ends
            blank = ""
        elif blank not in BLANKS:  # it is written as it is
            blank = " "
        written: Gap = []
        for start, end in itertools.pairwise([-1, *borders, len(events)]):
            edge = right if end == len(events) else ""
            written += _spaced(events[start + 1 : end], left, blank, edge, is_spaced)
            written += events[end : end + 1]
            left = ""
        return written

    def _markup_piece(self, entry: MarkupEvent | str, pieces: Sequence[Piece]) -> Piece:
        """Return the piece of an entry of a gap, which follows other pieces."""
        if isinstance(entry, str):
            return (entry != " ", entry)
        opening, closing = entry.node.opening, entry.node.closing
        if entry.type is not ItemType.CLOSE:
            self._starts[entry.node] = len(pieces) + 1
            return (True, self._document[opening.start : opening.end] if opening else "")
        if closing is None:
            return (True, "")
        if closing.explicit and opening is not None:
            # A link whose label is its key gets the key if it has another label.
            label = "".join(piece for _, piece in pieces[self._starts[entry.node] :])
            if label.split() != self._document[opening.end : closing.start].split():
                return (True, closing.explicit)
        return (True, self._document[closing.start : closing.end])

    def _is_like_source(self, word: int, position: int) -> bool:
        """Return whether the gap before a target word has the source's words, blank and scripts."""
        words = self._alignment.source
        right = bisect.bisect_left(words, (position, 0))
        first, blank, last = word_gap(self._marked.text, words, right)
        target_first, target_blank, target_last = word_gap(
            self._target, self._alignment.target, word
        )
        return (
            {(right - 1, word - 1), (right, word)} <= self._links
            and (right == 0 or words[right - 1][1] <= position)
            and bool(blank) == bool(target_blank)
            and is_unspaced(first) == is_unspaced(target_first)
            and is_unspaced(last) == is_unspaced(target_last)
        )


def copied_forms(marked: MarkedText, target: str) -> dict[int, str]:
    """Return the form in the document, such as "&copy;", of each character that is copied."""
    forms: dict[int, str] = {}
    for position, copy in _copied_characters(marked.text, target) if marked.forms else ():
        form = marked.forms.get(position)
        if form is None or marked.text[position] != target[copy]:
            continue
        # "&" and "<" stay only where they do not begin a character reference or a tag.
        match = REFERENCE.match(target, copy) if form in ("&", "<") else None
        if match is None or (match[0][0] == "&" and html.unescape(match[0]) == match[0]):
            forms[copy] = form
    return forms


def _copied_characters(source: str, target: str) -> Iterator[tuple[int, int]]:
    """Yield the positions in both texts of the characters that the texts have in common."""
    words, copies = word_spans(source), word_spans(target)
    last: tuple[int, int] | None = None
    for word, copy in _copied_words(
        [source[start:end] for start, end in words], [target[start:end] for start, end in copies]
    ):
        if last == (word - 1, copy - 1):  # the blank before the word, if there is one
            yield words[word - 1][1], copies[copy - 1][1]
        yield from zip(range(*words[word]), range(*copies[copy]), strict=True)
        last = (word, copy)


def _copied_words(source: Sequence[str], target: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the indices of the words that are in both.

    Texts with many words are compared in parts: the time grows with the cube of the number of equal
    words.
    """
    counts = Counter(target)
    pairs = sum(counts[word] for word in source)
    limit = MANY_WORDS if pairs <= MANY_PAIRS * (len(source) + len(target)) else MANY_WORDS // 4
    parts = math.ceil(max(len(source), len(target)) / limit)
    for part in range(parts):
        first, first_end = (len(source) * (part + n) // parts for n in (0, 1))
        second, second_end = (len(target) * (part + n) // parts for n in (0, 1))
        words = (source[first:first_end], target[second:second_end])
        for block in SequenceMatcher(None, *words, autojunk=False).get_matching_blocks():
            for n in range(block.size):
                yield first + block.a + n, second + block.b + n


def _events(root: Node) -> Iterator[tuple[int, MarkupEvent]]:
    """Yield the starts and ends of elements and the points, with the target word after each."""
    waiting: list[Node | MarkupEvent] = [*reversed(root.children)]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, MarkupEvent):
            yield entry.node.target_span[1], entry
            continue
        if entry.opening is not None:
            yield entry.target_span[0], MarkupEvent(entry.opening.type, entry)
        if entry.closing is not None:
            waiting.append(MarkupEvent(ItemType.CLOSE, entry))
        waiting += reversed(entry.children)


def _spaced(
    events: Sequence[MarkupEvent], left: str, blank: str, right: str, is_spaced: bool
) -> Gap:
    """Return markup with the blanks between two words.

    They are outside of elements, and next to a point if it has one there in the source.
    """
    points = [index for index, event in enumerate(events) if event.type is ItemType.POINT]
    blanks: set[int] = set()  # the indices of events with a blank before them
    for index in points:
        node = events[index].node
        is_first = index == points[0]
        if not is_first or _has_blank(node.before, left, right, blank, is_after=False):
            outside = index - _run_length(events, range(index - 1, -1, -1), ItemType.OPEN)
            blanks.add(outside if is_first or node.before == " " else index)
        if index == points[-1] and _has_blank(node.after, right, left, blank, is_after=True):
            after = range(index + 1, len(events))
            blanks.add(index + 1 + _run_length(events, after, ItemType.CLOSE))
    needs_blank = is_spaced and any(event.node.needs_text for event in events)
    if not blanks and (blank or (needs_blank and left and right)):
        steps = ({ItemType.OPEN: 1, ItemType.CLOSE: -1}.get(event.type, 0) for event in events)
        depths = list(itertools.accumulate(steps, initial=0))
        blanks.add(depths.index(min(depths)))
    gap: Gap = []
    for index, event in enumerate(events):
        gap += [blank or " ", event] if index in blanks else [event]
    return [*gap, blank or " "] if len(events) in blanks else gap


def _has_blank(neighbor: str, near: str, far: str, blank: str, is_after: bool) -> bool:
    """Return whether there is a blank between a point and `near`, the character before or after it.

    `neighbor` is the one on that side in the source, and `far` the one on the other side.
    """
    if not near:
        return False
    if neighbor == " ":
        takes_blank = (
            unicodedata.category(near) in ("Ps", "Pi") if is_after else near in CLOSING_MARKS
        )
        return bool(blank) or not far or near.isalnum() or takes_blank
    is_word = neighbor.isalnum() and is_unspaced(neighbor) == is_unspaced(near)
    return bool(blank) and near.isalnum() and not is_word


def _run_length(events: Sequence[MarkupEvent], indices: Iterable[int], type: ItemType) -> int:
    """Return the number of events of a type before the first event of another type."""
    return sum(1 for _ in itertools.takewhile(lambda index: events[index].type == type, indices))
