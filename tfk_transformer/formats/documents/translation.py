"""Translate a document: split its items into sentences, translate these, and join the results."""

import bisect
import itertools
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from tfk_transformer.formats.documents.items import (
    Document,
    Item,
    ItemType,
    number_spans,
    placeholder_spans,
    protect_spans,
    shown_text,
    split_at_breaks,
    text_starts,
)
from tfk_transformer.formats.documents.markup import MarkedText, place_markup
from tfk_transformer.formats.documents.verification import (
    WrittenText,
    choose_writings,
    written_pieces,
)
from tfk_transformer.formats.documents.writing import PartWriter
from tfk_transformer.text.alignment import Alignment, Hypothesis, align, split_copied_words
from tfk_transformer.text.results import DocumentSentence, DocumentTranslation
from tfk_transformer.text.road import Sentences
from tfk_transformer.text.splitting import cut_in_two, sentence_spans
from tfk_transformer.text.words import Span

T = TypeVar("T")
# Yields sentences, and receives the translation of each with its mean attention (T, S) if asked
# for; None if it is too long for the model.
Translating: TypeAlias = Generator[Sentences, Sequence[Hypothesis | None], T]

WRITINGS = 2  # ways to write the translation of a part


def translating(document: Document, language: str) -> Translating[DocumentTranslation]:
    """Translate a document of a language."""
    items: list[Item] = []  # with points in place of placeholders and addresses
    for is_text, group in itertools.groupby(
        document.items, lambda item: item.type is ItemType.TEXT
    ):
        run = list(group)
        items += protect_spans(run, placeholder_spans(shown_text(run))) if is_text else run
    sentence_parts = [[part] for part in sentences(items, language)]
    done: dict[Segment, WrittenText] = {}
    while waiting := [part for part in itertools.chain(*sentence_parts) if part not in done]:
        replaced = yield from _translate_parts(document, waiting, done)
        for parts in sentence_parts:
            parts[:] = itertools.chain(*(replaced.get(part, [part]) for part in parts))
    return _join(
        document,
        [
            _written_sentence(document.text, [done[part] for part in parts])
            for parts in sentence_parts
        ],
    )


class Segment(NamedTuple):
    """A sentence or a part of a sentence: document[start:end]."""

    start: int
    end: int
    items: tuple[Item, ...]


def sentences(items: Sequence[Item], language: str) -> Iterator[Segment]:
    """Yield the sentences of a document in a language, given by its ISO 639 code."""
    for run in split_at_breaks(items):
        yield from parts_of(run, sentence_spans(shown_text(run), language))


def parts_of(items: Sequence[Item], spans: Iterable[Span]) -> Iterator[Segment]:
    """Yield the parts of the text of items that are not blank, without whitespace around them.

    A part contains the inline elements inside it, and the ends of elements that are partly inside.
    An element that contains the whole part is not in it.
    """
    text = shown_text(items)
    starts = text_starts(items)
    ends = {  # the positions of both ends of each element
        (item.type, item.pair): position
        for item, position in zip(items, starts, strict=True)
        if item.type in (ItemType.OPEN, ItemType.CLOSE)
    }

    def belongs(item: Item, position: int) -> bool:
        """Return whether an item at `position` of the text belongs to the part [start:end]."""
        if item.text:
            return position < end and position + len(item.text) > start
        if item.type is ItemType.OPEN and position == start:
            return start < ends.get((ItemType.CLOSE, item.pair), end + 1) <= end
        if item.type is ItemType.CLOSE and position == end:
            return start <= ends.get((ItemType.OPEN, item.pair), -1) < end
        return start < position < end

    for start, end in spans:
        piece = text[start:end]
        end = start + len(piece.rstrip())
        start += len(piece) - len(piece.lstrip())
        if start >= end:
            continue
        # One item that begins before the part can belong to it.
        first = max(0, bisect.bisect_left(starts, start) - 1)
        last = bisect.bisect_right(starts, end)
        inside = [n for n in range(first, last) if belongs(items[n], starts[n])]
        cut_items = [
            items[n].cut(start - starts[n], end - starts[n])
            for n in range(inside[0], inside[-1] + 1)
        ]
        selected = tuple(item for item in cut_items if item.type is not ItemType.TEXT or item.text)
        yield Segment(selected[0].start, selected[-1].end, selected)


def halves(part: Segment) -> list[Segment]:
    """Return both halves of a part, see `cut_in_two`; or the part if it has a single character."""
    text = shown_text(part.items)
    uncut: set[int] = set()  # the positions inside points
    for item, start in zip(part.items, text_starts(part.items), strict=True):
        if item.type is ItemType.POINT:
            uncut.update(range(start + 1, start + len(item.text)))
    middle = cut_in_two(text, uncut)
    if middle is None:
        return [part]
    return list(parts_of(part.items, [(0, middle), (middle, len(text))]))


def _translate_parts(
    document: Document, parts: Sequence[Segment], done: dict[Segment, WrittenText]
) -> Translating[dict[Segment, list[Segment]]]:
    """Translate parts, and return the replacements of parts that must be translated again.

    A part that is too long is replaced by its halves. A part whose translation lacks one of its
    numbers is replaced by the same part with its numbers protected.
    """
    replaced: dict[Segment, list[Segment]] = {}
    marked = {part: MarkedText(part.items, document) for part in parts}
    to_translate = [part for part in parts if marked[part].has_words]
    for needs_attention in (False, True):
        selected = [
            part for part in to_translate if marked[part].needs_attention == needs_attention
        ]
        texts = [marked[part].text for part in selected]
        if not texts:
            continue
        translations = yield Sentences(texts, [""] * len(texts), needs_attention)
        for part, translation in zip(selected, translations, strict=True):
            if translation is None:
                replaced[part] = halves(part)
                if replaced[part] == [part]:
                    raise ValueError(
                        "text: expected sentences that the model can take, got "
                        f"'{shown_text(part.items)[:30]}', which is too long for it."
                    )
                continue
            translation = translation._replace(text=document.clean(translation.text))
            protected = _protect_lost_numbers(part, marked[part].text, translation.text)
            if protected != part:
                replaced[part] = [protected]
            else:
                writings = _write(document, part, marked[part], translation)
                done[part] = WrittenText(part.start, part.end, writings, translation.score)
    for part in parts:
        if not marked[part].has_words:
            writings = (document.text[part.start : part.end],) * WRITINGS
            done[part] = WrittenText(part.start, part.end, writings, 0.0)
    return replaced


def _protect_lost_numbers(part: Segment, source: str, target: str) -> Segment:
    """Return a part, with points in place of its numbers if the target lacks one of them."""
    expected = Counter(source[start:end] for start, end in number_spans(source))
    if expected <= Counter(target[start:end] for start, end in number_spans(target)):
        return part
    return part._replace(items=protect_spans(part.items, number_spans(shown_text(part.items))))


def _write(
    document: Document, part: Segment, marked: MarkedText, translation: Hypothesis
) -> tuple[str, ...]:
    """Return a part's translation as it reads best, and with all escapes and blanks at markup."""
    if not translation.text.strip():
        return (document.text[part.start : part.end],) * WRITINGS
    alignment = Alignment([], [], [])
    if marked:
        alignment = align(marked.text, translation)
        alignment = split_copied_words(alignment, marked.text, translation.text, marked.gaps)
        marked.root.target_span = (0, len(alignment.target))
        place_markup(marked.root, alignment, translation.text)
    writer = PartWriter(marked, translation.text, alignment, document)

    def encode(text: str, following: str) -> str:
        return document.encode(text)

    return writer.written(encode), writer.written(document.escape or encode, is_spaced=True)


def _written_sentence(text: str, parts: Sequence[WrittenText]) -> WrittenText:
    """Join the parts of a sentence of a document, and add its source to the ways to write it."""
    start, end = parts[0].start, parts[-1].end
    source = text[start:end]
    writings = [
        "".join(written_pieces(text, parts, [n] * len(parts), (start, end)))
        for n in range(WRITINGS)
    ]
    others = [writing for writing in dict.fromkeys(writings) if writing != source]
    choices = [source] if writings[0] == source else [*others, source]
    return WrittenText(start, end, choices, sum(part.score for part in parts))


def _join(document: Document, sentences: Sequence[WrittenText]) -> DocumentTranslation:
    """Return the document with each sentence replaced by its translation."""
    choices = choose_writings(document, sentences)
    pieces = written_pieces(document.text, sentences, choices, (0, len(document.text)))
    starts = list(itertools.accumulate(map(len, pieces)))
    results = [
        DocumentSentence(
            source_start=sentence.start,
            source_end=sentence.end,
            target_start=starts[2 * index],
            target_end=starts[2 * index + 1],
            source=document.text[sentence.start : sentence.end],
            target=pieces[2 * index + 1],
            score=sentence.score,
            keeps_source=0 < choices[index] == len(sentence.writings) - 1,
        )
        for index, sentence in enumerate(sentences)
    ]
    return DocumentTranslation("".join(pieces), results)
