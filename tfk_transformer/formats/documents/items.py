"""The items of a document: text, the markup in it, and text that a translation leaves unchanged."""

import bisect
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from linkify_it import LinkifyIt

from tfk_transformer.text.results import DocumentTranslation
from tfk_transformer.text.words import Span

# The word that a sentence splitter reads in place of something that is not translated.
STAND_IN = "Code"
PLACEHOLDER = re.compile(
    r"""
    \$\{[^{}\s]*\}                                        # ${name}
    | \{\{[^{}\n]*\}\}                                    # {{ name }}
    | \{[^{}\s]*\}                                        # {name}, {0:.2f}
    | %\([^()\s]+\)[-+#0]*+\d*+(?:\.\d+)?[diouxXeEfFgGcrsa] # %(name)d
    | (?<![\d%])%(?:\d+\$)?[-+#0]*+\d*+(?:\.\d+)?         # %s, %1$s, %.2f
      (?:hh|ll|[hlLzjt])?[diouxXeEfFgGcrsap@](?![^\W\d_])
    | \b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b          # the hash of a commit or a file
    """,
    re.VERBOSE,
)
SECTION_START = re.compile(r"(?:\n[^\S\n]*\n|>\s*)(?=(?:#{1,6} +)?\Z)")
NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")


class ItemType(Enum):
    """The type of an item."""

    TEXT = auto()
    OPEN = auto()  # the start of an inline element, such as <b> or **
    CLOSE = auto()  # the end of an inline element
    POINT = auto()  # unchanged, inside a sentence, such as inline code or a placeholder
    BREAK = auto()  # the end of a paragraph, a heading, a line of a poem, …
    # Where a sentence continues in the next subtitle, or in its next line. The translation is
    # divided in proportion to the characters on both sides.
    BORDER = auto()


class Item(NamedTuple):
    """A part of a document. Items are in order and do not overlap; text between them stays."""

    type: ItemType
    start: int  # the item is document[start:end]
    end: int
    # Of TEXT: the displayed text; of POINT: STAND_IN if it is a word, or ""; of BORDER: " ".
    text: str = ""
    pair: int = -1  # of OPEN and CLOSE: a number that both ends of an element have
    # Of OPEN and CLOSE: whether the element may not be empty, such as Markdown's emphasis. Of
    # BORDER: whether it stays where there are too few words to divide.
    needs_text: bool = False
    # Of CLOSE: its markup where other text is in the element, such as "][key]" of a link whose
    # label is its key; "" if it is the same.
    explicit: str = ""
    name: str = ""  # of OPEN and CLOSE: the element's
    # Of OPEN and CLOSE: whether it certainly has a partner, as Markdown's own elements do.
    is_sure: bool = False

    def cut(self, start: int, end: int) -> "Item":
        """Return the part [start:end] of the text."""
        if self.type is not ItemType.TEXT or (start <= 0 and end >= len(self.text)):
            return self
        if len(self.text) != self.end - self.start:  # it is written otherwise, such as &amp;
            return self if start <= 0 < end else self._replace(start=self.end, text="")
        start = max(start, 0)
        end = max(start, min(end, len(self.text)))
        return self._replace(
            start=self.start + start, end=self.start + end, text=self.text[start:end]
        )


class Document(NamedTuple):
    """A parsed document, with the functions that write and verify its translation."""

    text: str
    items: Sequence[Item]
    # (text, the markup that follows it, or "") -> the text in the format of the document, without
    # anything that could be markup. None: as `encode`.
    escape: Callable[[str, str], str] | None = None
    # The text of a document -> its blocks, inline elements and tags in order, without the words.
    # The strings of inline elements begin with "inline ". A translation may change the order of
    # neighboring strings that do, but not of other strings. A plain text has none.
    structure: Callable[[str], list[str]] = lambda text: []
    # A text -> the text with the escapes without which it always reads otherwise. `escape` is used
    # where the structure of the document would change.
    encode: Callable[[str], str] = str
    # A translation of a sentence -> the same without characters that no text may contain.
    clean: Callable[[str], str] = str
    # The end of the text before a section, which can begin with the next sentence, and whose
    # structure can be compared separately.
    section_start: re.Pattern[str] = SECTION_START
    # A translation of `text` -> that of the file, where `text` is the file with changes.
    finish: Callable[[DocumentTranslation], DocumentTranslation] = lambda translation: translation


def shown_text(items: Sequence[Item]) -> str:
    """Return the text of items as a sentence splitter reads it."""
    return "".join(item.text for item in items)


def text_starts(items: Sequence[Item]) -> list[int]:
    """Return the position of each item in `shown_text`."""
    return list(itertools.accumulate((len(item.text) for item in items), initial=0))[:-1]


def split_at_breaks(items: Sequence[Item]) -> list[list[Item]]:
    """Return the items between breaks."""
    groups = itertools.groupby(items, lambda item: item.type is ItemType.BREAK)
    return [list(group) for is_break, group in groups if not is_break]


def pair_elements(items: Iterable[Item]) -> list[Item]:
    """Number the pairs of OPEN and CLOSE. One without a partner, or not nested, becomes a point."""
    paired = list(items)
    waiting: list[int] = []  # the indices of elements without an end so far
    named = defaultdict[str, list[int]](list)  # the same indices, by name
    sure = [-1]  # the same indices, of elements that certainly have an end
    for index, item in enumerate(paired):
        if item.type is ItemType.OPEN:
            waiting.append(index)
            named[item.name].append(index)
            if item.is_sure:
                sure.append(index)
        elif item.type is ItemType.CLOSE and named[item.name]:
            start = named[item.name][-1]
            if start < sure[-1]:
                continue
            while waiting and waiting[-1] >= start:
                inner = paired[waiting.pop()]
                named[inner.name].pop()
                if inner.is_sure:
                    sure.pop()
            paired[start] = paired[start]._replace(pair=start)
            paired[index] = item._replace(pair=start)
    return [
        item._replace(type=ItemType.POINT, needs_text=False)
        if item.type in (ItemType.OPEN, ItemType.CLOSE) and item.pair < 0
        else item
        for item in paired
    ]


_links = functools.cache(LinkifyIt)


def placeholder_spans(text: str) -> list[Span]:
    """Return the spans of placeholders, URLs and email addresses."""
    matches = _links().match(text) or []
    # Two words joined by a full stop, such as "this.So", are not an address.
    links = [
        (link.index, link.last_index)
        for link in matches
        if link.schema or "/" in link.raw or link.raw.startswith("www.")
    ]
    characters = list(text)  # with line ends, which no placeholder has, in place of addresses
    for start, end in links:
        characters[start:end] = "\n" * (end - start)
    return links + [match.span() for match in PLACEHOLDER.finditer("".join(characters))]


def number_spans(text: str) -> list[Span]:
    """Return the spans of numbers in digits."""
    return [match.span() for match in NUMBER.finditer(text)]


def protect_spans(items: Sequence[Item], spans: Iterable[Span]) -> tuple[Item, ...]:
    """Return items with points in place of spans of `shown_text(items)`, which do not overlap."""
    protected: list[Item] = []
    ordered = sorted(spans)
    starts = [start for start, _ in ordered]
    ends = [end for _, end in ordered]
    for item, first in zip(items, text_starts(items), strict=True):
        if item.type is not ItemType.TEXT:
            protected.append(item)
            continue
        done = 0
        last = first + len(item.text)
        for start, end in ordered[
            bisect.bisect_right(ends, first) : bisect.bisect_left(starts, last)
        ]:
            protected.append(item.cut(done, start - first))
            done = end - first
            point = item.cut(start - first, done)
            if point.text:
                protected.append(Item(ItemType.POINT, point.start, point.end, STAND_IN))
        protected.append(item.cut(done, len(item.text)))
    return tuple(protected)
