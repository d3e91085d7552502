"""Translate documents with a function that translates sentences."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfk_transformer.documents.results import TranslatedText
from tfk_transformer.inference.text_batches import check_texts
from tfk_transformer.inference.text_errors import TextError
from tfk_transformer.results import Hypothesis
from tfk_transformer.runtime_environment import with_install_line

if TYPE_CHECKING:
    from tfk_transformer.documents.results import DocumentTranslation
    from tfk_transformer.results import Translation

DOCUMENT_FORMATS = ("text", "markdown", "html")
MAX_ALIGNED_TEXTS = 1000  # texts whose attention is in memory at the same time


def translate_document(
    translate: "Callable[..., list[Translation]]",
    text: str,
    format: str,
    language: str,
    lines: bool,
    attention_layer: int | None,
) -> "DocumentTranslation":
    """Translate a document; see `BaseTranslator.translate_document`.

    Args:
        translate: translates a list of sentences, with the argument `attention`.
        text, format, language, lines, attention_layer: as in `BaseTranslator.translate_document`.
    """
    if format not in DOCUMENT_FORMATS:
        raise ValueError(f"format: expected one of {', '.join(DOCUMENT_FORMATS)}, got '{format}'.")
    if not isinstance(text, str):
        raise ValueError(f"text: expected a string, got {type(text).__name__}.")
    if lines and format != "text":
        raise ValueError(f"lines: expected format 'text', got '{format}'; leave lines out.")
    check_texts([text], "text")
    try:
        from tfk_transformer.documents.reading.formats import read
        from tfk_transformer.documents.translation import translate as translate_items
    except ImportError as error:
        raise with_install_line(error) from error

    def run(texts: Sequence[str], attention: bool) -> list[TranslatedText | None]:
        best: list[TranslatedText | None] = []
        chunk_size = MAX_ALIGNED_TEXTS if attention else len(texts)
        for first in range(0, len(texts), chunk_size):
            chunk = texts[first : first + chunk_size]
            best += _best(translate, chunk, attention, attention_layer)
        return best

    return translate_items(read(text, format, lines), language, run)


def _best(
    translate: "Callable[..., list[Translation]]",
    texts: Sequence[str],
    attention: bool,
    layer: int | None,
) -> list[TranslatedText | None]:
    """Return the best hypothesis of each text with its attention (T, S).

    The result is None for a text that is too long.
    """
    try:
        results = dict(enumerate(translate(texts, attention=attention)))
    except TextError as error:
        results = error.results
        if not results and len(error.reasons) < len(texts):  # the model did not run
            raise
    best = {
        index: _average_heads(translation.hypotheses[0], layer)
        for index, translation in results.items()
    }
    return [best.get(index) for index in range(len(texts))]


def _average_heads(hypothesis: Hypothesis, layer: int | None) -> TranslatedText:
    """Return a hypothesis with the mean attention of the heads of one layer, or of all layers."""
    if hypothesis.attention is None:
        return TranslatedText(hypothesis.text, hypothesis.score)
    layers = len(hypothesis.attention)
    if layer is not None and not -layers <= layer < layers:
        raise ValueError(
            f"attention_layer: expected a number from {-layers} to {layers - 1}, got {layer}."
        )
    weights = hypothesis.attention.mean(axis=0) if layer is None else hypothesis.attention[layer]
    return TranslatedText(
        hypothesis.text,
        hypothesis.score,
        hypothesis.tokens,
        hypothesis.source_tokens,
        weights.mean(axis=0),
    )
