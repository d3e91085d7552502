"""Translations that contain given terms, by searches with forced beginnings.

A term that a translation lacks is tried in every place between its words: the words before the
place and the term are the forced beginning of another search, which finds the rest. The most
probable result stays. This searches more places than grid beam search (Hokamp and Liu 2017) and
dynamic beam allocation (Post and Vilar 2018) can keep in a beam. It needs no graph of its own, so
that every runtime finds the same translations, and a translation that has its terms anyway stays as
it is.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from tfk_transformer.documents.words import words

Found = TypeVar("Found")
OPENING = "([{\"'«„“‘¿¡-/"  # marks that a word follows without a blank


class Candidate(NamedTuple):
    """A forced beginning that ends with a term."""

    term: str
    start: int  # of the term
    prefix: str


class Best(NamedTuple, Generic[Found]):
    """A candidate with its translation."""

    candidate: Candidate
    found: Found
    score: float  # of the whole translation, the forced beginning included


def missing(wanted: Sequence[str], text: str, placed: Sequence[str] = ()) -> list[str]:
    """Return the terms that a text lacks, those that it has too rarely included. Upper and lower
    case are the same.

    Args:
        wanted: terms.
        text: a translation.
        placed: terms that were forced into it. They count even if the search went on with further
            letters of their last word.
    """
    forced = Counter(placed)
    lacking = {
        term: count - max(_count(term, text), forced[term])
        for term, count in Counter(wanted).items()
    }
    return [term for term, count in lacking.items() for _ in range(count)]


def _count(term: str, text: str) -> int:
    """Return how often a term stands in a text as whole words."""
    text, term = text.casefold(), term.casefold()
    places = words(text, range(len(text)))
    starts, ends = {start for start, _ in places}, {end for _, end in places}
    return sum(text.startswith(term, start) and start + len(term) in ends for start in starts)


def candidates(lacking: Sequence[str], text: str, forced: str) -> list[Candidate]:
    """Return the forced beginnings with one of the terms, at every place between the words of a
    text that is not forced already.

    Args:
        lacking: the terms that the text lacks.
        text: a translation.
        forced: its forced beginning.
    """
    starts = [start for start, _ in words(text, range(len(text))) if start >= len(forced)]
    made = [
        _candidate(term, text[:start], text)
        for term in dict.fromkeys(lacking)
        for start in [*starts, len(text)]
    ]
    return list(dict.fromkeys(made))


def _candidate(term: str, head: str, text: str) -> Candidate:
    """Return the beginning `head` of a text with a term.

    At the start of a text that begins with a capital letter, the term gets one too. Before it is a
    blank where words have blanks.
    """
    head = head.rstrip()
    if not head:
        return Candidate(term, 0, term[0].upper() + term[1:] if text[:1].isupper() else term)
    blank = "" if _unspaced(head[-1]) or _unspaced(term[0]) or head[-1] in OPENING else " "
    return Candidate(term, len(head), f"{head}{blank}{term}")


def _unspaced(character: str) -> bool:
    """Return whether a character is of a script that writes words without blanks."""
    return len(words(character * 2, [1])) == 2 and character.isalpha()


def leftmost(tried: Sequence[Best[Found]]) -> Best[Found]:
    """Return the first term of those that a text lacks, at its most probable place.

    The terms behind it are placed later, in the translation that follows it.
    """
    best: dict[str, Best[Found]] = {}
    for one in tried:
        if one.candidate.term not in best or one.score > best[one.candidate.term].score:
            best[one.candidate.term] = one
    return min(best.values(), key=lambda one: one.candidate.start)
