"""Parse Markdown into items. markdown-it-py parses the blocks; positions come from their lines."""

import re
from collections.abc import Sequence
from typing import Any

from markdown_it.token import Token

from tfk_transformer.formats.documents.items import Item, ItemType
from tfk_transformer.formats.reading.inline_markdown import read_inline
from tfk_transformer.formats.reading.markdown.parser import MARKDOWN_LINE, markdown_parser

TASK_BOX = re.compile(r"\[[ xX]\]\s+")
ALERT = re.compile(r"\[![\w-]+\][^\n]*(\n|$)")  # the first line of a quotation
HEADING_ATTRIBUTES = re.compile(r"\s*(?<!\\)\{:?[ ]*(?:[#.][\w-]|[\w-]+=)[^{}\n]*\}$")
BLANKS = re.compile(r"[ \t\r\n\f\v]+")
# Characters that could begin or end markup, of Markdown or of its dialects.
SPECIAL = re.compile(
    r"[\\`*\[\]<>|~${}^]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|(?<![\w:]):(?=[\w+-]+:)|:(?=::)"
    r"|\+(?=\+)|#(?=\s*\Z)"
)
# At the start of a text: what begins a block, or belongs to a link before the text.
TEXT_START = re.compile(
    r"\A(?:(\s*)([#+=-](?=[\s#+=-]|$)|[/!?:](?=[\s\w/!?:])|%(?=\s|$)|=)|(\s*\d+)([.)])|()([(:]))"
)
# What is syntax at the start of a text, by the two tokens before it.
PREFIXES: dict[tuple[str, ...], re.Pattern[str]] = {
    ("list_item_open", "paragraph_open"): TASK_BOX,
    ("blockquote_open", "paragraph_open"): ALERT,
}


def read_markdown(document: str) -> list[Item]:
    """Return the items of a Markdown document.

    They are the text of its paragraphs, headings, list items, definitions and tables.
    """
    env: dict[str, Any] = {}
    lines = [(match.start(), match[0]) for match in MARKDOWN_LINE.finditer(document)]
    done = [0] * len(lines)  # the characters of each line that are read
    items: list[Item] = []
    tokens = markdown_parser().parse(document.removeprefix("\ufeff"), env)
    for n, token in enumerate(tokens):
        if token.type != "inline" or not token.map or tokens[n - 1].type == "fieldlist_name_open":
            continue
        positions = _positions(token, tokens[n - 1], lines, done)
        start, end = text_span(token.content, [before.type for before in tokens[max(0, n - 2) : n]])
        if positions and start < end:
            positions = positions[start : end + 1]
            inline = read_inline(token.content[start:end], env)
            items += (_move(item, positions) for item in inline)
            items.append(Item(ItemType.BREAK, positions[-1], positions[-1]))
    return items


def text_span(content: str, holders: Sequence[str]) -> tuple[int, int]:
    """Return the start and the end of the text in the content of a token.

    Args:
        content: the content.
        holders: the types of the two tokens before it.
    """
    prefix = PREFIXES.get(tuple(holders))
    match = prefix.match(content) if prefix else None
    attributes = HEADING_ATTRIBUTES.search(content) if holders[-1] == "heading_open" else None
    end = attributes.start() if attributes else len(content)
    return (match.end() if match else 0), end


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
    """Return a text as Markdown, with all of its characters that could be markup escaped.

    Args:
        text: the text.
        following: the markup that follows it.
    """
    escaped = SPECIAL.sub(r"\\\g<0>", BLANKS.sub(" ", text))
    if escaped.endswith("!") and following.startswith("["):
        escaped = f"{escaped[:-1]}\\!"
    return TEXT_START.sub(r"\1\3\5\\\2\4\6", escaped)
