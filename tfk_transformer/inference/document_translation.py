"""The road of a document: the sentences of its format, and their best translations."""

from typing import TYPE_CHECKING, TypeVar, cast

from tfk_transformer.formats.registry import check_document_format, check_document_options, read
from tfk_transformer.runtime_environment import with_install_line
from tfk_transformer.text.alignment import TranslatedText
from tfk_transformer.text.languages import language_code
from tfk_transformer.text.outcome import Outcome, Refused, check_texts
from tfk_transformer.text.results import Translation
from tfk_transformer.text.road import Road, Sentences, advance

if TYPE_CHECKING:
    from tfk_transformer.formats.documents.results import DocumentTranslation
    from tfk_transformer.formats.documents.translation import Translating

T = TypeVar("T")
MAX_ALIGNED_TEXTS = 1000  # texts whose attention is in memory at the same time


def document_road(
    text: str,
    format: str,
    language: str,
    lines: bool = False,
    attention_layer: int | None = None,
    attributes: bool = False,
    target_language: str | None = None,
) -> "Road[DocumentTranslation]":
    """Translate a document; see `BaseTranslator.translate_document` and `Road`.

    Args:
        language: the code of its language, without script and region.
        text, format, lines, attention_layer, attributes, target_language: as in
            `BaseTranslator.translate_document`.
    """
    _check_arguments(text, format, lines, attributes, target_language)
    try:
        from tfk_transformer.formats.documents.translation import translating
        from tfk_transformer.formats.reading.html_attributes import (
            attribute_texts,
            translate_attributes,
        )
    except ImportError as error:
        raise with_install_line(error) from error
    if not attributes and target_language is None:
        document = translating(read(text, format, lines), language)
        return (yield from _best_hypotheses(document, attention_layer))
    if target_language is not None:
        language_code(target_language, "target_language")
    translations = None
    if attributes:
        texts = attribute_texts(text)
        values = translating(read("\n".join(texts), "text", lines=True), language, as_lines=True)
        done = yield from _best_hypotheses(values, attention_layer)
        translations = done.text.split("\n")
    translated = translate_attributes(text, translations, target_language)
    document = translating(read(translated.text, format), language)
    return translated.restore((yield from _best_hypotheses(document, attention_layer)))


def _check_arguments(
    text: str, format: str, lines: bool, attributes: bool, target_language: str | None
) -> None:
    check_document_format(format)
    if not isinstance(text, str):
        raise ValueError(f"text: expected a string, got {type(text).__name__}.")
    check_document_options(
        format, lines=lines, attributes=attributes, target_language=target_language
    )
    check_texts([text], "text")


def _best_hypotheses(translating: "Translating[T]", layer: int | None) -> Road[T]:
    """Answer each request of a document with the best hypotheses of its sentences.

    An answer is None for a sentence that is too long.
    """
    request, result = advance(translating, None)
    while request is not None:
        best: list[TranslatedText | None] = []
        size = MAX_ALIGNED_TEXTS if request.attention else max(1, len(request.texts))
        for first in range(0, len(request.texts), size):
            part = slice(first, first + size)
            outcomes = yield Sentences(
                request.texts[part], request.prefixes[part], request.attention
            )
            best += [_average_heads(outcome, layer) for outcome in outcomes]
        request, result = advance(translating, best)
    return cast(T, result)


def _average_heads(outcome: Outcome[Translation], layer: int | None) -> TranslatedText | None:
    """Return the best hypothesis, with the mean attention (T, S) of the heads of one layer or of
    all layers.
    """
    if isinstance(outcome, Refused):
        return None
    best = outcome.hypotheses[0]
    if best.attention is None:
        return TranslatedText(best.text, best.score)
    layers = len(best.attention)
    if layer is not None and not -layers <= layer < layers:
        raise ValueError(
            f"attention_layer: expected a number from {-layers} to {layers - 1}, got {layer}."
        )
    weights = best.attention.mean(axis=0) if layer is None else best.attention[layer]
    mean = weights.mean(axis=0)
    return TranslatedText(best.text, best.score, best.tokens, best.source_tokens, mean)
