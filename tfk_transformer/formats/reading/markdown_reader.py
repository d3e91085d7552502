"""Markdown: its text and markup as items, and the structure that a translation may not change.

markdown-it-py parses the blocks; positions come from their lines.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from markdown_it.rules_block.table import escapedSplit
from markdown_it.token import Token

from tfk_transformer.formats.documents.items import Document, Item, ItemType
from tfk_transformer.formats.reading.markdown_parser import (
    MARKDOWN_LINE,
    markdown_parser,
    parse_inline,
    read_inline,
)
from tfk_transformer.formats.reading.units import mask

TASK_BOX = re.compile(r"\[[ xX]\]\s+")
ALERT = re.compile(r"\[![\w-][^]\n]*\][^\n]*(\n|$)")  # the first line of a quotation
# The start of a heading of Python-Markdown, which needs no blank.
NUMBER_SIGNS = re.compile(r"#{1,6}\s*(?=\S)")
HEADING_ATTRIBUTES = re.compile(r"(?<!\s)\s*+(?<!\\)\{:?[ ]*(?:[#.][\w-]|[\w-]+=)[^{}\n]*\}$")
BLANKS = re.compile(r"[ \t\r\n\f\v]+")
# Characters that could begin or end markup, of Markdown or of its dialects.
SPECIAL = re.compile(
    r"[\\`*\[\]<>|~${}^]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|(?<![^\W_]|:):(?=[\w+-]+:)|:(?=::)"
    r"|\+(?=\+)|#(?=\s*\Z)|(?<!\w)@(?=\w)|(?<!\{)#(?=\w)|(?<=\{)%"
)
REFERENCES = {"<": "&lt;", "&": "&amp;"}  # Python-Markdown has no backslash before these
# Escaped brackets, with the operators that would make a formula of them.
BRACKETS = re.compile(r"\\\[.*?\\\]")
OPERATOR = re.compile(r"(?<!\\)[_=+]")
# At the start of a text: what begins a block, or belongs to a link before the text.
TEXT_START = re.compile(
    r"\A(?:(\s*)([+-](?=[\s#+=-]|$)|[/!?:](?=[\s\w/!?:])|%(?=\s|$)|[=#])|(\s*\d+)([.)])|()([(:]))"
)
# What is syntax at the start of a text, by the two tokens before it.
PREFIXES: dict[tuple[str, ...], re.Pattern[str]] = {
    ("list_item_open", "paragraph_open"): TASK_BOX,
    ("blockquote_open", "paragraph_open"): ALERT,
}
# Read as one character: a backslash before punctuation, and the name or number of a character.
MARKDOWN_CHARACTER = re.compile(r"\\(?=[!-/:-@\[-`{-~])|&(?=#?\w+;)")
# The number signs after the text of a heading, which are not in the text.
CLOSING_SEQUENCE = re.compile(r"[ \t](#+)[ \t]*(?:[\r\n]|$)")


def read(text: str, dialect: str = "markdown") -> Document:
    """Parse the paragraphs, headings, list items, definitions and tables of a Markdown document.

    The dialect "mdx" also has JSX, expressions and modules of JavaScript.
    """
    env: dict[str, Any] = {}
    masked = mask(text, dialect)
    parse = markdown_parser(dialect).parse
    lines = [(match.start(), match[0]) for match in MARKDOWN_LINE.finditer(masked)]
    done = [0] * len(lines)  # the characters of each line that are read
    items: list[Item] = []
    tokens = parse(masked.removeprefix("\ufeff"), env)
    for n, token in enumerate(tokens):
        if token.type != "inline" or not token.map or tokens[n - 1].type == "fieldlist_name_open":
            continue
        positions = _positions(token, tokens[n - 1], lines, done)
        start, end = _text_span(tokens, n)
        if positions and start < end:
            positions = positions[start : end + 1]
            is_cell = tokens[n - 1].type in ("th_open", "td_open")
            for item in read_inline(token.content[start:end], env, dialect):
                is_text = is_cell and item.type is ItemType.TEXT
                for part in _at_bars(item) if is_text else [item]:
                    first = positions[part.start]
                    last = first if part.end == part.start else positions[part.end - 1] + 1
                    first -= is_text and masked[first] == "|"
                    items.append(part._replace(start=first, end=last))
            items.append(Item(ItemType.BREAK, positions[-1], positions[-1]))
    # Passages of the document can use its definitions, but not one right after a byte order mark.
    if masked.startswith("\ufeff"):
        env = {}
        parse(masked, env)
    definitions = env.get("references", {})
    structure = functools.partial(markdown_structure, definitions=definitions, dialect=dialect)
    # Each character is read as itself, or as markup.
    encode = functools.partial(MARKDOWN_CHARACTER.sub, _escaped)
    return Document(text, items, escape_markdown, structure, encode)


def _at_bars(item: Item) -> Iterator[Item]:
    """Yield the parts of a text in a cell, whose bars have a backslash in the document."""
    for match in re.finditer(r"\||[^|]+", item.text):
        yield item.cut(*match.span())


def _text_span(tokens: Sequence[Token], n: int) -> tuple[int, int]:
    """Return the start and the end of the text in the content of an inline token."""
    content = tokens[n].content
    holders = [before.type for before in tokens[max(0, n - 2) : n]]
    is_paragraph = holders[-1] == "paragraph_open"
    prefix = PREFIXES.get(tuple(holders), NUMBER_SIGNS if is_paragraph else None)
    match = prefix.match(content) if prefix else None
    attributes = HEADING_ATTRIBUTES.search(content) if holders[-1] == "heading_open" else None
    return match.end() if match else 0, attributes.start() if attributes else len(content)


def _positions(
    token: Token, holder: Token, lines: Sequence[tuple[int, str]], done: list[int]
) -> list[int]:
    """Return the position in the document of each character of a token's content and of its end.

    The list is empty if a line of the content is not in the document. `holder` is the token before,
    which begins the paragraph, the heading or the cell. `lines` are the position and the text of
    each line of the document, of which `done` characters are read.
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
    """Return the column in a line of each character of the content; [] if it is not there."""
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


def escape_markdown(text: str, following: str = "") -> str:
    """Return a text as Markdown, with all of its characters that could be markup escaped."""
    escaped = SPECIAL.sub(_escaped, BLANKS.sub(" ", text))
    escaped = BRACKETS.sub(lambda match: OPERATOR.sub(r"\\\g<0>", match[0]), escaped)
    if escaped.endswith("!") and following.startswith("["):
        escaped = f"{escaped[:-1]}\\!"
    return TEXT_START.sub(r"\1\3\5\\\2\4\6", escaped)


def _escaped(match: re.Match[str]) -> str:
    return REFERENCES.get(match[0], f"\\{match[0]}")


def markdown_structure(
    document: str,
    definitions: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    dialect: str = "markdown",
) -> list[str]:
    """Return the blocks, inline elements and definitions of a Markdown document, in its order.

    Each block has its nesting and type, and its content if a translation may not change it. The
    strings of inline elements begin with "inline ". `definitions` are the parser's link definitions
    that are not in the document.
    """
    references = {**definitions}
    env: dict[str, Any] = {"references": references}
    document = mask(document, dialect)
    lines = [match[0] for match in MARKDOWN_LINE.finditer(document)]
    structure: list[str] = []
    tokens = markdown_parser(dialect).parse(document.removeprefix("\ufeff"), env)
    for n, token in enumerate(tokens):
        if token.type == "inline":
            start, end = _text_span(tokens, n)
            structure += [f"syntax {token.content[:start]}", f"syntax {token.content[end:]}"]
            structure += [
                _described("" if mark.type == "barrier" else "inline", mark)
                for mark in parse_inline(token.content[start:end], env, dialect)
                if mark.nesting >= 0 and mark.type not in ("softbreak", "text_special")
            ]
        elif token.type == "tr_open" and token.map:  # cells after the last column are not shown
            structure.append(f"{token.level} tr {len(escapedSplit(lines[token.map[0]].strip()))}")
        elif token.nesting >= 0:
            structure.append(_described(str(token.level), token, token.tag, token.info))
            if token.type == "heading_open" and token.markup.startswith("#") and token.map:
                closing = CLOSING_SEQUENCE.search(lines[token.map[0]])
                structure[-1] += f" {closing[1] if closing else ''}"
    defined = [(label, references[label]) for label in references if label not in definitions]
    defined += [(value["label"], value) for value in env.get("duplicate_refs", [])]
    return structure + [f"definition {label} {it['href']} {it['title']}" for label, it in defined]


def _described(prefix: str, token: Token, *facts: Any) -> str:
    facts = (*facts, token.meta.get("label", ""), token.attrs, token.content)
    return " ".join([prefix, token.type, *(str(fact) for fact in facts if fact)])
