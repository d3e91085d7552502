"""A parser of Markdown: CommonMark, GitHub's tables, and dialects; its inline tokens as items."""

import collections
import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.html_blocks import block_names
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.field_list import fieldlist_plugin
from mdit_py_plugins.footnote import footnote_plugin

from tfk_transformer.formats.documents.items import STAND_IN, Item, ItemType, pair_elements
from tfk_transformer.formats.reading import markdown_rules
from tfk_transformer.formats.reading.html_parser import (
    ANNOTATION_TAGS,
    UNTOUCHED_TAGS,
    WORD_TAGS,
    HtmlParser,
    HtmlToken,
    is_unchanged,
    tag_item,
)
from tfk_transformer.formats.reading.units import ANY_UNIT

MARKDOWN_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")  # the line ends of CommonMark
BLOCK_TAGS = ({"br", *block_names} | UNTOUCHED_TAGS) - WORD_TAGS  # they end a sentence
# Unchanged tokens that a sentence does not need.
NOT_WORDS = {"autolink", "image", "unchanged_mark"}

InlineRule = Callable[[StateInline, bool], bool]


@functools.cache
def markdown_parser(dialect: str) -> MarkdownIt:
    """Return the parser of a dialect. `parse_inline` parses the content of its inline tokens."""
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    # It accepts every link, because nothing is displayed.
    md.validateLink = lambda url: True  # type: ignore[method-assign]
    md.core.ruler.enableOnly(["normalize", "block"])
    md.use(footnote_plugin, inline=False, move_to_end=False)
    md.use(deflist_plugin).use(fieldlist_plugin)
    if dialect == "mdx":
        md.disable(["code", "html_block", "autolink"])
    md.use(markdown_rules.dialects)
    inline = md.inline.ruler
    for name, rule in zip(inline.get_active_rules(), inline.getRules(""), strict=True):
        if name != "text":
            inline.at(name, _with_spans(name, rule))
    return md


def _with_spans(name: str, rule: InlineRule) -> InlineRule:
    """Return an inline rule that writes the span in the text into `meta` of its tokens."""

    def apply(state: StateInline, silent: bool) -> bool:
        start = state.pos
        count = len(state.tokens)
        if not rule(state, silent):
            return False
        end = state.pos
        # Text before the rule's tokens can be a token too, and a rule can have made none.
        tokens = [] if silent else state.tokens[count:]
        if name in ("emphasis", "strikethrough"):
            for token in reversed(tokens):  # a token for each delimiter
                if end > start:
                    token.meta["span"] = (end - len(token.content), end)
                    end -= len(token.content)
        elif tokens and name in ("link", "reference") and tokens[-1].nesting:
            opening = next(token for token in tokens if token.nesting > 0)
            label_start, label_end = start + 1, end - 2
            if "target" in opening.attrs:
                label_start = state.src.index("|", start) + 1
            else:
                label_end = state.md.helpers.parseLinkLabel(state, start, True)
            opening.meta["span"] = (start, label_start)
            tokens[-1].meta["span"] = (label_end, end)
            label = state.src[label_start:label_end]
            # The label is the key. One with a unit hardly changes.
            if state.src[label_end:end] in ("]", "][]") and not ANY_UNIT.search(label):
                tokens[-1].meta["key"] = " ".join(label.split())
        elif tokens and name == "autolink":  # a mark, whose text is its address
            token = tokens[-1]
            token.type, token.nesting, token.meta["span"] = "autolink", 0, (start, end)
            token.attrs = tokens[-3].attrs
        elif tokens and tokens[-1].type != "text":
            tokens[-1].meta["span"] = (start, end)
        return True

    return apply


def parse_inline(text: str, env: dict[str, Any], dialect: str) -> list[Token]:
    """Return the tokens of inline Markdown other than text, by their start.

    Each has `meta["span"]`, its start and end in the text. Of elements, these are the spans of the
    characters before and after their content. `env` has the definitions of the parsed document.
    """
    md = markdown_parser(dialect)
    parsed = md.inline.parse(text, md, env, [])
    tokens = [token for token in parsed if token.type != "text" and "span" in token.meta]
    for token in tokens:
        start, end = token.meta["span"]
        # Two delimiters are one mark, whose inner one has the token.
        start -= token.type == "strong_open"
        end += token.type == "strong_close"
        token.meta["span"] = (start, end)
    return sorted(tokens, key=lambda token: token.meta["span"][0])


def read_inline(text: str, env: dict[str, Any], dialect: str) -> list[Item]:
    """Return the items of the content of a paragraph, a heading or a cell; see `parse_inline`."""
    tokens = parse_inline(text, env, dialect)
    _join_unchanged(tokens)
    items: list[Item] = []
    done = 0
    for token in tokens:
        start, end = token.meta["span"]
        if start < done:  # inside an element that stays unchanged
            continue
        if start > done:
            items.append(Item(ItemType.TEXT, done, start, text[done:start]))
        is_attribute = (  # of the link or the point before it
            token.type == "unchanged_mark"
            and token.content.startswith("{")
            and bool(items)
            and items[-1].end == start
            and items[-1].type in (ItemType.CLOSE, ItemType.POINT)
        )
        if is_attribute:
            explicit = items[-1].explicit and items[-1].explicit + token.content
            items[-1] = items[-1]._replace(end=end, explicit=explicit)
        else:
            items.append(_item(token, start, end))
        done = end
    if done < len(text):
        items.append(Item(ItemType.TEXT, done, len(text), text[done:]))
    return pair_elements(items)


@functools.lru_cache(maxsize=1000)
def _tag(raw: str) -> HtmlToken:
    """Return a tag or a comment."""
    return HtmlParser(raw).tokens[0]


def _join_unchanged(tokens: Iterable[Token]) -> None:
    """Extend the start tag of each element of HTML that stays unchanged to the whole element."""
    waiting = collections.defaultdict[str, list[Token]](list)  # start tags, by the element's name
    for token in tokens:
        if token.type != "html_inline":
            continue
        tag = _tag(token.content)
        if tag.type == "StartTag":
            waiting[tag.data].append(token)
        elif tag.type == "EndTag" and waiting[tag.data]:
            first = waiting[tag.data].pop()
            if is_unchanged(tag.data, _tag(first.content).attributes):
                first.type = "element"
                first.meta["span"] = (first.meta["span"][0], token.meta["span"][1])


def _item(token: Token, start: int, end: int) -> Item:
    if token.nesting:
        name = token.type.rpartition("_")[0]
        item_type = ItemType.OPEN if token.nesting > 0 else ItemType.CLOSE
        explicit = f"][{token.meta['key']}]" if "key" in token.meta else ""
        item = Item(item_type, start, end, needs_text=name != "link", explicit=explicit)
        return item._replace(name=name, is_sure=True)
    if token.type in ("hardbreak", "barrier"):
        return Item(ItemType.BREAK, start, end)
    if token.type in ("softbreak", "text_special"):
        return Item(ItemType.TEXT, start, end, token.content or "\n")
    if token.type not in ("html_inline", "element"):
        return Item(ItemType.POINT, start, end, "" if token.type in NOT_WORDS else STAND_IN)
    tag = _tag(token.content)._replace(start=start, end=end)
    if token.type == "element" and tag.data not in BLOCK_TAGS:
        shown = "" if tag.data in ANNOTATION_TAGS else STAND_IN
        return Item(ItemType.POINT, start, end, shown)
    return tag_item(tag, tag.data not in BLOCK_TAGS)
