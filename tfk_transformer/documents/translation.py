"""Translate a document: split its items into sentences, translate these, and join the results."""

import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tfk_transformer.documents.alignment import align
from tfk_transformer.documents.items import Document, Item, ItemType, shown_text
from tfk_transformer.documents.markup import MarkedText
from tfk_transformer.documents.placement import place_markup
from tfk_transformer.documents.protection import number_spans, placeholder_spans, protect_spans
from tfk_transformer.documents.results import DocumentSentence, DocumentTranslation, TranslatedText
from tfk_transformer.documents.sentences import Segment, halves, sentences
from tfk_transformer.documents.writing import insert_markup

# (texts, whether attention is needed) -> the translation of each text, None where the text is too
# long for the model.
Run = Callable[[Sequence[str], bool], Sequence[TranslatedText | None]]


class TranslatedSegment(NamedTuple):
    """A part of a sentence with its translation in the format of the document."""

    part: Segment
    text: str
    score: float


def translate(document: Document, language: str, run: Run) -> DocumentTranslation:
    """Translate a document.

    Args:
        document: the document.
        language: the ISO 639 code of its language, for the ends of its sentences.
        run: translates texts.

    Raises:
        ValueError: if a single character is too long for the model.
    """
    items = _protect_placeholders(document.items)
    sentence_parts = [[part] for part in sentences(items, language)]
    done: dict[Segment, TranslatedSegment] = {}
    while waiting := [part for part in itertools.chain(*sentence_parts) if part not in done]:
        replaced = _translate_parts(document, waiting, run, done)
        for parts in sentence_parts:
            parts[:] = itertools.chain(*(replaced.get(part, [part]) for part in parts))
    return _join(document.text, [[done[part] for part in parts] for parts in sentence_parts])


def _protect_placeholders(items: Sequence[Item]) -> list[Item]:
    """Return items whose placeholders and addresses are points."""
    protected: list[Item] = []
    for is_text, group in itertools.groupby(items, lambda item: item.type is ItemType.TEXT):
        run = list(group)
        protected += protect_spans(run, placeholder_spans(shown_text(run))) if is_text else run
    return protected


def _translate_parts(
    document: Document,
    parts: Sequence[Segment],
    run: Run,
    done: dict[Segment, TranslatedSegment],
) -> dict[Segment, list[Segment]]:
    """Translate parts, and return the replacements of parts that must be translated again.

    A part that is too long is replaced by its halves. A part whose translation lacks one of its
    numbers is replaced by the same part with its numbers protected.
    """
    replaced: dict[Segment, list[Segment]] = {}
    marked = {part: MarkedText(part.items) for part in parts}
    to_translate = [part for part in parts if marked[part].has_words]
    for needs_attention in (False, True):
        selected = [part for part in to_translate if bool(marked[part]) == needs_attention]
        texts = [marked[part].text for part in selected]
        translations = run(texts, needs_attention) if texts else []
        for part, translation in zip(selected, translations, strict=True):
            if translation is None:
                replaced[part] = _shorter(part)
                continue
            protected = _protect_lost_numbers(part, marked[part].text, translation.text)
            if protected != part:
                replaced[part] = [protected]
            else:
                text = _render(document, part, marked[part], translation)
                done[part] = TranslatedSegment(part, text, translation.score)
    for part in parts:
        if not marked[part].has_words:
            done[part] = TranslatedSegment(part, document.text[part.start : part.end], 0.0)
    return replaced


def _shorter(part: Segment) -> list[Segment]:
    parts = halves(part)
    if parts == [part]:
        raise ValueError(
            "text: expected sentences that the model can take, got "
            f"'{shown_text(part.items)[:30]}', which is too long for it."
        )
    return parts


def _protect_lost_numbers(part: Segment, source: str, target: str) -> Segment:
    """Return a part, with points in place of its numbers if the target lacks one of them."""
    expected = Counter(source[start:end] for start, end in number_spans(source))
    if expected <= Counter(target[start:end] for start, end in number_spans(target)):
        return part
    return part._replace(items=protect_spans(part.items, number_spans(shown_text(part.items))))


def _render(
    document: Document, part: Segment, marked: MarkedText, translation: TranslatedText
) -> str:
    """Return the translation of a part with its markup, or the source of a blank translation."""
    if not translation.text.strip():
        return document.text[part.start : part.end]
    if not marked:
        return document.escape(translation.text, "")
    alignment = align(marked.text, translation)
    marked.root.target_span = (0, len(alignment.target))
    place_markup(marked.root, alignment)
    return insert_markup(marked.root, translation.text, alignment.target, document)


def _join(text: str, translations: Sequence[Sequence[TranslatedSegment]]) -> DocumentTranslation:
    """Return the document with each part replaced by its translation.

    Args:
        text: the document.
        translations: the translated parts of each sentence.
    """
    pieces = [""]
    results: list[DocumentSentence] = []
    source_end = target_end = 0
    for parts in translations:
        first = len(pieces)
        for part, translation, _ in parts:
            gap = text[source_end : part.start] or _blank_between(pieces[-1], translation)
            pieces += [gap, translation]
            source_end = part.end
        source_start = parts[0].part.start
        target_start = target_end + len(pieces[first])
        target = "".join(pieces[first + 1 :])
        target_end = target_start + len(target)
        results.append(
            DocumentSentence(
                source_start=source_start,
                source_end=source_end,
                target_start=target_start,
                target_end=target_end,
                source=text[source_start:source_end],
                target=target,
                score=sum(part.score for part in parts),
            )
        )
    return DocumentTranslation("".join([*pieces, text[source_end:]]), results)


def _blank_between(before: str, after: str) -> str:
    """Return the blank between two translations whose sources have none between them.

    Sentences of a script without blanks need one where their translations are in another script.
    """
    widths = [unicodedata.east_asian_width(character) for character in before[-1:] + after[:1]]
    return " " if len(widths) == 2 and not {"W", "F"} & set(widths) else ""
