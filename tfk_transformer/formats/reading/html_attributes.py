"""Translate the attributes of HTML that people read, before the text is translated."""

import html
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tfk_transformer.formats.documents.results import DocumentTranslation
from tfk_transformer.formats.reading.html_parser import HtmlParser, HtmlToken, is_marked

READ_ATTRIBUTES = {"alt", "title", "placeholder", "aria-label"}
UNREAD_TITLES = {"link", "meta", "style"}
LANGUAGE_ATTRIBUTES = {"lang", "xml:lang"}
TAG_NAME = re.compile(r"<[^\t\n\f\r />]+")
ATTRIBUTE = re.compile(
    r"(?P<name>[^\t\n\f\r />][^\t\n\f\r />=]*)[\t\n\f\r ]*=[\t\n\f\r ]*"
    r"""(?P<value>"[^"]*"|'[^']*'|[^\t\n\f\r >]+)"""
)
TEMPLATE_START = re.compile(r"\{[{%#]|<%")


class AttributeValue(NamedTuple):
    """The value document[start:end] of an attribute, with its quotes."""

    start: int
    end: int
    text: str
    is_language: bool  # whether it is the language of the whole page


class TranslatedAttributes(NamedTuple):
    """A document with other attributes."""

    source: str
    text: str
    ends: list[int]  # in `text`, the end of each value
    shifts: list[int]  # from that end to the value's end in the source

    def restore(self, translation: DocumentTranslation) -> DocumentTranslation:
        """Return a translation of `text` with the positions of its sentences in the source."""
        sentences = []
        for sentence in translation.sentences:
            start = self._source_position(sentence.source_start)
            end = self._source_position(sentence.source_end)
            sentences.append(
                sentence._replace(source_start=start, source_end=end, source=self.source[start:end])
            )
        return translation._replace(sentences=sentences)

    def _source_position(self, position: int) -> int:
        value = bisect_right(self.ends, position)
        return position + (self.shifts[value - 1] if value else 0)


def attribute_texts(document: str) -> list[str]:
    """Return the texts of the attributes of an HTML document that people read."""
    values = (value for value in _values(document) if not value.is_language)
    return [" ".join(value.text.split()) for value in values]


def translate_attributes(
    document: str, translations: Sequence[str] | None, target_language: str | None = None
) -> TranslatedAttributes:
    """Translate the attributes of an HTML document that people read.

    `translations` are those of `attribute_texts`; None keeps the attributes. None for
    `target_language` keeps the `lang` of the page.
    """
    is_changed = {True: target_language is not None, False: translations is not None}
    values = [value for value in _values(document) if is_changed[value.is_language]]
    texts = iter(translations or ())
    pieces: list[str] = []
    ends: list[int] = []
    shifts: list[int] = []
    done = end = 0
    for value in values:
        new = (target_language or "") if value.is_language else next(texts)
        written = _quoted(new, document[value.start])
        pieces += [document[done : value.start], written]
        end += value.start - done + len(written)
        done = value.end
        ends.append(end)
        shifts.append(done - end)
    return TranslatedAttributes(document, "".join([*pieces, document[done:]]), ends, shifts)


def _quoted(text: str, quote: str) -> str:
    """Return the value of an attribute, by default between double quotes."""
    mark = "'" if quote == "'" else '"'
    reference = "&#39;" if mark == "'" else "&quot;"
    return f"{mark}{html.escape(text, quote=False).replace(mark, reference)}{mark}"


def _values(document: str) -> Iterator[AttributeValue]:
    """Yield the values to translate, in the order of the document."""
    last = HtmlToken("", 0, 0)
    for token in HtmlParser(document).tokens:
        # The tag of an unchanged element may be translated, but nothing inside it.
        is_inside = token.unchanged is not None and token.unchanged is last.unchanged
        is_picture = token.unchanged is not None and token.unchanged.name == "picture"
        last = token
        if token.type != "StartTag" or is_marked(token.attributes):
            continue
        if not is_inside or (is_picture and not is_marked(token.unchanged.attributes)):
            yield from _tag_values(token, document)


def _tag_values(token: HtmlToken, document: str) -> Iterator[AttributeValue]:
    """Yield the values to translate of a tag."""
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
        raw = match["value"]
        text = html.unescape(raw[1:-1] if raw[0] in "\"'" else raw)
        # html5lib's value is the one that counts where an attribute is repeated.
        if name not in names or " ".join(text.split()) != " ".join(token.attributes[name].split()):
            continue
        names.remove(name)
        if any(map(str.isalpha, text)) and not TEMPLATE_START.search(text):
            is_language = name in LANGUAGE_ATTRIBUTES
            yield AttributeValue(*match.span("value"), text, is_language)
