"""Read a translated document again, and write its sentences so that its markup stays."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tfk_transformer.formats.documents.items import Document
from tfk_transformer.text.kept_characters import is_unspaced
from tfk_transformer.text.splitting import blank_between, has_wide
from tfk_transformer.text.words import Span

INLINE = "inline "  # begins the strings of `Document.structure` whose order may change
MIN_SECTION = 1000  # characters
# The characters of a passage that are read again at most to select its writings: a minimum, and a
# multiple of its length.
MIN_READ_AGAIN = 4_000_000
MAX_READINGS = 40


class WrittenText(NamedTuple):
    """A sentence of a document, or a part of one, and the ways to write its translation."""

    start: int  # the source is document[start:end]
    end: int
    # The preferred one first. The last one of a sentence is its source, which does not change the
    # markup of the document.
    writings: Sequence[str]
    score: float  # of the search, or the sum over the parts of a sentence


def written_pieces(
    text: str, sentences: Sequence[WrittenText], choices: Sequence[int], passage: Span
) -> list[str]:
    """Return the text before each sentence, its chosen writing, and at last the text after all."""
    pieces = [""]
    done = passage[0]
    for sentence, choice in zip(sentences, choices, strict=True):
        written = sentence.writings[choice]
        gap = text[done : sentence.start]
        around = text[max(0, done - 1) : done + 1]
        # The translation of a script without blanks may have another script.
        if not gap and (has_wide(around) or any(map(is_unspaced, around))):
            gap = blank_between(pieces[-1], written)
        pieces += [gap, written]
        done = sentence.end
    return [*pieces[1:], text[done : passage[1]]]


def choose_writings(document: Document, sentences: Sequence[WrittenText]) -> list[int]:
    """Return the index of the writing of each sentence that keeps the structure of the document."""
    whole = Passage(document, sentences, (0, len(document.text)))
    choices = [0] * len(sentences)
    if whole.keeps_structure(choices):
        return choices
    choices = []
    for passage in _sections(document, sentences):
        choices += passage.choose([0] * len(passage.sentences))
    return whole.choose(choices)


def _sections(document: Document, sentences: Sequence[WrittenText]) -> "Iterator[Passage]":
    """Yield passages that can be read one by one."""
    first = start = done = 0
    for index, sentence in enumerate(sentences):
        match = document.section_start.search(document.text, done, sentence.start)
        if match and match.start(0) - start >= MIN_SECTION:
            yield Passage(document, sentences[first:index], (start, match.end()))
            first, start = index, match.end()
        done = sentence.end
    yield Passage(document, sentences[first:], (start, len(document.text)))


class Passage:
    """A passage of a document, its text[slice(*span)], with translated sentences."""

    def __init__(self, document: Document, sentences: Sequence[WrittenText], span: Span) -> None:
        self.sentences = sentences
        self._document = document
        self._span = span
        self._structure = self._ordered_structure(document.text[slice(*span)])

    def _ordered_structure(self, text: str) -> list[str]:
        """Return the structure of a text, with neighboring inline elements in sorted order."""
        strings = self._document.structure(text)
        groups = itertools.groupby(strings, lambda string: string.startswith(INLINE))
        ordered = [sorted(group) if is_inline else list(group) for is_inline, group in groups]
        return list(itertools.chain(*ordered))

    def keeps_structure(self, choices: Sequence[int]) -> bool:
        """Return whether the passage with these writings has the structure of the source."""
        pieces = written_pieces(self._document.text, self.sentences, choices, self._span)
        return self._ordered_structure("".join(pieces)) == self._structure

    def choose(self, choices: Sequence[int]) -> list[int]:
        """Return the index of the writing of each sentence that keeps the structure."""
        # Sentences keep their source until they are read in the passage without a change of its
        # structure. Where they change it, each half of them is tried.
        tried = list(choices)
        chosen = [len(sentence.writings) - 1 for sentence in self.sentences]
        length = self._span[1] - self._span[0]
        budget = max(MIN_READ_AGAIN, MAX_READINGS * length)
        waiting = [(0, len(tried))]
        while waiting and budget > 0:
            first, last = waiting.pop()
            candidates = [*chosen[:first], *tried[first:last], *chosen[last:]]
            budget -= length
            if candidates == chosen or self.keeps_structure(candidates):
                chosen = candidates
            elif last - first > 1:
                middle = (first + last) // 2
                waiting += [(middle, last), (first, middle)]
            else:
                tried[first] += 1
                waiting.append((first, last))
        return chosen
