"""Read the tokens of inline Markdown as items."""

import collections
import functools
from collections.abc import Sequence
from typing import Any

from markdown_it.common.html_blocks import block_names
from markdown_it.token import Token

from tfk_transformer.formats.documents.items import STAND_IN, Item, ItemType
from tfk_transformer.formats.reading.elements import Mark, pair_elements
from tfk_transformer.formats.reading.html_elements import (
    ANNOTATION_TAGS,
    INLINE_TAGS,
    UNTOUCHED_TAGS,
    WORD_TAGS,
    is_unchanged,
)
from tfk_transformer.formats.reading.html_parser import HtmlParser, HtmlToken
from tfk_transformer.formats.reading.markdown.parser import parse_inline

BLOCK_TAGS = ({"br", *block_names} | UNTOUCHED_TAGS) - WORD_TAGS  # they end a sentence
NOT_WORDS = {"image", "unchanged_mark"}  # unchanged tokens that a sentence does not need


def read_inline(text: str, env: dict[str, Any]) -> list[Item]:
    """Return the items of inline Markdown, with their positions in `text`.

    Args:
        text: the content of a paragraph, a heading or a cell.
        env: the environment of the parsed document, which has its definitions.
    """
    tokens = parse_inline(text, env)
    ends = _unchanged_ends(tokens)
    marks: list[Mark] = []
    done = 0
    n = 0
    while n < len(tokens):
        start, end = tokens[n].meta["span"]
        if start > done:
            marks.append(Mark(Item(ItemType.TEXT, done, start, text[done:start])))
        last = ends.get(n, n)
        if last > n:
            end = tokens[last].meta["span"][1]
            marks.append(_unchanged_mark(_tag(tokens[n].content).data, start, end))
        elif _is_attribute(tokens[n], start, marks):
            marks[-1] = _with_attribute(marks[-1], tokens[n], end)
        else:
            marks.append(_mark(tokens[n], start, end))
        done = end
        n = last + 1
    if done < len(text):
        marks.append(Mark(Item(ItemType.TEXT, done, len(text), text[done:])))
    return pair_elements(marks)


def _is_attribute(token: Token, start: int, marks: Sequence[Mark]) -> bool:
    """Return whether a token has the attributes of the link or the point before it."""
    return (
        token.type == "unchanged_mark"
        and token.content.startswith("{")
        and bool(marks)
        and marks[-1].item.end == start
        and marks[-1].item.type in (ItemType.CLOSE, ItemType.POINT)
    )


def _with_attribute(mark: Mark, token: Token, end: int) -> Mark:
    explicit = mark.item.explicit and mark.item.explicit + token.content
    return mark._replace(item=mark.item._replace(end=end, explicit=explicit))


@functools.lru_cache(maxsize=1000)
def _tag(raw: str) -> HtmlToken:
    """Return a tag or a comment."""
    return HtmlParser(raw).tokens[0]


def _unchanged_ends(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the indices of the tags of each element of HTML that stays unchanged: start to end."""
    ends: dict[int, int] = {}
    waiting = collections.defaultdict[str, list[int]](list)  # start tags, by the element's name
    for n, token in enumerate(tokens):
        tag = _tag(token.content) if token.type == "html_inline" else None
        if tag is None:
            continue
        if tag.type == "StartTag":
            waiting[tag.data].append(n)
        elif tag.type == "EndTag" and waiting[tag.data]:
            start = waiting[tag.data].pop()
            if is_unchanged(tag.data, _tag(tokens[start].content).attributes):
                ends[start] = n
    return ends


def _unchanged_mark(name: str, start: int, end: int) -> Mark:
    """Return the item of an element of HTML that stays unchanged."""
    if name in BLOCK_TAGS:
        return Mark(Item(ItemType.BREAK, start, end))
    return Mark(Item(ItemType.POINT, start, end, "" if name in ANNOTATION_TAGS else STAND_IN))


def _mark(token: Token, start: int, end: int) -> Mark:
    """Return the item of a token."""
    if token.nesting:
        name = token.type.rpartition("_")[0]
        item_type = ItemType.OPEN if token.nesting > 0 else ItemType.CLOSE
        explicit = f"][{token.meta['key']}]" if "key" in token.meta else ""
        item = Item(item_type, start, end, needs_text=name != "link", explicit=explicit)
        return Mark(item, name, True)
    if token.type == "hardbreak":
        return Mark(Item(ItemType.BREAK, start, end))
    if token.type in ("softbreak", "text_special"):
        return Mark(Item(ItemType.TEXT, start, end, token.content or "\n"))
    if token.type == "html_inline":
        return _tag_mark(_tag(token.content), start, end)
    shown = "" if token.type in NOT_WORDS else STAND_IN
    return Mark(Item(ItemType.POINT, start, end, shown))


def _tag_mark(tag: HtmlToken, start: int, end: int) -> Mark:
    """Return the item of an HTML tag or of a comment."""
    if tag.data in BLOCK_TAGS:
        return Mark(Item(ItemType.BREAK, start, end))
    if tag.data not in INLINE_TAGS or tag.is_closed:
        return Mark(Item(ItemType.POINT, start, end))
    item_type = ItemType.OPEN if tag.type == "StartTag" else ItemType.CLOSE
    return Mark(Item(item_type, start, end), tag.data)
