"""Force terms into translations, by searches with forced prefixes.

A missing term is tried at every position between the words of the translation: the words before
the position and the term are the forced prefix of another search, which finds the rest. The most
probable result is used. This searches more positions than grid beam search (Hokamp and Liu 2017)
and dynamic beam allocation (Post and Vilar 2018) can hold in a beam. It needs no separate graph, so
all runtimes find the same translations. A translation that has its terms anyway is not changed.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from tfk_transformer.text.kept_characters import is_unspaced
from tfk_transformer.text.words import word_spans

TranslationT = TypeVar("TranslationT")
OPENING = "([{\"'«„“‘¿¡-/"  # marks that a word follows without a blank


class Candidate(NamedTuple):
    """A forced prefix that ends with a term."""

    term: str
    start: int  # of the term
    prefix: str


class ScoredCandidate(NamedTuple, Generic[TranslationT]):
    """A candidate with its translation."""

    candidate: Candidate
    translation: TranslationT
    score: float  # of the whole translation, including the forced prefix


def missing_terms(terms: Sequence[str], text: str, placed: Sequence[str] = ()) -> list[str]:
    """Return the terms that occur less often in a text than in `terms`, ignoring case.

    Args:
        terms: the expected terms, each as often as it is expected.
        text: a translation.
        placed: terms that were forced into it. They count even if the search extended their last
            word by further letters.

    Returns:
        The missing terms, each as often as it is missing.
    """
    forced = Counter(placed)
    missing = Counter(terms)
    for term in missing:
        missing[term] -= max(_count(term.casefold(), text.casefold()), forced[term])
    return list(missing.elements())


def _count(term: str, text: str) -> int:
    """Return how often a term occurs in a text as whole words."""
    spans = word_spans(text, range(len(text)))
    ends = {end for _, end in spans}
    return sum(text.startswith(term, start) and start + len(term) in ends for start, _ in spans)


def candidates(terms: Sequence[str], text: str, forced: str) -> list[Candidate]:
    """Return the forced prefixes with one of the terms, at every position between words.

    Args:
        terms: the terms that the text lacks.
        text: a translation.
        forced: its forced prefix, in which no term is placed.
    """
    starts = [start for start, _ in word_spans(text, range(len(text))) if start >= len(forced)]
    pairs = itertools.product(dict.fromkeys(terms), [*starts, len(text)])
    return list(dict.fromkeys(_candidate(term, text[:start], text) for term, start in pairs))


def _candidate(term: str, head: str, text: str) -> Candidate:
    """Return the start `head` of a text with a term.

    At the start of a text that begins with a capital letter, the term gets one too. A blank
    precedes the term in scripts that have blanks between words.
    """
    head = head.rstrip()
    if not head:
        return Candidate(term, 0, term[0].upper() + term[1:] if text[:1].isupper() else term)
    is_joined = any(is_unspaced(each) and each.isalpha() for each in (head[-1], term[0]))
    blank = "" if is_joined or head[-1] in OPENING else " "
    return Candidate(term, len(head), f"{head}{blank}{term}")


def leftmost_candidate(
    scored: Sequence[ScoredCandidate[TranslationT]],
) -> ScoredCandidate[TranslationT]:
    """Return the most probable candidate of each term, and of these the leftmost one.

    Terms to the right of it are placed later, in the translation that follows it.
    """
    best: dict[str, ScoredCandidate[TranslationT]] = {}
    for each in scored:
        if each.score > best.setdefault(each.candidate.term, each).score:
            best[each.candidate.term] = each
    return min(best.values(), key=lambda each: each.candidate.start)
