"""Parse plain text into items."""

import re

from tfk_transformer.formats.documents.items import Item, ItemType

BLANK_LINES = re.compile(r"(?:[^\S\n]*\n){2,}")
LINE_END = re.compile(r"\n")


def read_text(document: str, lines: bool = False) -> list[Item]:
    """Return the items of a plain text.

    Paragraphs end at blank lines.

    Args:
        document: the text.
        lines: whether each line is a paragraph.
    """
    items = []
    done = 0
    for end in (LINE_END if lines else BLANK_LINES).finditer(document):
        items += [
            Item(ItemType.TEXT, done, end.start(), document[done : end.start()]),
            Item(ItemType.BREAK, *end.span()),
        ]
        done = end.end()
    return [*items, Item(ItemType.TEXT, done, len(document), document[done:])]


def escape_text(text: str, following: str = "") -> str:
    """Return the text unchanged: plain text has no markup."""
    return text
