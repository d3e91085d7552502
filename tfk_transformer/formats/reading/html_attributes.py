"""Translate the attributes of HTML that people read, before the text is translated."""

import html
import re
from collections.abc import Iterator, Sequence

from tfk_transformer.formats.documents.edited_text import Edit, EditedText
from tfk_transformer.formats.reading.html_parser import HtmlParser, HtmlToken, is_marked
from tfk_transformer.formats.reading.units import ANY_UNIT, mask

READ_ATTRIBUTES = {"alt", "title", "placeholder", "aria-label"}
UNREAD_TITLES = {"link", "meta", "style"}
LANGUAGE_ATTRIBUTES = {"lang", "xml:lang"}
TAG_NAME = re.compile(r"<[^\t\n\f\r />]+")
ATTRIBUTE = re.compile(
    r"(?P<name>[^\t\n\f\r />][^\t\n\f\r />=]*)[\t\n\f\r ]*=[\t\n\f\r ]*"
    r"""(?P<value>"[^"]*"|'[^']*'|[^\t\n\f\r >]+)"""
)


def attribute_texts(document: str) -> list[str]:
    """Return the texts of the attributes of an HTML document that people read."""
    matches = (match for match in _attributes(document) if not _is_language(match))
    return [" ".join(_text(match).split()) for match in matches]


def edit_attributes(
    document: str, translations: Sequence[str] | None, target_language: str | None = None
) -> EditedText:
    """Return an HTML document with translated `attribute_texts` and `lang`. None keeps them."""
    texts = iter(translations or ())
    edits = []
    for match in _attributes(document):
        if (target_language if _is_language(match) else translations) is None:
            continue
        text = (target_language or "") if _is_language(match) else next(texts)
        quote, reference = ("'", "&#39;") if match["value"][0] == "'" else ('"', "&quot;")
        value = html.escape(text, quote=False).replace(quote, reference)
        edits.append(Edit(*match.span("value"), f"{quote}{value}{quote}"))
    return EditedText(document, edits)


def _text(match: re.Match[str]) -> str:
    value = match["value"]
    return html.unescape(value[1:-1] if value[0] in "\"'" else value)


def _is_language(match: re.Match[str]) -> bool:
    """Return whether an attribute is the language of the whole page."""
    return match["name"].lower() in LANGUAGE_ATTRIBUTES


def _attributes(document: str) -> Iterator[re.Match[str]]:
    """Yield the attributes to translate, in the order of the document."""
    last = HtmlToken("", 0, 0)
    document = mask(document, "html")
    for token in HtmlParser(document).tokens:
        # The tag of an unchanged element may be translated, but nothing inside it.
        is_inside = token.unchanged is not None and token.unchanged is last.unchanged
        is_picture = token.unchanged is not None and token.unchanged.name == "picture"
        last = token
        if token.type != "StartTag" or is_marked(token.attributes):
            continue
        if not is_inside or (is_picture and not is_marked(token.unchanged.attributes)):
            yield from _tag_attributes(token, document)


def _tag_attributes(token: HtmlToken, document: str) -> Iterator[re.Match[str]]:
    names = READ_ATTRIBUTES & token.attributes.keys()
    if token.data in UNREAD_TITLES:
        names -= {"title"}
    if token.data == "meta" and token.attributes.get("name", "").lower() == "description":
        names = {"content"} & token.attributes.keys()
    if token.data == "html":
        names |= LANGUAGE_ATTRIBUTES & token.attributes.keys()
    tag_name = TAG_NAME.match(document, token.start)
    if not names or tag_name is None:
        return
    for match in ATTRIBUTE.finditer(document, tag_name.end(), token.end):
        name = match["name"].lower()
        text = _text(match)
        # html5lib's value is the one that counts where an attribute is repeated.
        if name in names and text.split() == token.attributes[name].split():
            names.remove(name)
            if any(map(str.isalpha, text)) and not ANY_UNIT.search(text):
                yield match
