"""The structure of a Markdown document, without its words."""

import functools
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from markdown_it.rules_block.table import escapedSplit
from markdown_it.token import Token

from tfk_transformer.formats.reading.markdown.parser import (
    MARKDOWN_LINE,
    markdown_parser,
    parse_inline,
)
from tfk_transformer.formats.reading.markdown_reader import text_span

# The number signs after the text of a heading, which are not in the text.
CLOSING_SEQUENCE = re.compile(r"[ \t](#+)[ \t]*(?:[\r\n]|$)")
NO_DEFINITIONS: Mapping[str, dict[str, Any]] = MappingProxyType({})


def structure_within(document: str) -> Callable[[str], list[str]]:
    """Return `markdown_structure` for passages of a document, which can use its definitions."""
    env: dict[str, Any] = {}
    markdown_parser().parse(document, env)
    return functools.partial(markdown_structure, definitions=env.get("references", {}))


def markdown_structure(
    document: str, definitions: Mapping[str, dict[str, Any]] = NO_DEFINITIONS
) -> list[str]:
    """Return the blocks, inline elements and definitions of a Markdown document, in its order.

    Each block has its nesting and type, and its content if a translation may not change it. The
    strings of inline elements begin with "inline ".

    Args:
        document: the document.
        definitions: the parser's link definitions that are not in the document.
    """
    references = {**definitions}
    env: dict[str, Any] = {"references": references}
    lines = [match[0] for match in MARKDOWN_LINE.finditer(document)]
    structure: list[str] = []
    tokens = markdown_parser().parse(document.removeprefix("\ufeff"), env)
    for n, token in enumerate(tokens):
        if token.type == "inline":
            holders = [before.type for before in tokens[max(0, n - 2) : n]]
            start, end = text_span(token.content, holders)
            structure += [f"syntax {token.content[:start]}", f"syntax {token.content[end:]}"]
            marks = parse_inline(token.content[start:end], env)
            structure += [_inline(mark) for mark in marks if _is_element(mark)]
        elif token.type == "heading_open" and token.markup.startswith("#") and token.map:
            closing = CLOSING_SEQUENCE.search(lines[token.map[0]])
            structure.append(f"{_block(token)} {closing[1] if closing else ''}")
        elif token.type == "tr_open" and token.map:  # cells after the last column are not shown
            structure.append(f"{token.level} tr {len(escapedSplit(lines[token.map[0]].strip()))}")
        elif token.nesting >= 0:
            structure.append(_block(token))
    defined = [(label, references[label]) for label in references if label not in definitions]
    defined += [(value["label"], value) for value in env.get("duplicate_refs", [])]
    return structure + [f"definition {label} {it['href']} {it['title']}" for label, it in defined]


def _is_element(token: Token) -> bool:
    """Return whether an inline token is the start of an element, and not a part of the text."""
    return token.nesting >= 0 and token.type not in ("softbreak", "text_special")


def _block(token: Token) -> str:
    facts = (token.tag, token.info, token.meta.get("label", ""), token.attrs, token.content)
    return " ".join([str(token.level), token.type, *(str(fact) for fact in facts if fact)])


def _inline(token: Token) -> str:
    facts = (token.attrs, token.meta.get("label", ""), token.content)
    return " ".join(["inline", token.type, *(str(fact) for fact in facts if fact)])
