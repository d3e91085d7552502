"""Glossaries: source terms with their translations, and the prefixes that force them.

A missing term is tried at every position between the words of the translation: the words before
the position and the term are the forced prefix of another search, which finds the rest. The most
probable result is used. This searches more positions than grid beam search (Hokamp and Liu 2017)
and dynamic beam allocation (Post and Vilar 2018) can hold in a beam. It needs no separate graph, so
all runtimes find the same translations. A translation that has its terms anyway is not changed.
"""

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES, read_small_file
from tfk_transformer.text.kept_characters import is_unspaced
from tfk_transformer.text.results import Translation
from tfk_transformer.text.words import word_spans

OPENING = "([{\"'«„“‘¿¡-/"  # marks that a word follows without a blank


class Glossary:
    """Source terms with their translations.

    A term matches whole words with the same case. At the start of a text, the case of its first
    letter may differ. Of terms that overlap, the first one matches. Of terms with the same start,
    the longest one matches.

    Args:
        terms: the translation of each source term.

    Raises:
        ValueError: if a term or its translation is blank.
    """

    def __init__(self, terms: Mapping[str, str]):
        self.terms = {source.strip(): target.strip() for source, target in terms.items()}
        if blank := [source for source, target in self.terms.items() if not (source and target)]:
            raise ValueError(
                f"glossary: expected a term and its translation, got a blank one for '{blank[0]}'."
            )
        self._by_word: dict[str, list[str]] = {}  # the terms that begin with a word, longest first
        for term in sorted(self.terms, key=len, reverse=True):
            start, end = word_spans(term, range(len(term)))[0]
            self._by_word.setdefault(term[start:end].casefold(), []).append(term)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Glossary":
        """Read a UTF-8 file with a term, a tab and its translation in each line.

        Blank lines are skipped.

        Raises:
            ValueError: if a line is of another form, or a term has two translations.
            OSError: if the file cannot be read.
        """
        terms: dict[str, str] = {}
        try:
            content = read_small_file(path, MAX_VOCABULARY_BYTES)
            lines = content.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"glossary: expected UTF-8 in {path}, got byte 0x{error.object[error.start]:02x} "
                f"at {error.start}."
            ) from None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            columns = [column.strip() for column in line.split("\t")]
            if len(columns) != 2 or not all(columns):
                raise ValueError(
                    f"glossary: expected a term, a tab and its translation in {path}:{number}, "
                    f"got '{line[:60]}'."
                )
            term, translation = columns
            if terms.setdefault(term, translation) != translation:
                raise ValueError(
                    f"glossary: expected one translation of '{term}', got '{terms[term]}' and, in "
                    f"{path}:{number}, '{translation}'."
                )
        return cls(terms)

    def found_in(self, text: str) -> list[str]:
        """Return the translations of the terms in a text, in the order of the terms in it.

        A translation is returned once for each occurrence of its term.
        """
        return [self.terms[term] for term in self._terms_in(text)]

    def _terms_in(self, text: str) -> Iterator[str]:
        spans = word_spans(text, range(len(text)))  # in scripts without blanks: of characters
        ends = {end for _, end in spans}
        done = 0
        for start, end in spans:
            if start < done:
                continue
            for term in self._by_word.get(text[start:end].casefold(), ()):
                last = start + len(term)
                if last in ends and _matches(text[start:last], term, start == spans[0][0]):
                    done = last
                    yield term
                    break


def _matches(words: str, term: str, is_first: bool) -> bool:
    if words == term:
        return True
    return is_first and words[1:] == term[1:] and words[0].casefold() == term[0].casefold()


class Candidate(NamedTuple):
    """A forced prefix that ends with a term."""

    term: str
    start: int  # of the term
    prefix: str


class ScoredCandidate(NamedTuple):
    """A candidate with its translation."""

    candidate: Candidate
    translation: Translation
    score: float  # of the whole translation, including the forced prefix


def missing_terms(terms: Sequence[str], text: str, placed: Sequence[str] = ()) -> list[str]:
    """Return the terms that occur less often in a text than in `terms`, ignoring case.

    The terms in `placed` were forced into the text. They count even if the search extended their
    last word by further letters.

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
    """Return the forced prefixes with one of the terms, at every position between words."""
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


def leftmost_candidate(scored: Sequence[ScoredCandidate]) -> ScoredCandidate:
    """Return the most probable candidate of each term, and of these the leftmost one.

    Terms to the right of it are placed later, in the translation that follows it.
    """
    best: dict[str, ScoredCandidate] = {}
    for each in scored:
        if each.score > best.setdefault(each.candidate.term, each).score:
            best[each.candidate.term] = each
    return min(best.values(), key=lambda each: each.candidate.start)
