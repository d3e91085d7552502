"""The structure of an HTML document: everything that a translation may not change."""

import html
from collections.abc import Iterator, Mapping
from typing import Any

import html5lib

from tfk_transformer.formats.reading.html_elements import SENTENCE_TAGS, is_unchanged
from tfk_transformer.formats.reading.html_parser import HtmlParser


def html_structure(text: str) -> list[str]:
    """Return the elements and comments of an HTML document in order, as browsers build them.

    Strings of parts of a sentence begin with "inline ". A block has a string for its start and one
    for its end. Words are missing, except of elements that stay unchanged, each of which is one
    string with everything inside it.

    Args:
        text: the document or fragment.
    """
    return parsed_structure(HtmlParser(text))


def parsed_structure(parser: HtmlParser) -> list[str]:
    """Return the structure of a document that is parsed; see `html_structure`."""
    return list(_structure(html5lib.getTreeWalker("etree")(parser.tree.getDocument())))


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
    if token["type"] == "Doctype":
        return f"<!DOCTYPE {token['name']} {token['publicId']} {token['systemId']}>"
    if token["type"] == "Comment":
        return f"<!--{token['data']}-->"
    if token["type"] == "EndTag":
        return f"</{token['name']}>"
    if token["type"] in ("StartTag", "EmptyTag"):
        attributes = sorted(_attributes(token).items())
        pairs = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes)
        return f"<{token['name']}{pairs}>"
    return html.escape(token["data"])
