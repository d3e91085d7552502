"""A file with edits before its translation, such as translated values or copies of sources."""

import bisect
from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeAlias

from tfk_transformer.text.results import DocumentTranslation
from tfk_transformer.text.words import Span


class Edit(NamedTuple):
    """A change of a file: file[start:end] is replaced by `text`."""

    start: int
    end: int
    text: str
    source: Span | None = None  # of a string to translate: the span of the file that it is from


class EditedText:
    """A file with edits, `text`, and the positions of its parts in the file."""

    def __init__(self, file: str, edits: Sequence[Edit]) -> None:
        self.places: list[Span] = []  # in `text`, the strings to translate
        self._file = file
        self._starts: list[int] = []  # in `text`, of each piece
        self._spans: list[Span] = []  # in the file, of each piece
        pieces: list[str] = []
        done = length = 0
        # Edits of one position keep their order.
        for edit in [*sorted(edits, key=lambda edit: edit.start), Edit(len(file), len(file), "")]:
            for piece, span in (
                (file[done : edit.start], (done, edit.start)),
                (edit.text, edit.source or edit[:2]),
            ):
                self._starts.append(length)
                self._spans.append(span)
                pieces.append(piece)
                length += len(piece)
            if edit.source is not None:
                self.places.append((self._starts[-1], length))
            done = edit.end
        self.text = "".join(pieces)

    def position(self, position: int) -> int:
        """Return the position in `text` of a position in the file, outside of edits."""
        piece = bisect.bisect(self._spans, (position, len(self._file) + 1)) - 1
        return self._starts[piece] + position - self._spans[piece][0]

    def restore(self, translation: DocumentTranslation) -> DocumentTranslation:
        """Return a translation of `text` with the positions of its sentences in the file."""
        sentences = []
        for sentence in translation.sentences:
            start = self._file_position(sentence.source_start, sentence.source_start)
            end = self._file_position(sentence.source_end, sentence.source_end - 1)
            source = self._file[start:end]
            sentences.append(sentence._replace(source_start=start, source_end=end, source=source))
        return translation._replace(sentences=sentences)

    def _file_position(self, position: int, character: int) -> int:
        """Return the position in the file of one next to a character of `text`."""
        piece = bisect.bisect(self._starts, character) - 1
        start, end = self._spans[piece]
        return min(start + position - self._starts[piece], end)


# Yields texts of a document that are no part of its content, such as attributes, receives their
# translations, and returns the document with them.
Editing: TypeAlias = Generator[list[str], list[str], EditedText]
