"""Markdown to items: blocks by markdown-it-py, and the places of their content in the document's
lines.
"""

import itertools
import re
from collections.abc import Sequence
from typing import Any

from markdown_it.token import Token

from tfk_transformer.documents.items import Item, ItemType
from tfk_transformer.documents.reading.inline_markdown import parser, read_inline

MARKDOWN_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")  # the line ends of CommonMark
SPECIAL = re.compile(r"[\\`*\[\]<|]|(?<!\w)_|_(?!\w)|~~|&(?=#?\w+;)")
# What begins a heading, a quotation or a list item where a line begins.
BLOCK_START = re.compile(r"(#+|>|[+=-]+|\d+[.)])(?=\s|$)")


def read_markdown(document: str) -> list[Item]:
    """Return the items of a Markdown document: the text of its paragraphs, headings, list items and
    tables.
    """
    md = parser()
    env: dict[str, Any] = {}
    lines = [(found.start(), found[0]) for found in MARKDOWN_LINE.finditer(document)]
    done = [0] * len(lines)  # the characters of each line that are read
    items: list[Item] = []
    for holder, token in itertools.pairwise(md.parse(document, env)):
        if token.type == "inline" and token.map and (places := _places(token, holder, lines, done)):
            items += [
                *(_moved(item, places) for item in read_inline(md, token.content, env)),
                Item(ItemType.BREAK, places[-1], places[-1]),
            ]
    return items


def _places(
    token: Token, holder: Token, lines: Sequence[tuple[int, str]], done: list[int]
) -> list[int] | None:
    """Return the place in the document of each character of a token's content and of its end, or
    None if one cannot be found.

    Args:
        token: the token.
        holder: the one before it, which begins the paragraph, the heading or the cell.
        lines: the place and the text of each line of the document.
        done: the characters of each line that are read; changed.
    """
    places: list[int] = []
    for number, content in enumerate(token.content.split("\n"), (token.map or [0])[0]):
        start, line = lines[number]
        bare = content.strip()
        found = _found(bare, line, holder, done[number])
        if not found:
            return None
        first = start + found[0] - (len(content) - len(content.lstrip()))
        places += [*range(first, start + found[0]), *(start + place for place in found)]
        places += range(places[-1] + 1, places[-1] + 2 + len(content) - len(content.rstrip()))
        done[number] = found[-1] + 1
    return places


def _found(content: str, line: str, holder: Token, done: int) -> list[int]:
    """Return the place of each character of some content in its line; none if the content is not
    there.
    """
    if holder.type in ("th_open", "td_open"):
        pattern = "".join(
            r"(\\?\|)" if character == "|" else f"({re.escape(character)})" for character in content
        )
        found = re.compile(pattern).search(line, done)
        return [found.end(n + 1) - 1 for n in range(len(content))] if found else []
    if holder.type == "heading_open" and holder.markup.startswith("#"):
        start = line.find(content, line.find("#") + len(holder.markup))
    else:
        whole = line.rstrip()
        start = len(whole) - len(content) if whole.endswith(content) else -1
    return [*range(start, start + len(content))] if start >= 0 else []


def _moved(item: Item, places: Sequence[int]) -> Item:
    """Return an item whose places are those in the document instead of those in the content."""
    end = places[item.end - 1] + 1 if item.end > item.start else places[item.start]
    return item._replace(start=places[item.start], end=end)


def escape_markdown(text: str, following: str = "") -> str:
    """Return what stands for a text in Markdown: no character of it is markup, whatever markup
    follows.
    """
    found = SPECIAL.sub(lambda match: "".join(f"\\{character}" for character in match[0]), text)
    if found.endswith("!") and following.startswith("["):
        found = f"{found[:-1]}\\!"
    start = BLOCK_START.match(found)
    return found if start is None else f"{found[: start.end() - 1]}\\{found[start.end() - 1 :]}"
