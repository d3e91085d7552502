"""Translate the attributes of HTML that people read, before the text is translated."""

import html
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from tfk_transformer.formats.reading.html_parser import HtmlParser, HtmlToken, is_marked
from tfk_transformer.text.results import DocumentTranslation

READ_ATTRIBUTES = {"alt", "title", "placeholder", "aria-label"}
UNREAD_TITLES = {"link", "meta", "style"}
LANGUAGE_ATTRIBUTES = {"lang", "xml:lang"}
TAG_NAME = re.compile(r"<[^\t\n\f\r />]+")
ATTRIBUTE = re.compile(
    r"(?P<name>[^\t\n\f\r />][^\t\n\f\r />=]*)[\t\n\f\r ]*=[\t\n\f\r ]*"
    r"""(?P<value>"[^"]*"|'[^']*'|[^\t\n\f\r >]+)"""
)
TEMPLATE_START = re.compile(r"\{[{%#]|<%")


def attribute_texts(document: str) -> list[str]:
    """Return the texts of the attributes of an HTML document that people read."""
    matches = (match for match in _attributes(document) if not _is_language(match))
    return [" ".join(_text(match).split()) for match in matches]


class TranslatedAttributes:
    """An HTML document, `text`, with translated `attribute_texts` and `lang`. None keeps them."""

    def __init__(
        self, document: str, translations: Sequence[str] | None, target_language: str | None = None
    ) -> None:
        self._source = document
        self._ends: list[int] = []  # in `text`, the end of each value
        self._shifts: list[int] = []  # from that end to the value's end in the source
        texts = iter(translations or ())
        pieces: list[str] = []
        done = written = 0  # characters of the source and of `text`
        for match in _attributes(document):
            if (target_language if _is_language(match) else translations) is None:
                continue
            text = (target_language or "") if _is_language(match) else next(texts)
            quote, reference = ("'", "&#39;") if match["value"][0] == "'" else ('"', "&quot;")
            value = html.escape(text, quote=False).replace(quote, reference)
            start, end = match.span("value")
            pieces += [document[done:start], f"{quote}{value}{quote}"]
            written += start - done + len(pieces[-1])
            done = end
            self._ends.append(written)
            self._shifts.append(done - written)
        self.text = "".join([*pieces, document[done:]])

    def restore(self, translation: DocumentTranslation) -> DocumentTranslation:
        """Return a translation of `text` with the positions of its sentences in the source."""
        sentences = []
        for sentence in translation.sentences:
            start = self._source_position(sentence.source_start)
            end = self._source_position(sentence.source_end)
            source = self._source[start:end]
            sentences.append(sentence._replace(source_start=start, source_end=end, source=source))
        return translation._replace(sentences=sentences)

    def _source_position(self, position: int) -> int:
        value = bisect_right(self._ends, position)
        return position + (self._shifts[value - 1] if value else 0)


def _text(match: re.Match[str]) -> str:
    value = match["value"]
    return html.unescape(value[1:-1] if value[0] in "\"'" else value)


def _is_language(match: re.Match[str]) -> bool:
    """Return whether an attribute is the language of the whole page."""
    return match["name"].lower() in LANGUAGE_ATTRIBUTES


def _attributes(document: str) -> Iterator[re.Match[str]]:
    """Yield the attributes to translate, in the order of the document."""
    last = HtmlToken("", 0, 0)
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
            if any(map(str.isalpha, text)) and not TEMPLATE_START.search(text):
                yield match
