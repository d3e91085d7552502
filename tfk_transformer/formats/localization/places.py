"""The places of a file whose strings are translated, as a document with copies of the sources."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tfk_transformer.formats.documents.edited_text import Edit, EditedText
from tfk_transformer.formats.documents.items import Document, Item, ItemType, pair_elements
from tfk_transformer.formats.localization.strings import (
    STRING_END,
    string_items,
    string_structure,
)
from tfk_transformer.text.kept_characters import is_unspaced

QUOTE = "\ue000"  # a quote that may not be needed, see `table_reader`
# The text before the first sentence of a string, with which a section of the file can begin.
SECTION_START = re.compile(rf'(?:(?<![\\"])"|{QUOTE}|target[^<>]*>)\Z')
# Characters that no string contains: the translation of a string remains one line.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


class Notation(NamedTuple):
    """How a format writes strings."""

    escapes: re.Pattern[str]  # also the quotes around strings
    # A match of `escapes` -> the characters that it stands for, or an item that stays unchanged.
    decode: Callable[[re.Match[str]], str | Item]
    encode: Callable[[str], str]  # a text without control characters -> as it is in the file
    has_lines: bool = True  # whether a line break in a string ends a text


def place_document(file: str, edits: Sequence[Edit], notation: Notation) -> Document:
    """Return the document of a file whose strings are translated in their places.

    Its text is the file with these edits, by which each place contains its source.
    """
    edited = EditedText(file, edits)
    items: list[Item] = []
    for start, end in edited.places:
        parts = _parts(edited.text, start, end, notation)
        items += _separated(pair_elements(string_items(parts, notation.has_lines)))
        items.append(Item(ItemType.BREAK, end, end))

    def escape(text: str, following: str) -> str:
        # An apostrophe before a brace quotes it, in messages of ICU.
        is_quote = text.endswith("'") and following.startswith(("{", "}"))
        return notation.encode(f"{text[:-1]}’" if is_quote else text)

    def structure(text: str) -> list[str]:
        shown = [
            STRING_END
            if part.type is ItemType.BREAK
            else part.text * (part.type is ItemType.TEXT) or text[part.start : part.end]
            for part in _parts(text, 0, len(text), notation)
        ]
        return string_structure("".join(shown), notation.has_lines)

    return Document(
        edited.text,
        items,
        escape,
        structure,
        notation.encode,
        functools.partial(CONTROLS.sub, " "),
        SECTION_START,
        edited.restore,
    )


def _separated(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items, with an empty point between words that only tags separate.

    The words of <b>File</b><b>New</b> are not one word.
    """
    before = ""  # the last character, unless a point follows it
    has_tag = False  # after this character
    for item in items:
        if item.type is ItemType.TEXT:
            ends = (before, item.text[0])
            if has_tag and all(end.isalnum() and not is_unspaced(end) for end in ends):
                yield Item(ItemType.POINT, item.start, item.start)
            before, has_tag = item.text[-1], False
        elif item.type in (ItemType.OPEN, ItemType.CLOSE):
            has_tag = True
        else:
            before = ""
        yield item


def _parts(text: str, start: int, end: int, notation: Notation) -> list[Item]:
    """Return the characters of a text, with an item for each escape."""
    parts: list[Item] = []
    done = start
    for match in notation.escapes.finditer(text, start, end):
        parts.append(Item(ItemType.TEXT, done, match.start(), text[done : match.start()]))
        is_end = match[0] in ('"', QUOTE)
        decoded = Item(ItemType.BREAK, *match.span()) if is_end else notation.decode(match)
        if isinstance(decoded, str):
            decoded = Item(ItemType.TEXT, *match.span(), decoded)
        parts.append(decoded)
        done = match.end()
    parts.append(Item(ItemType.TEXT, done, end, text[done:end]))
    return [part for part in parts if part.text or part.type is not ItemType.TEXT]


def line_of(text: str, position: int) -> int:
    """Return the number of the line of a position, from 1."""
    return text.count("\n", 0, position) + 1
