"""The results of translation, scoring and classification, of texts and of documents."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfk_transformer.text.alignment import Hypothesis

# A search with fewer hypotheses than requested gives the missing ones a score of -1e9.
NO_HYPOTHESIS = -5e8


class ScoredTarget(NamedTuple):
    """A target text with its log-probability, token by token."""

    text: str
    log_probability: float  # the sum of `token_log_probs`, without any penalty
    tokens: list[str]  # T pieces, the last one the end token's
    token_log_probs: list[float]  # T log-probabilities
    attention: np.ndarray | None = None  # as in `Hypothesis`; None unless requested
    source_tokens: list[str] | None = None  # as in `Hypothesis`


class Translation(NamedTuple):
    """The translation of one text."""

    source: str
    # Best first, at least one. With several sentences, hypothesis k joins hypothesis k of each
    # sentence, its score is the sum of their scores, and its other fields are None.
    hypotheses: list[Hypothesis]
    sentences: Sequence["Translation"] = ()  # of the text, if it has several
    kept_characters: int = 0  # characters that the vocabulary lacks, which stay as they are
    # Estimated probability that the text is right; with several sentences, the lowest of theirs.
    # None: the model has no calibration, or it does not hold for this search. See docs/running.md.
    confidence: float | None = None

    @property
    def text(self) -> str:
        """The text of the best hypothesis."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The score of the best hypothesis."""
        return self.hypotheses[0].score

    def _repr_html_(self) -> str:
        # Only notebooks need it.
        from tfk_transformer.text.translation_html import translation_html

        return translation_html(self.source, self.hypotheses)


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
    """The translation of a document, and its sentences in order."""

    text: str  # "" of an office file
    sentences: list[DocumentSentence]  # of an office file: positions are in the text of its parts
    data: bytes = b""  # the translated office file


class Classification(NamedTuple):
    """The classification of one text."""

    source: str
    label: str  # the most probable label; "" for a blank text
    probability: float  # of `label`; 0 for a blank text
    probabilities: dict[str, float]  # by label, in the model's order


def to_hypotheses(texts: Sequence[str | bytes], scores: Sequence[float]) -> list[Hypothesis]:
    """Return the hypotheses of a search: the first one, and the further ones that exist."""
    best, *rest = [
        Hypothesis(decode(text), float(score)) for text, score in zip(texts, scores, strict=True)
    ]
    return [best, *(hypothesis for hypothesis in rest if hypothesis.score > NO_HYPOTHESIS)]


def decode(text: str | bytes) -> str:
    """Return a text of a runtime as a string."""
    return text.decode("utf-8") if isinstance(text, bytes) else str(text)
