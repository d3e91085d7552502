"""Translate a document: split its items into sentences, translate these, and join the results."""

import itertools
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar, cast

from tfk_transformer.formats.documents.items import (
    Document,
    Item,
    ItemType,
    number_spans,
    placeholder_spans,
    protect_spans,
    shown_text,
)
from tfk_transformer.formats.documents.markup import MarkedText, place_markup
from tfk_transformer.formats.documents.results import DocumentSentence, DocumentTranslation
from tfk_transformer.formats.documents.sentences import Segment, halves, sentences
from tfk_transformer.formats.documents.verification import (
    WrittenSentence,
    choose_writings,
    written_pieces,
)
from tfk_transformer.formats.documents.writing import PartWriter
from tfk_transformer.formats.lines import one_line
from tfk_transformer.text.alignment import Alignment, TranslatedText, align, split_copied_words
from tfk_transformer.text.road import Sentences, advance

T = TypeVar("T")
# Yields sentences, and receives the translation of each, None if it is too long for the model.
Translating: TypeAlias = Generator[Sentences, Sequence[TranslatedText | None], T]

WRITINGS = 2  # ways to write the translation of a part


class TranslatedSegment(NamedTuple):
    """A part of a sentence with its translation in the format of the document."""

    part: Segment
    writings: tuple[str, ...]  # ways to write the translation, the preferred one first
    score: float


def translate(
    document: Document,
    language: str,
    run: Callable[[Sequence[str], bool], Sequence[TranslatedText | None]],
) -> DocumentTranslation:
    """Translate a document with a function; see `translating`.

    Args:
        document: the document.
        language: the ISO 639 code of its language, for the ends of its sentences.
        run: maps texts, and whether their attention is needed, to their translations, None if a
            text is too long for the model.
    """
    sentences = translating(document, language)
    request, result = advance(sentences, None)
    while request is not None:
        request, result = advance(sentences, run(request.texts, request.attention))
    return cast(DocumentTranslation, result)


def translating(
    document: Document, language: str, as_lines: bool = False
) -> Translating[DocumentTranslation]:
    """Translate a document.

    Args:
        document: the document.
        language: the ISO 639 code of its language, for the ends of its sentences.
        as_lines: whether translations become one line each.

    Raises:
        ValueError: if a single character is too long for the model.
    """
    items = _protect_placeholders(document.items)
    sentence_parts = [[part] for part in sentences(items, language)]
    done: dict[Segment, TranslatedSegment] = {}
    while waiting := [part for part in itertools.chain(*sentence_parts) if part not in done]:
        replaced = yield from _translate_parts(document, waiting, done, as_lines)
        for parts in sentence_parts:
            parts[:] = itertools.chain(*(replaced.get(part, [part]) for part in parts))
    return _join(document, [[done[part] for part in parts] for parts in sentence_parts])


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
    done: dict[Segment, TranslatedSegment],
    as_lines: bool,
) -> Translating[dict[Segment, list[Segment]]]:
    """Translate parts, and return the replacements of parts that must be translated again.

    A part that is too long is replaced by its halves. A part whose translation lacks one of its
    numbers is replaced by the same part with its numbers protected.
    """
    replaced: dict[Segment, list[Segment]] = {}
    marked = {part: MarkedText(part.items, document) for part in parts}
    to_translate = [part for part in parts if marked[part].has_words]
    for needs_attention in (False, True):
        selected = [part for part in to_translate if bool(marked[part]) == needs_attention]
        texts = [marked[part].text for part in selected]
        if not texts:
            continue
        translations = yield Sentences(texts, [""] * len(texts), needs_attention)
        for part, translation in zip(selected, translations, strict=True):
            if translation is None:
                replaced[part] = _shorter(part)
                continue
            if as_lines:
                translation = translation._replace(text=one_line(translation.text))
            protected = _protect_lost_numbers(part, marked[part].text, translation.text)
            if protected != part:
                replaced[part] = [protected]
            else:
                writings = _write(document, part, marked[part], translation)
                done[part] = TranslatedSegment(part, writings, translation.score)
    for part in parts:
        if not marked[part].has_words:
            source = document.text[part.start : part.end]
            done[part] = TranslatedSegment(part, (source,) * WRITINGS, 0.0)
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


def _write(
    document: Document, part: Segment, marked: MarkedText, translation: TranslatedText
) -> tuple[str, ...]:
    """Return the translation of a part with its markup, or the source of a blank translation.

    Returns:
        The translation as it reads best; and with all escapes, and blanks around markup.
    """
    if not translation.text.strip():
        return (document.text[part.start : part.end],) * WRITINGS
    alignment = Alignment([], [], [])
    if marked:
        alignment = align(marked.text, translation)
        alignment = split_copied_words(alignment, marked.text, translation.text, marked.gaps)
        marked.root.target_span = (0, len(alignment.target))
        place_markup(marked.root, alignment)
    writer = PartWriter(marked, translation.text, alignment, document)
    return (
        writer.written(lambda text, _: document.encode(text)),
        writer.written(document.escape, is_spaced=True),
    )


def _join(
    document: Document, translations: Sequence[Sequence[TranslatedSegment]]
) -> DocumentTranslation:
    """Return the document with each sentence replaced by its translation."""
    sentences = [_written_sentence(document.text, parts) for parts in translations]
    choices = choose_writings(document, sentences)
    span = (0, len(document.text))
    pieces = written_pieces(document.text, sentences, choices, span)
    starts = list(itertools.accumulate(map(len, pieces)))
    results = [
        DocumentSentence(
            source_start=sentence.start,
            source_end=sentence.end,
            target_start=starts[2 * index],
            target_end=starts[2 * index + 1],
            source=document.text[sentence.start : sentence.end],
            target=pieces[2 * index + 1],
            score=sum(part.score for part in translations[index]),
            keeps_source=0 < choices[index] == len(sentence.writings) - 1,
        )
        for index, sentence in enumerate(sentences)
    ]
    return DocumentTranslation("".join(pieces), results)


def _written_sentence(text: str, parts: Sequence[TranslatedSegment]) -> WrittenSentence:
    """Return the ways to write the translation of a sentence, of which the last is its source."""
    start, end = parts[0].part.start, parts[-1].part.end
    source = text[start:end]
    segments = [WrittenSentence(part.start, part.end, writings) for part, writings, _ in parts]
    writings = [
        "".join(written_pieces(text, segments, [n] * len(parts), (start, end)))
        for n in range(WRITINGS)
    ]
    others = [writing for writing in dict.fromkeys(writings) if writing != source]
    return WrittenSentence(start, end, [source] if writings[0] == source else [*others, source])
