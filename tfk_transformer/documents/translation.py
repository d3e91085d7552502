"""A document translated: its items cut into sentences, which a function translates, and put
together again.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tfk_transformer.documents.alignment import aligned
from tfk_transformer.documents.items import Document, Item, ItemType, shown
from tfk_transformer.documents.markup import Marked
from tfk_transformer.documents.placement import place
from tfk_transformer.documents.protection import numbers, placeholders, protected
from tfk_transformer.documents.results import DocumentSentence, DocumentTranslation, TranslatedText
from tfk_transformer.documents.sentences import Segment, halves, sentences
from tfk_transformer.documents.writing import written

# (texts, whether attention is needed) -> the translation of each text, None where the text is too
# long for the model.
Run = Callable[[Sequence[str], bool], Sequence[TranslatedText | None]]


class Done(NamedTuple):
    """A part with its translation in the format of the document."""

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
    items = _with_protection(document.items)
    found = [[part] for part in sentences(items, language)]
    done: dict[Segment, Done] = {}
    while waiting := [part for parts in found for part in parts if part not in done]:
        replaced = _translated(document, waiting, run, done)
        found = [[new for part in parts for new in replaced.get(part, [part])] for parts in found]
    return _joined(document.text, [[done[part] for part in parts] for parts in found])


def _with_protection(items: Sequence[Item]) -> list[Item]:
    """Return items whose placeholders and addresses are points."""
    found: list[Item] = []
    run: list[Item] = []
    for item in [*items, Item(ItemType.BREAK, 0, 0)]:
        if item.kind is ItemType.TEXT:
            run.append(item)
        else:
            found += [*protected(run, placeholders(shown(run)[0])), item]
            run = []
    return found[:-1]


def _translated(
    document: Document, parts: Sequence[Segment], run: Run, done: dict[Segment, Done]
) -> dict[Segment, list[Segment]]:
    """Translate parts, and return those that others replace: one that is too long, or one whose
    numbers did not come through.
    """
    replaced: dict[Segment, list[Segment]] = {}
    marked = {part: Marked(part.items) for part in parts}
    for needs_attention in (False, True):
        chosen = [
            part
            for part in parts
            if bool(marked[part]) == needs_attention and marked[part].has_words
        ]
        for part, found in zip(
            chosen,
            run([marked[part].text for part in chosen], needs_attention) if chosen else [],
            strict=True,
        ):
            if found is None:
                replaced[part] = _shorter(part)
            elif (
                not _has_numbers(marked[part].text, found.text)
                and (changed := _without_numbers(part)) != part
            ):
                replaced[part] = [changed]
            else:
                done[part] = Done(part, _written(document, part, marked[part], found), found.score)
    for part in parts:
        if not marked[part].has_words:
            done[part] = Done(part, document.text[part.start : part.end], 0.0)
    return replaced


def _shorter(part: Segment) -> list[Segment]:
    found = halves(part)
    if found == [part]:
        raise ValueError(
            "text: expected sentences that the model can take, got "
            f"'{shown(part.items)[0][:30]}', which is too long for it."
        )
    return found


def _has_numbers(source: str, target: str) -> bool:
    """Return whether the target has all numbers of the source, as often."""
    wanted, found = (
        Counter(text[start:end] for start, end in numbers(text)) for text in (source, target)
    )
    return wanted <= found


def _without_numbers(part: Segment) -> Segment:
    return part._replace(items=protected(part.items, numbers(shown(part.items)[0])))


def _written(document: Document, part: Segment, marked: Marked, found: TranslatedText) -> str:
    """Return the translation of a part with its markup; a part with a blank translation stays as it
    is.
    """
    if not found.text.strip():
        return document.text[part.start : part.end]
    if not marked:
        return document.escaped(found.text, "")
    alignment = aligned(marked.text, found)
    marked.root.place = (0, len(alignment.target))
    place(marked.root, alignment)
    return written(marked.root, found.text, alignment.target, document.text, document.escaped)


def _joined(text: str, found: Sequence[Sequence[Done]]) -> DocumentTranslation:
    """Return the document with each part replaced by its translation."""
    pieces: list[str] = []
    records = []
    at = length = 0
    for parts in found:
        start = -1
        for done in parts:
            gap = text[at : done.part.start] or _blank_between(pieces[-1:], done.text)
            start = length + len(gap) if start < 0 else start
            pieces += [gap, done.text]
            length, at = length + len(gap) + len(done.text), done.part.end
        records.append((parts[0].part.start, at, start, length, sum(done.score for done in parts)))
    target = "".join([*pieces, text[at:]])
    return DocumentTranslation(
        target,
        [DocumentSentence(*r[:4], text[r[0] : r[1]], target[r[2] : r[3]], r[4]) for r in records],
    )


def _blank_between(before: Sequence[str], after: str) -> str:
    """Return a blank between translations whose sources, in a script without blanks, had none,
    unless theirs has none either.
    """
    beside = [
        text[place] for text, place in ((before[0] if before else "", -1), (after, 0)) if text
    ]
    return (
        " "
        if len(beside) == 2
        and all(unicodedata.east_asian_width(character) not in "WF" for character in beside)
        else ""
    )
