"""Plain text as items: it has no markup."""

import re

from tfk_transformer.formats.documents.items import Document, Item, ItemType

BLANK_LINES = re.compile(r"(?<![^\S\n])(?:[^\S\n]*+\n){2,}")
LINE_END = re.compile(r"\n")


def read(text: str, lines: bool = False) -> Document:
    """Parse a plain text, whose paragraphs end at blank lines or, with `lines`, after each line."""
    items = []
    done = 0
    for end in (LINE_END if lines else BLANK_LINES).finditer(text):
        items.append(Item(ItemType.TEXT, done, end.start(), text[done : end.start()]))
        items.append(Item(ItemType.BREAK, *end.span()))
        done = end.end()
    items.append(Item(ItemType.TEXT, done, len(text), text[done:]))
    return Document(text, items)
