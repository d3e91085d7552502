"""Translate documents with a function that translates sentences."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfk_transformer.formats.records import one_line
from tfk_transformer.inference.text_batches import check_texts
from tfk_transformer.runtime_environment import with_install_line
from tfk_transformer.text.alignment import TranslatedText
from tfk_transformer.text.outcome import TextError
from tfk_transformer.text.results import Hypothesis

if TYPE_CHECKING:
    from tfk_transformer.formats.documents.results import DocumentTranslation
    from tfk_transformer.text.results import Translation

DOCUMENT_FORMATS = ("text", "markdown", "html")
MAX_ALIGNED_TEXTS = 1000  # texts whose attention is in memory at the same time


def translate_document(
    translate: "Callable[..., list[Translation]]",
    text: str,
    format: str,
    language: str,
    lines: bool,
    attention_layer: int | None,
    attributes: bool = False,
    target_language: str | None = None,
) -> "DocumentTranslation":
    """Translate a document; see `BaseTranslator.translate_document`.

    Args:
        translate: translates a list of sentences, with the argument `attention`.
        language: the code of its language, without script and region.
        text, format, lines, attention_layer, attributes, target_language: as in
            `BaseTranslator.translate_document`.
    """
    _check_arguments(text, format, lines, attributes, target_language)
    try:
        from tfk_transformer.formats.documents.translation import translate as translate_items
        from tfk_transformer.formats.reading.formats import read
        from tfk_transformer.formats.reading.html_attributes import translate_attributes
        from tfk_transformer.text.languages import language_code
    except ImportError as error:
        raise with_install_line(error) from error
    run = functools.partial(_run, translate, attention_layer)

    def run_lines(texts: Sequence[str], attention: bool) -> list[TranslatedText | None]:
        results = run(texts, attention)
        return [result and result._replace(text=one_line(result.text)) for result in results]

    def translate_lines(texts: Sequence[str]) -> list[str]:
        document = read("\n".join(texts), "text", lines=True)
        return translate_items(document, language, run_lines).text.split("\n")

    if not attributes and target_language is None:
        return translate_items(read(text, format, lines), language, run)
    if target_language is not None:
        language_code(target_language, "target_language")
    translated = translate_attributes(
        text, translate_lines if attributes else None, target_language
    )
    return translated.restore(translate_items(read(translated.text, format), language, run))


def _check_arguments(
    text: str, format: str, lines: bool, attributes: bool, target_language: str | None
) -> None:
    if format not in DOCUMENT_FORMATS:
        raise ValueError(f"format: expected one of {', '.join(DOCUMENT_FORMATS)}, got '{format}'.")
    if not isinstance(text, str):
        raise ValueError(f"text: expected a string, got {type(text).__name__}.")
    if lines and format != "text":
        raise ValueError(f"lines: expected format 'text', got '{format}'; leave lines out.")
    for name, value in (("attributes", attributes), ("target_language", target_language)):
        if value and format != "html":
            raise ValueError(f"{name}: expected format 'html', got '{format}'; leave {name} out.")
    check_texts([text], "text")


def _run(
    translate: "Callable[..., list[Translation]]",
    layer: int | None,
    texts: Sequence[str],
    attention: bool,
) -> list[TranslatedText | None]:
    """Return the best hypothesis of each text; see `_best`."""
    best: list[TranslatedText | None] = []
    chunk_size = MAX_ALIGNED_TEXTS if attention else len(texts)
    for first in range(0, len(texts), chunk_size):
        best += _best(translate, texts[first : first + chunk_size], attention, layer)
    return best


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
