"""HTML: its text and markup as items, and the structure that a translation may not change."""

import functools
import html
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import html5lib
from html5lib.serializer import HTMLSerializer

from tfk_transformer.formats.documents.items import (
    STAND_IN,
    Document,
    Item,
    ItemType,
    pair_elements,
)
from tfk_transformer.formats.reading.html_parser import (
    ANNOTATION_TAGS,
    INLINE_TAGS,
    SENTENCE_TAGS,
    HtmlParser,
    HtmlToken,
    is_unchanged,
    tag_item,
)
from tfk_transformer.formats.reading.units import ANY_UNIT, mask

# Writes all attributes with their values, in the order of their names.
SERIALIZER = HTMLSerializer(
    alphabetical_attributes=True,
    minimize_boolean_attributes=False,
    omit_optional_tags=False,
    quote_attr_values="always",
)
END_OF_LINE = re.compile(r"[^\S\n]*(?:\n\s*(?P<next>\S?)|\Z)")


def read(text: str, is_xml: bool = False) -> Document:
    """Parse an HTML document or fragment, or XML with the elements of HTML.

    Scripts, styles, preformatted text, code, units, the pronunciation of ruby text, and elements
    with `translate="no"` or the class `notranslate` stay unchanged.
    """
    masked = mask(text, "html")
    items = _items(HtmlParser(masked, is_xml).tokens, masked)
    structure = functools.partial(html_structure, is_xml=is_xml)
    encode = functools.partial(html.escape, quote=False)
    return Document(text, pair_elements(items), structure=structure, encode=encode)


def _items(tokens: Iterable[HtmlToken], document: str) -> list[Item]:
    """Return the items of tokens. An element that stays unchanged is one item."""
    items: list[Item] = []
    unchanged: Any = None  # the element that stays unchanged, whose item is the last one
    for token in tokens:
        if unchanged is not None:
            is_inside = token.unchanged is unchanged
            if is_inside or (token.type == "EndTag" and token.data == unchanged.name):
                items[-1] = items[-1]._replace(end=token.end)
                unchanged = unchanged if is_inside else None
                continue
        unchanged = token.unchanged
        if unchanged is not None:
            is_inline = unchanged.name in SENTENCE_TAGS
            shown = STAND_IN if is_inline and unchanged.name not in ANNOTATION_TAGS else ""
            item_type = ItemType.POINT if is_inline else ItemType.BREAK
            items.append(Item(item_type, token.start, token.end, shown))
        elif token.type == "Text":
            text = Item(ItemType.TEXT, token.start, token.end, token.data)
            items += (part for part in _text_items(text, document) if part.text)
        else:
            items.append(tag_item(token, token.data in INLINE_TAGS))
    return items


def _text_items(item: Item, document: str) -> Iterator[Item]:
    """Yield the items of a text, in which units are masked."""
    done = 0
    for match in ANY_UNIT.finditer(item.text):
        yield item.cut(done, match.start())
        done = match.end()
        start, end = item.start + match.start(), item.start + done
        line_start = document.rfind("\n", 0, start) + 1
        line_end = END_OF_LINE.match(document, end)
        # A unit that is alone on its lines is a break, except before a small letter.
        is_alone = (
            line_end is not None
            and not (line_end["next"] or "").islower()
            and not document[line_start:start].strip()
        )
        is_break = is_alone or match["barrier"] is not None
        yield Item(ItemType.BREAK if is_break else ItemType.POINT, start, end, STAND_IN)
    yield item.cut(done, len(item.text))


def html_structure(text: str, is_xml: bool = False) -> list[str]:
    """Return the elements and comments of an HTML document in order, as browsers build them.

    Strings of parts of a sentence begin with "inline ". A block has a string for its start and one
    for its end. Words are missing, except of elements that stay unchanged, each of which is one
    string with everything inside it.
    """
    structure: list[str] = []
    depth = 0  # of elements inside the last one, which stays unchanged
    tree = HtmlParser(mask(text, "html"), is_xml).tree.getDocument()
    for token in html5lib.getTreeWalker("etree")(tree):
        if not depth and token["type"] in ("Characters", "SpaceCharacters"):
            for unit in ANY_UNIT.finditer(token["data"]):
                structure.append(unit[0] if unit["barrier"] else f"inline {unit[0]}")
            continue
        shown = "".join(SERIALIZER.serialize([token]))
        if depth:
            depth += {"StartTag": 1, "EndTag": -1}.get(token["type"], 0)
            structure[-1] += shown
            continue
        is_inline = token["type"] == "Comment" or token.get("name") in SENTENCE_TAGS
        if not (is_inline and token["type"] == "EndTag"):
            structure.append(f"{'inline ' if is_inline else ''}{shown}")
        if token["type"] == "StartTag" and is_unchanged(token["name"], _attributes(token)):
            depth = 1
    return structure


def _attributes(token: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for (_, name), value in token["data"].items()}
