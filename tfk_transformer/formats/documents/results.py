"""The translations of documents."""

from typing import NamedTuple


class DocumentSentence(NamedTuple):
    """A sentence of a document and its translation, with markup. Positions are in characters."""

    source_start: int  # document[source_start:source_end] is `source`
    source_end: int
    target_start: int  # in the translated document, whose [target_start:target_end] is `target`
    target_end: int
    source: str
    target: str
    # The score of the search, or the sum over its parts if the sentence was too long for the model.
    score: float
    # Whether `target` is the source because its translation would have changed the markup.
    keeps_source: bool = False


class DocumentTranslation(NamedTuple):
    """The translation of a document."""

    text: str
    sentences: list[DocumentSentence]  # in the order of the document
