"""Glossaries: source terms with their translations, and the prefixes that force them.

A missing term is tried at every position between the words of the translation: the words before
the position and the term are the forced prefix of another search, which finds the rest. This tries
more positions than grid beam search (Hokamp and Liu 2017) and dynamic beam allocation (Post and
Vilar 2018) can hold in a beam. It needs no separate graph, so all runtimes find the same results.
"""

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES, read_small_text
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
        text = read_small_text(path, MAX_VOCABULARY_BYTES)
        for number, line in enumerate(text.splitlines(), 1):
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
        translations = []
        spans = word_spans(text, range(len(text)))  # in scripts without blanks: of characters
        ends = {end for _, end in spans}
        done = 0
        for start, end in spans:
            if start < done:
                continue
            for term in self._by_word.get(text[start:end].casefold(), ()):
                last = start + len(term)
                words = text[start:last]
                is_same = words == term or (
                    start == spans[0][0]
                    and words[1:] == term[1:]
                    and words[0].casefold() == term[0].casefold()
                )
                if last in ends and is_same:
                    done = last
                    translations.append(self.terms[term])
                    break
        return translations


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
    """Return each term as often as a text lacks it, ignoring case.

    The terms in `placed` were forced into the text.
    """
    folded = text.casefold()
    spans = word_spans(folded, range(len(folded)))
    ends = {end for _, end in spans}
    forced = Counter(placed)
    missing = Counter(terms)
    for term in missing:
        words = term.casefold()
        starts = [start for start, _ in spans if folded.startswith(words, start)]
        count = sum(start + len(words) in ends for start in starts)
        # Forced terms count even if the search extended their last word by further letters.
        missing[term] -= max(count, forced[term])
    return list(missing.elements())


def candidates(terms: Sequence[str], text: str, forced: str) -> list[Candidate]:
    """Return the forced prefixes with one of the terms, at every position between words."""
    starts = [start for start, _ in word_spans(text, range(len(text))) if start >= len(forced)]
    tried: list[Candidate] = []
    for term, start in itertools.product(dict.fromkeys(terms), [*starts, len(text)]):
        head = text[:start].rstrip()
        if not head:  # the term begins with a capital letter if the text does
            prefix = term[0].upper() + term[1:] if text[:1].isupper() else term
        else:
            is_joined = any(is_unspaced(each) and each.isalpha() for each in (head[-1], term[0]))
            prefix = f"{head}{'' if is_joined or head[-1] in OPENING else ' '}{term}"
        tried.append(Candidate(term, len(head), prefix))
    return list(dict.fromkeys(tried))


def leftmost_candidate(scored: Sequence[ScoredCandidate]) -> ScoredCandidate:
    """Return the leftmost of the most probable candidates of each term; the others follow later."""
    best: dict[str, ScoredCandidate] = {}
    for each in scored:
        if each.score > best.setdefault(each.candidate.term, each).score:
            best[each.candidate.term] = each
    return min(best.values(), key=lambda each: each.candidate.start)
