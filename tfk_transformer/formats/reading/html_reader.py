"""HTML: its text and markup as items, and the structure that a translation may not change."""

import html
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import html5lib

from tfk_transformer.formats.documents.items import (
    STAND_IN,
    Document,
    Item,
    ItemType,
    Mark,
    pair_elements,
    protect_spans,
    shown_text,
)
from tfk_transformer.formats.reading.html_parser import (
    ANNOTATION_TAGS,
    INLINE_TAGS,
    SENTENCE_TAGS,
    VOID_INLINE_TAGS,
    HtmlParser,
    HtmlToken,
    is_unchanged,
)

# Code of a template: {{ name }}, {% if name %}, {# a comment #}, and Hugo's {{< name >}}.
TEMPLATE_CODE = re.compile(r"\{\{.{,4000}?\}\}|\{%.{,4000}?%\}|\{#.{,4000}?#\}", re.DOTALL)
END_OF_LINE = re.compile(r"[^\S\n]*(?:\n\s*(?P<next>\S?)|\Z)")


def read(text: str) -> Document:
    """Parse an HTML document or fragment."""
    return Document(text, read_html(text), escape_html, html_structure, escape_html)


def read_html(document: str) -> list[Item]:
    """Return the items of an HTML document or fragment.

    Scripts, styles, preformatted text, code, templates' code, the pronunciation of ruby text, and
    elements with `translate="no"` or the class `notranslate` stay unchanged.
    """
    marks: list[Mark] = []
    groups = itertools.groupby(
        _marks(HtmlParser(document).tokens), lambda mark: mark.item.type is ItemType.TEXT
    )
    for is_text, group in groups:
        marks += _text_marks([mark.item for mark in group], document) if is_text else group
    return pair_elements(marks)


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
        elif unchanged.name not in SENTENCE_TAGS:
            item = Item(ItemType.BREAK, token.start, token.end)
        else:
            shown = "" if unchanged.name in ANNOTATION_TAGS else STAND_IN
            item = Item(ItemType.POINT, token.start, token.end, shown)
    if item is not None:
        yield Mark(item)


def _mark(token: HtmlToken) -> Mark:
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


def html_structure(text: str) -> list[str]:
    """Return the elements and comments of an HTML document in order, as browsers build them.

    Strings of parts of a sentence begin with "inline ". A block has a string for its start and one
    for its end. Words are missing, except of elements that stay unchanged, each of which is one
    string with everything inside it.
    """
    tree = HtmlParser(text).tree.getDocument()
    return list(_structure(html5lib.getTreeWalker("etree")(tree)))


def _structure(tokens: Iterator[dict[str, Any]]) -> Iterator[str]:
    unchanged = ""  # the element that stays unchanged, up to the token
    prefix = ""
    depth = 0  # of elements inside it
    for token in tokens:
        text = _token_text(token)
        if depth:
            depth += {"StartTag": 1, "EndTag": -1}.get(token["type"], 0)
            unchanged += text
            if not depth:
                yield prefix + unchanged
            continue
        if token["type"] in ("Characters", "SpaceCharacters"):
            continue
        is_inline = token["type"] == "Comment" or token.get("name") in SENTENCE_TAGS
        prefix = "inline " if is_inline else ""
        if token["type"] == "StartTag" and is_unchanged(token["name"], _attributes(token)):
            unchanged = text
            depth = 1
        elif not (is_inline and token["type"] == "EndTag"):
            yield prefix + text


def _attributes(token: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for (_, name), value in token["data"].items()}


def _token_text(token: Mapping[str, Any]) -> str:
    """Return a token of a tree as HTML, with its attributes in the order of their names."""
    match token["type"]:
        case "Doctype":
            return f"<!DOCTYPE {token['name']} {token['publicId']} {token['systemId']}>"
        case "Comment":
            return f"<!--{token['data']}-->"
        case "EndTag":
            return f"</{token['name']}>"
        case "StartTag" | "EmptyTag":
            attributes = sorted(_attributes(token).items())
            pairs = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes)
            return f"<{token['name']}{pairs}>"
    return html.escape(token["data"])
