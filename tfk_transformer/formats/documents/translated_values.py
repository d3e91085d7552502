"""Values in a document that are translated before its text."""

from bisect import bisect_right
from collections.abc import Iterable

from tfk_transformer.text.results import DocumentTranslation


class TranslatedValues:
    """A document with other values, `text`. A change is a start, an end and the new text there."""

    def __init__(self, document: str, changes: Iterable[tuple[int, int, str]]) -> None:
        self._source = document
        self._ends: list[int] = []  # in `text`, the end of each value
        self._shifts: list[int] = []  # from that end to the value's end in the source
        pieces: list[str] = []
        done = written = 0  # characters of the source and of `text`
        for start, end, value in changes:
            pieces += [document[done:start], value]
            written += start - done + len(value)
            done = end
            self._ends.append(written)
            self._shifts.append(done - written)
        self.text = "".join([*pieces, document[done:]])

    def restore(self, translation: DocumentTranslation) -> DocumentTranslation:
        """Return a translation of `text` with the positions of its sentences in the source."""
        sentences = []
        for sentence in translation.sentences:
            start = self._source_position(sentence.source_start)
            end = self._source_position(sentence.source_end)
            source = self._source[start:end]
            sentences.append(sentence._replace(source_start=start, source_end=end, source=source))
        return translation._replace(sentences=sentences)

    def _source_position(self, position: int) -> int:
        value = bisect_right(self._ends, position)
        return position + (self._shifts[value - 1] if value else 0)
