"""Text that a translation leaves unchanged: placeholders of programs, addresses, numbers."""

import bisect
import functools
import re
from collections.abc import Iterable, Iterator, Sequence

from linkify_it import LinkifyIt
from linkify_it.main import Match

from tfk_transformer.formats.documents.items import STAND_IN, Item, ItemType, text_starts
from tfk_transformer.text.words import Span

PLACEHOLDER = re.compile(
    r"""
    \$\{[^{}\s]*\}                                        # ${name}
    | \{\{[^{}\n]*\}\}                                    # {{ name }}
    | \{[^{}\s]*\}                                        # {name}, {0:.2f}
    | %\([^()\s]+\)[-+#0]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa] # %(name)d
    | (?<![\d%])%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?           # %s, %1$s, %.2f
      (?:hh|ll|[hlLzjt])?[diouxXeEfFgGcrsap@](?![^\W\d_])
    """,
    re.VERBOSE,
)
NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")


_links = functools.cache(LinkifyIt)


def placeholder_spans(text: str) -> list[Span]:
    """Return the spans of placeholders, URLs and email addresses."""
    matches = _links().match(text) or []
    links = [(link.index, link.last_index) for link in matches if _is_address(link)]
    spans = [match.span() for match in PLACEHOLDER.finditer(text)]
    return links + [
        (start, end)
        for start, end in spans
        if not any(first < end and start < last for first, last in links)
    ]


def _is_address(link: Match) -> bool:
    """Return whether a link is more than two words joined by a full stop, such as "this.So"."""
    return bool(link.schema) or "/" in link.raw or link.raw.startswith("www.")


def number_spans(text: str) -> list[Span]:
    """Return the spans of numbers in digits."""
    return [match.span() for match in NUMBER.finditer(text)]


def protect_spans(items: Sequence[Item], spans: Iterable[Span]) -> tuple[Item, ...]:
    """Return items with points in place of some of the text.

    Args:
        items: the items.
        spans: the spans in `shown_text(items)` that become points. They do not overlap.
    """
    protected: list[Item] = []
    ordered = sorted(spans)
    starts = [start for start, _ in ordered]
    ends = [end for _, end in ordered]
    for item, first in zip(items, text_starts(items), strict=True):
        overlapping = ordered[
            bisect.bisect_right(ends, first) : bisect.bisect_left(starts, first + len(item.text))
        ]
        inside = [(start - first, end - first) for start, end in overlapping]
        protected += _with_points(item, inside) if item.type is ItemType.TEXT else [item]
    return tuple(protected)


def _with_points(item: Item, spans: Sequence[Span]) -> Iterator[Item]:
    """Yield a text with points in it."""
    done = 0
    for start, end in spans:
        yield item.cut(done, start)
        point = item.cut(start, end)
        if point.text:
            yield Item(ItemType.POINT, point.start, point.end, STAND_IN)
        done = end
    yield item.cut(done, len(item.text))
