"""Characters that a vocabulary lacks: kept out of the search, and put back into the translation.

Letters that it has only in the other case are read in that case.
"""

import bisect
import functools
import itertools
import re
import unicodedata
from collections.abc import Container
from typing import NamedTuple

# A character, and the characters that belong to it, such as accents, joiners and skin tones.
JOINED_CATEGORIES = ("Cf", "Mc", "Me", "Mn", "Sk")
# Tokenizers drop these, or write them with the letter before them.
IGNORED_CATEGORIES = ("Cc", "Cf", "Mc", "Mn", "Zl", "Zp", "Zs")
OPENING_CATEGORIES = ("Pi", "Ps")
CLOSING_CATEGORIES = ("Pe", "Pf", "Po")
# Scripts that are written without blanks between words.
UNSPACED = (
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "HALFWIDTH KATAKANA",
    "IDEOGRAPHIC ITERATION",
    "IDEOGRAPHIC NUMBER",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
)
WORD = re.compile(r"\S+")
# Unicode's stream-safe format has at most 30 marks in a row. The time to normalize a run grows with
# its square.
MAX_NORMALIZED = 32
MAX_CACHED = 4096  # characters of a text that are looked up in tables of Unicode only once


class Unit(NamedTuple):
    """Characters that stay as they are."""

    text: str
    position: int  # in the text without the units
    blank_before: bool  # whether there is a blank next to it in the source
    blank_after: bool


class ReadableText(NamedTuple):
    """A text without the characters that a vocabulary lacks."""

    text: str
    units: list[Unit]

    @property
    def kept(self) -> int:
        """The number of characters that were taken out."""
        return sum(len(unit.text) for unit in self.units)

    def put_back(self, translation: str) -> str:
        """Return the translation of the text with the units."""
        pieces: list[str] = []  # from the last one to the first one
        done = len(translation)
        positions = self._target_positions(translation)
        for unit, position in zip(reversed(self.units), reversed(positions), strict=True):
            position = min(position, done)
            pieces.append(translation[position:done])
            right = ""
            while pieces and not right:
                right = pieces.pop().lstrip()
            left = translation[position - 1 : position]
            before = " " if unit.blank_before and left and not left.isspace() else ""
            after = " " if unit.blank_after and right else ""
            pieces += [right, after, unit.text, before]
            done = position
        return "".join([translation[:done], *reversed(pieces)])

    def _target_positions(self, translation: str) -> list[int]:
        """Return the position in a translation at which to insert each unit.

        A unit at the start or at the end of the text is there in the translation, too. For other
        units, the share of the words before the unit is the same in the text and its translation.
        """
        first, last = _lexical_span(self.text)
        target_first, target_last = _lexical_span(translation)
        words = [match.start() for match in WORD.finditer(self.text)]
        ends = [match.end() for match in WORD.finditer(translation)]
        is_target_unspaced = is_unspaced(translation[-1:])
        positions: list[int] = []
        for _, position, _, _ in self.units:
            if position <= first:
                positions.append(target_first if position and target_last else 0)
                continue
            if position >= last:
                is_inner = position < len(self.text) and target_last
                positions.append(target_last if is_inner else len(translation))
                continue
            share = bisect.bisect_left(words, position) / len(words)
            if share == 1:  # a text without blanks
                share = position / len(self.text)
            if len(ends) > 1:
                count = int(share * len(ends) + 0.5)
                positions.append(ends[min(max(count, 1), len(ends) - 1) - 1])
            elif is_target_unspaced:
                positions.append(int(share * len(translation) + 0.5))
            else:
                positions.append(len(translation))
        return positions


def _lexical_span(text: str) -> tuple[int, int]:
    """Return the start of the first letter or number and the end of the last one.

    Without any, they are the end and the start of the text.
    """
    first = next((n for n, character in enumerate(text) if character.isalnum()), len(text))
    last = next((n for n in range(len(text), first, -1) if text[n - 1].isalnum()), 0)
    return first, last


def is_unspaced(character: str) -> bool:
    """Return whether a character is of a script that is written without blanks between words."""
    return bool(character) and unicodedata.name(character, "").startswith(UNSPACED)


def take_out(
    text: str, characters: Container[str] | None, exempt: Container[str] = ()
) -> ReadableText:
    """Return a text without the characters that a vocabulary lacks."""
    if characters is None or all(c in characters or c in exempt or c.isspace() for c in set(text)):
        return ReadableText(text, [])
    known = _in_known_case(text, characters, exempt)
    units: list[Unit] = []
    readable = ""
    blank = False  # whether the last readable part ends with one
    done = 0
    for start, end in [*_lacking_spans(known, characters, exempt), (len(text), len(text))]:
        part = known[done:start]
        if part.strip():
            starts_blank = part[0].isspace()
            readable += _separator(readable, part.strip(), blank, starts_blank) + part.strip()
            blank = part[-1].isspace()
        if start < end:
            neighbors = (text[start - 1 : start].isspace(), text[end : end + 1].isspace())
            units.append(Unit(text[start:end], len(readable), *neighbors))
        done = end
    return ReadableText(readable if units else known, units)


def _in_known_case(text: str, characters: Container[str], exempt: Container[str]) -> str:
    """Return a text with letters in their other case where a vocabulary has only that one."""
    cases = {}
    for c in set(text):
        other = c.lower() if c.lower() != c else c.upper()
        if len(other) == 1 and other in characters and c not in characters and c not in exempt:
            cases[ord(c)] = other
    return text.translate(cases)


def _lacking_spans(
    text: str, characters: Container[str], exempt: Container[str]
) -> list[tuple[int, int]]:
    """Return the spans of a text that a vocabulary cannot represent."""
    spans: list[tuple[int, int]] = []

    @functools.cache
    def lacks(cluster: str) -> tuple[bool, bool]:
        """Return whether a cluster lacks, and whether the word that contains it then lacks."""
        composed = unicodedata.normalize("NFC", cluster[:MAX_NORMALIZED]) + cluster[MAX_NORMALIZED:]
        is_lacking = not all(
            c in characters or c in exempt or unicodedata.category(c) in IGNORED_CATEGORIES
            for c in composed
        )
        return is_lacking, any(c.isalnum() and not is_unspaced(c) for c in composed)

    # Each character is in one span with the characters that belong to it.
    joined = [unicodedata.category(character) in JOINED_CATEGORIES for character in text[1:]]
    starts = [0, *(n for n, is_joined in enumerate(joined, 1) if not is_joined)]
    for start, end in itertools.pairwise([*starts, len(text)]):
        is_lacking, is_in_word = lacks(text[start:end])
        if not is_lacking:
            continue
        # A word that contains a letter is taken out as a whole, except in a script without blanks.
        if is_in_word:
            done = spans[-1][1] if spans else 0
            while start > done and _is_word_character(text[start - 1]):
                start -= 1
            end = max(end, done)  # if the word is taken out already, up to its end
            while end < len(text) and _is_word_character(text[end]):
                end += 1
        if spans and start <= spans[-1][1]:
            start = spans.pop()[0]
        spans.append((start, end))
    return spans


@functools.lru_cache(MAX_CACHED)
def _is_word_character(character: str) -> bool:
    """Return whether a character is part of a word that blanks separate from other words."""
    return unicodedata.category(character)[0] in "LMN" and not is_unspaced(character)


def _separator(left: str, right: str, blank_before: bool, blank_after: bool) -> str:
    """Return the blank between the parts of a text on both sides of units."""
    if not left:
        return ""
    if blank_before and blank_after:
        return " "
    if left[-1].isalnum() and right[0].isalnum():
        is_joined = is_unspaced(left[-1]) and is_unspaced(right[0])
        return "" if is_joined and not (blank_before or blank_after) else " "
    is_open = unicodedata.category(left[-1]) in OPENING_CATEGORIES
    is_closed = unicodedata.category(right[0]) in CLOSING_CATEGORIES
    return " " if (blank_before or blank_after) and not (is_open or is_closed) else ""
