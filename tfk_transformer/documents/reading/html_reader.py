"""HTML to items, by the parser of the standard library, which tells where in the document each tag
and text is.
"""

import html
from html.parser import HTMLParser
from typing import NamedTuple

from tfk_transformer.documents.items import STAND_IN, Item, ItemType
from tfk_transformer.documents.reading.elements import Mark, paired

INLINE = set(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark nobr q rb rp rt ruby "
    "s small span strike strong sub sup "
    "time tt u".split()
)
VOID_INLINE_TAGS = {
    "img",
    "wbr",
    "input",
    "slot",
}  # they have no text and stand inside of a sentence
# Untouched, inside of a sentence.
WORDS = {
    "code",
    "kbd",
    "samp",
    "var",
    "math",
    "svg",
    "object",
    "iframe",
    "audio",
    "video",
    "canvas",
}
UNTOUCHED = {"script", "style", "pre", "textarea", "template", "noscript"}
# Elements without an end.
VOID = set("area base br col embed hr img input link meta param source track wbr".split())


class ParserEvent(NamedTuple):
    """What the parser found, from `start` to the next event."""

    kind: str  # "start", "end", "text", "entity", "other"
    start: int
    data: str = ""  # the name of a tag, or the text
    is_untouched: bool = False


class _Parser(HTMLParser):
    """A parser that notes where everything is."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=False)
        self.events: list[ParserEvent] = []
        self._lines = [0]
        for line in document.split("\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self.feed(document)
        self.close()

    def _note(self, kind: str, data: str = "", is_untouched: bool = False) -> None:
        line, column = self.getpos()
        self.events.append(ParserEvent(kind, self._lines[line - 1] + column, data, is_untouched))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        marked = (
            found.get("translate") == "no" or "notranslate" in (found.get("class") or "").split()
        )
        self._note("start", tag, marked or tag in WORDS or tag in UNTOUCHED)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note("empty", tag)

    def handle_endtag(self, tag: str) -> None:
        self._note("end", tag)

    def handle_data(self, data: str) -> None:
        self._note("text", data)

    def handle_entityref(self, name: str) -> None:
        self._note("entity")

    def handle_charref(self, name: str) -> None:
        self._note("entity")

    def handle_comment(self, data: str) -> None:
        self._note("comment")

    def handle_decl(self, decl: str) -> None:
        self._note("other")

    def handle_pi(self, data: str) -> None:
        self._note("other")

    def unknown_decl(self, data: str) -> None:
        self._note("other")


def read_html(document: str) -> list[Item]:
    """Return the items of an HTML document or fragment.

    Scripts, styles, preformatted text, code, and elements with `translate="no"` or the class
    `notranslate` are no text.
    """
    events = _Parser(document).events
    ends = [event.start for event in events[1:]] + [len(document)]
    marks: list[Mark] = []
    n = 0
    while n < len(events):
        event = events[n]
        last = (
            _last_of(events, n)
            if event.kind == "start" and event.is_untouched and event.data not in VOID
            else n
        )
        if last > n:
            kind = ItemType.BREAK if event.data not in INLINE | WORDS else ItemType.POINT
            marks.append(
                Mark(
                    Item(kind, event.start, ends[last], STAND_IN if kind is ItemType.POINT else "")
                )
            )
        else:
            marks.append(_mark(event, document[event.start : ends[n]], ends[n]))
        n = last + 1
    return paired(marks)


def _last_of(events: list[ParserEvent], first: int) -> int:
    """Return the number of the event that ends the element that begins with event `first`.

    If none does: of a script or the like the document's last event, else `first`.
    """
    depth = 0
    for n in range(first, len(events)):
        if events[n].data == events[first].data:
            depth += (events[n].kind == "start") - (events[n].kind == "end")
            if not depth:
                return n
    return len(events) - 1 if events[first].data in UNTOUCHED else first


def _mark(event: ParserEvent, raw: str, end: int) -> Mark:
    """Return what an event is to a translation."""
    if event.kind == "text":
        return Mark(Item(ItemType.TEXT, event.start, end, event.data))
    if event.kind == "entity":
        return Mark(Item(ItemType.TEXT, event.start, end, html.unescape(raw)))
    if (
        event.kind == "comment"
        or event.data in VOID_INLINE_TAGS
        or (event.kind == "empty" and event.data in INLINE)
    ):
        return Mark(Item(ItemType.POINT, event.start, end))
    if event.data in INLINE and event.kind in ("start", "end"):
        return Mark(
            Item(ItemType.OPEN if event.kind == "start" else ItemType.CLOSE, event.start, end),
            event.data,
        )
    return Mark(Item(ItemType.BREAK, event.start, end))


def escape_html(text: str, following: str = "") -> str:
    """Return what stands for a text in HTML, whatever markup follows."""
    return html.escape(text, quote=False)
