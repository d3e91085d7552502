"""What passes through a translation as it is: placeholders of programs, addresses, numbers."""

import functools
import re
from collections.abc import Iterable, Iterator, Sequence

from linkify_it import LinkifyIt
from linkify_it.main import Match

from tfk_transformer.documents.items import STAND_IN, Item, ItemType, shown

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


@functools.cache
def _links() -> LinkifyIt:
    return LinkifyIt()


def placeholders(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of placeholders, URLs and addresses of mail."""
    links = [
        (link.index, link.last_index) for link in _links().match(text) or [] if _is_address(link)
    ]
    yield from links
    for found in PLACEHOLDER.finditer(text):
        if not any(start < found.end() and found.start() < end for start, end in links):
            yield found.span()


def _is_address(link: Match) -> bool:
    """Return whether a link is more than two words with a full stop between them, as "this.So"."""
    return bool(link.schema) or "/" in link.raw or link.raw.startswith("www.")


def numbers(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of numbers in digits."""
    for found in NUMBER.finditer(text):
        yield found.span()


def protected(items: Sequence[Item], spans: Iterable[tuple[int, int]]) -> tuple[Item, ...]:
    """Return items in which parts of the text are points.

    Args:
        items: the items.
        spans: places in the text that the items show.
    """
    _, starts = shown(items)
    found: list[Item] = []
    ordered = sorted(spans)
    for item, place in zip(items, starts, strict=True):
        here = (
            [(s - place, e - place) for s, e in ordered if s < place + len(item.text) and e > place]
            if item.kind is ItemType.TEXT
            else []
        )
        found.extend(_with_points(item, here) if here else [item])
    return tuple(found)


def _with_points(item: Item, spans: Sequence[tuple[int, int]]) -> Iterator[Item]:
    """Yield a text with points in it."""
    done = 0
    for start, end in spans:
        yield item.cut(done, start)
        point = item.cut(start, end)
        if point.text:
            yield Item(ItemType.POINT, point.start, point.end, STAND_IN)
        done = end
    yield item.cut(done, len(item.text))
