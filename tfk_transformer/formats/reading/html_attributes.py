"""Translate the attributes of HTML that people read, before the text is translated."""

import html
import re
from collections.abc import Iterator

from tfk_transformer.formats.documents.edited_text import Edit, EditedText, Editing
from tfk_transformer.formats.reading.html_parser import HtmlParser, HtmlToken, is_marked
from tfk_transformer.formats.reading.units import ANY_UNIT, mask

READ_ATTRIBUTES = {"alt", "title", "placeholder", "aria-label"}
UNREAD_TITLES = {"link", "meta", "style"}
LANGUAGE_ATTRIBUTES = {"lang", "xml:lang"}  # of the whole page
ATTRIBUTE = re.compile(
    r"(?P<name>[^\t\n\f\r />][^\t\n\f\r />=]*)[\t\n\f\r ]*=[\t\n\f\r ]*"
    r"""(?P<value>"[^"]*"|'[^']*'|[^\t\n\f\r >]+)"""
)


def edit_attributes(
    document: str, attributes: bool = True, target_language: str | None = None
) -> Editing:
    """Translate the attributes of HTML that people read, if asked to, and set `lang`."""
    matches = list(_attributes(document))
    languages = [match for match in matches if match["name"].lower() in LANGUAGE_ATTRIBUTES]
    read = [match for match in matches if attributes and match not in languages]
    translations = yield [" ".join(_text(match).split()) for match in read]
    values = list(zip(read, translations, strict=True))
    if target_language is not None:
        values += [(match, target_language) for match in languages]
    edits = []
    for match, text in values:
        quote, reference = ("'", "&#39;") if match["value"][0] == "'" else ('"', "&quot;")
        value = html.escape(text, quote=False).replace(quote, reference)
        edits.append(Edit(*match.span("value"), f"{quote}{value}{quote}"))
    return EditedText(document, edits)


def _text(match: re.Match[str]) -> str:
    value = match["value"]
    return html.unescape(value[1:-1] if value[0] in "\"'" else value)


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
    for match in ATTRIBUTE.finditer(document, token.start + 1, token.end) if names else ():
        name = match["name"].lower()
        text = _text(match)
        # html5lib's value is the one that counts where an attribute is repeated.
        if name in names and text.split() == token.attributes[name].split():
            names.remove(name)
            if any(map(str.isalpha, text)) and not ANY_UNIT.search(text):
                yield match
