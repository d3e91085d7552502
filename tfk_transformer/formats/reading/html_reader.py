"""Read the tokens of HTML as items."""

import html
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from tfk_transformer.formats.documents.items import STAND_IN, Item, ItemType, shown_text
from tfk_transformer.formats.documents.protection import protect_spans
from tfk_transformer.formats.reading.elements import Mark, pair_elements
from tfk_transformer.formats.reading.html_elements import (
    ANNOTATION_TAGS,
    INLINE_TAGS,
    SENTENCE_TAGS,
    VOID_INLINE_TAGS,
)
from tfk_transformer.formats.reading.html_parser import HtmlParser, HtmlToken

# Code of a template: {{ name }}, {% if name %}, {# a comment #}, and Hugo's {{< name >}}.
TEMPLATE_CODE = re.compile(r"\{\{.{,4000}?\}\}|\{%.{,4000}?%\}|\{#.{,4000}?#\}", re.DOTALL)
END_OF_LINE = re.compile(r"[^\S\n]*(?:\n\s*(?P<next>\S?)|\Z)")


def read_html(document: str) -> list[Item]:
    """Return the items of an HTML document or fragment.

    Scripts, styles, preformatted text, code, templates' code, the pronunciation of ruby text, and
    elements with `translate="no"` or the class `notranslate` stay unchanged.
    """
    marks: list[Mark] = []
    groups = itertools.groupby(_marks(HtmlParser(document).tokens), _is_text)
    for is_text, group in groups:
        marks += _text_marks([mark.item for mark in group], document) if is_text else group
    return pair_elements(marks)


def _is_text(mark: Mark) -> bool:
    return mark.item.type is ItemType.TEXT


def _marks(tokens: Iterable[HtmlToken]) -> Iterator[Mark]:
    """Yield the items of tokens. An element that stays unchanged is one item."""
    unchanged: Any = None  # the element that stays unchanged
    item: Item | None = None  # its item, up to the last token
    for token in tokens:
        if item is not None:
            is_inside = token.unchanged is unchanged
            is_end = token.type == "EndTag" and token.data == unchanged.name
            if is_inside or is_end:
                item = item._replace(end=token.end)
            if not is_inside:
                yield Mark(item)
                item = None
            if is_inside or is_end:
                continue
        unchanged = token.unchanged
        if unchanged is None:
            yield _mark(token)
        else:
            item = _unchanged_item(token)
    if item is not None:
        yield Mark(item)


def _unchanged_item(token: HtmlToken) -> Item:
    """Return the item of the first token of an element that stays unchanged."""
    name = token.unchanged.name
    if name not in SENTENCE_TAGS:
        return Item(ItemType.BREAK, token.start, token.end)
    shown = "" if name in ANNOTATION_TAGS else STAND_IN
    return Item(ItemType.POINT, token.start, token.end, shown)


def _mark(token: HtmlToken) -> Mark:
    """Return the item of a token."""
    span = (token.start, token.end)
    if token.type == "Text":
        return Mark(Item(ItemType.TEXT, *span, token.data))
    is_point = token.data in VOID_INLINE_TAGS or (token.data in INLINE_TAGS and token.is_closed)
    if is_point or token.type in ("Comment", "EmptyEndTag"):
        return Mark(Item(ItemType.POINT, *span))
    if token.data in INLINE_TAGS:
        item_type = ItemType.OPEN if token.type == "StartTag" else ItemType.CLOSE
        return Mark(Item(item_type, *span), token.data)
    return Mark(Item(ItemType.BREAK, *span))


def _text_marks(items: list[Item], document: str) -> Iterator[Mark]:
    """Yield the items of a text between tags.

    Code of a template that is alone on its lines is a break, except before a small letter.
    """
    spans = [match.span() for match in TEMPLATE_CODE.finditer(shown_text(items))]
    protected = [item for item in protect_spans(items, spans) if item.text]
    for is_text, group in itertools.groupby(protected, lambda item: item.type is ItemType.TEXT):
        run = list(group)
        if is_text:
            yield from map(Mark, run)
            continue
        start = run[0].start
        end = run[-1].end
        line_start = document.rfind("\n", 0, start) + 1
        line_end = END_OF_LINE.match(document, end)
        is_alone = (
            line_end is not None
            and not (line_end["next"] or "").islower()
            and not document[line_start:start].strip()
        )
        item = Item(ItemType.BREAK if is_alone else ItemType.POINT, start, end)
        yield Mark(item if is_alone else item._replace(text=STAND_IN))


def escape_html(text: str, following: str = "") -> str:
    """Return a text as HTML. The markup that follows makes no difference."""
    return html.escape(text, quote=False)
