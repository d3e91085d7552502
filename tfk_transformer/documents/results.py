"""The translations of sentences and of documents."""

from typing import NamedTuple, Protocol

import numpy as np


class ScoredText(Protocol):
    """The fields of a translation with attention that `tfk_transformer.results.Hypothesis` has."""

    @property
    def text(self) -> str:
        """The translation."""

    @property
    def score(self) -> float:
        """The score of the search."""

    @property
    def tokens(self) -> list[str] | None:
        """T pieces, the last one is the end token."""

    @property
    def source_tokens(self) -> list[str] | None:
        """S pieces."""

    @property
    def attention(self) -> np.ndarray | None:
        """The attention of layers, heads and tokens to source tokens, float32 (L, H, T, S)."""


class TranslatedText(NamedTuple):
    """The translation of a sentence or of a part of a sentence."""

    text: str
    score: float
    tokens: list[str] | None = None  # T pieces, the last one is the end token
    source_tokens: list[str] | None = None  # S pieces
    attention: np.ndarray | None = None  # float32 (T, S), of tokens to source tokens


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
