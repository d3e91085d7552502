"""Plain text as items: it has no markup."""

import re

from tfk_transformer.formats.documents.items import Document, Item, ItemType

BLANK_LINES = re.compile(r"(?:[^\S\n]*\n){2,}")
LINE_END = re.compile(r"\n")


def read(text: str, lines: bool = False) -> Document:
    """Parse a plain text; with `lines`, each line is a paragraph."""
    return Document(text, read_text(text, lines), lambda text, following: text)


def read_text(document: str, lines: bool = False) -> list[Item]:
    """Return the items of a plain text, whose paragraphs end at blank lines or after each line."""
    items = []
    done = 0
    for end in (LINE_END if lines else BLANK_LINES).finditer(document):
        items += [
            Item(ItemType.TEXT, done, end.start(), document[done : end.start()]),
            Item(ItemType.BREAK, *end.span()),
        ]
        done = end.end()
    return [*items, Item(ItemType.TEXT, done, len(document), document[done:])]
