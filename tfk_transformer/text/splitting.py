"""Split texts into sentences, and sentences that are too long for a model into parts."""

import bisect
import itertools
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from sentencex import get_sentence_boundaries

LINE_BREAKS = re.compile(r"[\n\r\v\f\x85\u2028\u2029]+")
# Some marks end a clause only if a blank follows.
CLAUSE_END = re.compile(r"[,;:–—](?=\s)|[、，；：،؛]")
BLANK = re.compile(r"\s")
# In characters. The time of sentencex grows with the square of a line's length.
WINDOW = 10_000


class SplitText(NamedTuple):
    """The sentences of a text, and the whitespace around them."""

    sentences: list[str]  # at least one, without whitespace around them
    # Before each sentence and after the last one: one more than there are sentences.
    gaps: list[str]

    def join(self, translations: Sequence[str]) -> str:
        """Return the translation of the text, with the whitespace of the text."""
        pieces = [""]
        for index, translation in enumerate(translations):
            pieces += [self.gap_before(index, pieces[-1], translation), translation]
        return "".join([*pieces, self.gaps[-1]])

    def gap_before(self, index: int, previous: str, translation: str) -> str:
        """Return the whitespace before the translation of a sentence."""
        if self.gaps[index] or not index:
            return self.gaps[index]
        border = self.sentences[index - 1][-1] + self.sentences[index][0]
        is_in_word = border.isalnum() and not has_wide(border)
        return "" if is_in_word else blank_between(previous, translation)

    def cut(self, index: int) -> bool:
        """Cut a sentence in two near its middle, see `cut_in_two`; return False if it cannot be."""
        sentence = self.sentences[index]
        middle = cut_in_two(sentence)
        if middle is None:
            return False
        first = sentence[:middle].rstrip()
        second = sentence[middle:].lstrip()
        self.sentences[index : index + 1] = [first, second]
        self.gaps.insert(index + 1, sentence[len(first) : len(sentence) - len(second)])
        return True


def split_text(text: str, language: str) -> SplitText:
    """Split a text into sentences. A line break ends one, and a blank text is one, as it is."""
    if not text.strip():
        return SplitText([text], ["", ""])
    ends = [match.end() for match in LINE_BREAKS.finditer(text)]
    sentences: list[str] = []
    gaps = [""]
    for start, end in itertools.pairwise([0, *ends, len(text)]):
        line = text[start:end]
        for first, last in sentence_spans(line, language):
            piece = line[first:last]
            sentence = piece.strip()
            if not sentence:
                gaps[-1] += piece
                continue
            before, after = piece.split(sentence, 1)
            gaps[-1] += before
            gaps.append(after)
            sentences.append(sentence)
    return SplitText(sentences, gaps)


def sentence_spans(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each sentence of a text, with whitespace around it.

    A sentence that is longer than `WINDOW` is cut.
    """
    start = 0
    while start < len(text):
        window = text[start : start + WINDOW]
        spans = [
            (start + boundary["start_index"], start + boundary["end_index"])
            for boundary in get_sentence_boundaries(language, window)
        ]
        if len(spans) > 1 and start + len(window) < len(text):
            spans.pop()  # it may go on after the window
        yield from spans
        start = spans[-1][1]


def cut_in_two(text: str, uncut: Container[int] = ()) -> int | None:
    """Return the position near the middle of a text at which to cut it, or None if there is none.

    The cut is after a clause mark if there is one, or else at a blank, or else anywhere, but not at
    the positions in `uncut`. Neither part is blank.
    """
    inner = range(len(text) - len(text.lstrip()) + 1, len(text.rstrip()))
    ends: Iterable[int]
    for ends in (
        (match.end() for match in CLAUSE_END.finditer(text)),
        (match.start() for match in BLANK.finditer(text)),
        inner,
    ):
        positions = [position for position in ends if position in inner and position not in uncut]
        if positions:
            after = bisect.bisect(positions, len(text) / 2)
            middle = positions[max(after - 1, 0) : after + 1]
            return min(middle, key=lambda position: abs(2 * position - len(text)))
    return None


def blank_between(before: str, after: str) -> str:
    """Return the blank between two translations whose sources have none between them.

    It is one if the translations are in another script.
    """
    return " " if before and after and not has_wide(before[-1] + after[0]) else ""


def has_wide(text: str) -> bool:
    """Return whether a text has a wide character, as of Chinese and Japanese."""
    return any(unicodedata.east_asian_width(character) in "WF" for character in text)
