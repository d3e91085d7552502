"""Glossaries: source terms with their translations, and how texts are searched for them."""

import os
from collections.abc import Iterator, Mapping

from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES, read_small_file
from tfk_transformer.text.words import word_spans


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
