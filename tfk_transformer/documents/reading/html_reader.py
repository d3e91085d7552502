"""Parse HTML into items, by the positions that the parser of the standard library reports."""

import html
import itertools
from html.parser import HTMLParser
from typing import NamedTuple

from tfk_transformer.documents.items import STAND_IN, Item, ItemType
from tfk_transformer.documents.reading.elements import Mark, pair_elements

INLINE_TAGS = set(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark nobr q rb rp rt ruby "
    "s small span strike strong sub sup "
    "time tt u".split()
)
VOID_INLINE_TAGS = {"img", "wbr", "input", "slot"}  # without text, inside a sentence
# Unchanged elements inside a sentence.
WORD_TAGS = set("code kbd samp var math svg object iframe audio video canvas".split())
UNTOUCHED_TAGS = {"script", "style", "pre", "textarea", "template", "noscript"}
# Elements without an end.
VOID_TAGS = set("area base br col embed hr img input link meta param source track wbr".split())
# The item of an inline tag, by the type of its event.
INLINE_ITEMS = {"start": ItemType.OPEN, "end": ItemType.CLOSE, "empty": ItemType.POINT}


class ParserEvent(NamedTuple):
    """An event of the parser. It extends to the start of the next event."""

    type: str  # "start", "end", "empty", "text", "entity", "comment" or "other"
    start: int
    data: str = ""  # the name of a tag, or the text
    is_untouched: bool = False


class _Parser(HTMLParser):
    """A parser that records its events with their positions."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=False)
        self.events: list[ParserEvent] = []
        lengths = (len(line) + 1 for line in document.split("\n"))
        self._line_starts = list(itertools.accumulate(lengths, initial=0))
        self.feed(document)
        self.close()

    def _record(self, type: str, data: str = "", is_untouched: bool = False) -> None:
        line, column = self.getpos()
        start = self._line_starts[line - 1] + column
        self.events.append(ParserEvent(type, start, data, is_untouched))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        classes = (values.get("class") or "").split()
        is_marked = values.get("translate") == "no" or "notranslate" in classes
        is_untouched = is_marked or tag in WORD_TAGS | UNTOUCHED_TAGS
        self._record("start", tag, is_untouched and tag not in VOID_TAGS)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._record("empty", tag)

    def handle_endtag(self, tag: str) -> None:
        self._record("end", tag)

    def handle_data(self, data: str) -> None:
        self._record("text", data)

    def handle_entityref(self, name: str) -> None:
        self._record("entity")

    handle_charref = handle_entityref

    def handle_comment(self, data: str) -> None:
        self._record("comment")

    def handle_decl(self, decl: str) -> None:
        self._record("other")

    def handle_pi(self, data: str) -> None:
        self._record("other")

    unknown_decl = handle_pi


def read_html(document: str) -> list[Item]:
    """Return the items of an HTML document or fragment.

    Scripts, styles, preformatted text, code, and elements with `translate="no"` or the class
    `notranslate` stay unchanged.
    """
    events = _Parser(document).events
    ends = [event.start for event in events[1:]] + [len(document)]
    marks: list[Mark] = []
    n = 0
    while n < len(events):
        event = events[n]
        last = _last_event(events, n) if event.is_untouched else n
        if last == n:
            marks.append(_mark(event, document[event.start : ends[n]], ends[n]))
        elif event.data in INLINE_TAGS | WORD_TAGS:
            marks.append(Mark(Item(ItemType.POINT, event.start, ends[last], STAND_IN)))
        else:
            marks.append(Mark(Item(ItemType.BREAK, event.start, ends[last])))
        n = last + 1
    return pair_elements(marks)


def _last_event(events: list[ParserEvent], first: int) -> int:
    """Return the index of the event that ends the element that begins with event `first`.

    If the element has no end, a tag of `UNTOUCHED_TAGS` extends to the end of the document. For any
    other tag, `first` is returned.
    """
    depth = 0
    for n in range(first, len(events)):
        if events[n].data == events[first].data:
            depth += (events[n].type == "start") - (events[n].type == "end")
            if not depth:
                return n
    return len(events) - 1 if events[first].data in UNTOUCHED_TAGS else first


def _mark(event: ParserEvent, raw: str, end: int) -> Mark:
    """Return the item of an event.

    Args:
        event: the event.
        raw: its characters in the document.
        end: the end of the event.
    """
    if event.type == "text":
        return Mark(Item(ItemType.TEXT, event.start, end, event.data))
    if event.type == "entity":
        return Mark(Item(ItemType.TEXT, event.start, end, html.unescape(raw)))
    if event.type == "comment" or event.data in VOID_INLINE_TAGS:
        return Mark(Item(ItemType.POINT, event.start, end))
    if event.data in INLINE_TAGS:
        return Mark(Item(INLINE_ITEMS[event.type], event.start, end), event.data)
    return Mark(Item(ItemType.BREAK, event.start, end))


def escape_html(text: str, following: str = "") -> str:
    """Return a text as HTML. The markup that follows makes no difference."""
    return html.escape(text, quote=False)
