"""Parse Markdown into items. markdown-it-py parses the blocks; positions come from their lines."""

import itertools
import re
from collections.abc import Sequence
from typing import Any

from markdown_it.token import Token

from tfk_transformer.documents.items import Item, ItemType
from tfk_transformer.documents.reading.inline_markdown import markdown_parser, read_inline

MARKDOWN_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")  # the line ends of CommonMark
SPECIAL = re.compile(r"[\\`*\[\]<|]|(?<!\w)_|_(?!\w)|~~|&(?=#?\w+;)")
# At the start of a text: the marker of a heading, a quotation or a list item.
BLOCK_START = re.compile(r"\A(#+|>|[+=-]+|\d+[.)])(?=\s|$)")


def read_markdown(document: str) -> list[Item]:
    """Return the items of a Markdown document.

    They are the text of its paragraphs, headings, list items and tables.
    """
    md = markdown_parser()
    env: dict[str, Any] = {}
    lines = [(match.start(), match[0]) for match in MARKDOWN_LINE.finditer(document)]
    done = [0] * len(lines)  # the characters of each line that are read
    items: list[Item] = []
    for holder, token in itertools.pairwise(md.parse(document, env)):
        if token.type != "inline" or not token.map:
            continue
        positions = _positions(token, holder, lines, done)
        if positions:
            items += (_move(item, positions) for item in read_inline(md, token.content, env))
            items.append(Item(ItemType.BREAK, positions[-1], positions[-1]))
    return items


def _positions(
    token: Token, holder: Token, lines: Sequence[tuple[int, str]], done: list[int]
) -> list[int]:
    """Return the position in the document of each character of a token's content and of its end.

    Args:
        token: the token.
        holder: the token before it, which begins the paragraph, the heading or the cell.
        lines: the position and the text of each line of the document.
        done: the characters of each line that are read; changed.

    Returns:
        The positions, or an empty list if a line of the content is not in the document.
    """
    positions: list[int] = []
    for number, content in enumerate(token.content.split("\n"), (token.map or [0])[0]):
        line_start, line = lines[number]
        columns = _columns(content.strip(), line, holder, done[number])
        if not columns:
            return []
        start = line_start + columns[0]
        positions += range(start - (len(content) - len(content.lstrip())), start)
        positions += (line_start + column for column in columns)
        end = positions[-1] + 1
        positions += range(end, end + 1 + len(content) - len(content.rstrip()))
        done[number] = columns[-1] + 1
    return positions


def _columns(content: str, line: str, holder: Token, done: int) -> list[int]:
    """Return the column in a line of each character of some content.

    The list is empty if the content is not in the line.
    """
    if holder.type in ("th_open", "td_open"):
        groups = (r"(\\?\|)" if c == "|" else f"({re.escape(c)})" for c in content)
        match = re.compile("".join(groups)).search(line, done)
        return [match.end(n + 1) - 1 for n in range(len(content))] if match else []
    if holder.type == "heading_open" and holder.markup.startswith("#"):
        start = line.find(content, line.find("#") + len(holder.markup))
    else:
        whole = line.rstrip()
        start = len(whole) - len(content) if whole.endswith(content) else -1
    return [*range(start, start + len(content))] if start >= 0 else []


def _move(item: Item, positions: Sequence[int]) -> Item:
    """Return an item with positions in the document instead of positions in the content."""
    end = positions[item.end - 1] + 1 if item.end > item.start else positions[item.start]
    return item._replace(start=positions[item.start], end=end)


def escape_markdown(text: str, following: str = "") -> str:
    """Return a text as Markdown, with all of its characters that would be markup escaped.

    Args:
        text: the text.
        following: the markup that follows it.
    """
    escaped = SPECIAL.sub(lambda match: "".join(f"\\{character}" for character in match[0]), text)
    if escaped.endswith("!") and following.startswith("["):
        escaped = f"{escaped[:-1]}\\!"
    return BLOCK_START.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", escaped)
