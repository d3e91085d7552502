"""Glossaries: source terms with their translations, found in texts."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfk_transformer.documents.words import Span, words


class Glossary:
    """Source terms with their translations.

    A term is found where it stands as whole words with the same case; at the start of a text, the
    case of its first letter may differ. Of terms that overlap, the first one is found, and of those
    with the same start, the longest.

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
            start, end = _words(term)[0]
            self._by_word.setdefault(term[start:end].casefold(), []).append(term)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Glossary":
        """Read a UTF-8 file with a term, a tab and its translation in each line. Blank lines are
        skipped.

        Raises:
            ValueError: if a line is of another form, or a term has two translations.
            OSError: if the file cannot be read.
        """
        terms: dict[str, str] = {}
        try:
            lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
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
            if terms.setdefault(columns[0], columns[1]) != columns[1]:
                raise ValueError(
                    f"glossary: expected one translation of '{columns[0]}', got another in "
                    f"{path}:{number}: '{columns[1]}'."
                )
        return cls(terms)

    def found_in(self, text: str) -> list[str]:
        """Return the translations of the terms in a text, in the order of the terms, each as often
        as its term is there.
        """
        return [self.terms[term] for term in self._found(text)]

    def _found(self, text: str) -> Iterator[str]:
        places = _words(text)
        ends = {end for _, end in places}
        done = 0
        for start, end in places:
            if start < done:
                continue
            for term in self._by_word.get(text[start:end].casefold(), ()):
                if start + len(term) in ends and _same(
                    text[start : start + len(term)], term, start == places[0][0]
                ):
                    done = start + len(term)
                    yield term
                    break


def _words(text: str) -> list[Span]:
    """Return the places of words; of scripts that write words without blanks, those of
    characters.
    """
    return words(text, range(len(text)))


def _same(found: str, term: str, first: bool) -> bool:
    return found == term or (
        first and found[1:] == term[1:] and found[0].casefold() == term[0].casefold()
    )
