"""Gettext PO: each empty `msgstr` gets the translation of its `msgid`, and the flag `fuzzy`."""

import re
from collections.abc import Iterator

from tfk_transformer.formats.documents.edited_text import Edit
from tfk_transformer.formats.documents.items import Document, Item, ItemType
from tfk_transformer.formats.localization.places import Notation, line_of, place_document

# A string, of which all quotes but the first and the last one belong to the content.
CONTENT = r'(?:[^"\\\r\n]|\\.|"\s*")*+'
STRING = rf'[ \t]*"{CONTENT}"\s*'
ENTRY = re.compile(
    rf'(?P<context>msgctxt{STRING})?msgid[ \t]*"(?P<source>{CONTENT})"\s*'
    rf'(?:msgid_plural[ \t]*"(?P<plural>{CONTENT})"\s*(?P<forms>(?:msgstr\[\d+\]{STRING})+)'
    rf'|msgstr[ \t]*"(?P<target>{CONTENT})"\s*)'
)
COMMENT = re.compile(r"\s+|#(?P<type>[,|]?)(?P<text>[^\r\n]*)")
# The end of a line is no part of a string.
ESCAPES = re.compile(r'"[ \t]*\r?\n[ \t]*"|\\(?:[0-7]{1,3}|x[0-9A-Fa-f]+|.)|"')
DECODED = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\"": '"', r"\\": "\\"}
EMPTY = re.compile(r'(?:"\s*"|msgstr\[\d+\][ \t]*"(?:"\s*")*+"\s*)*+')
LINE_FEED = re.compile(r"(?<!\r)\n")
NUMBER_OF_PLURALS = re.compile(r"nplurals[ \t]*=[ \t]*(\d+)")
CHARSET = re.compile(r"charset=([^\s\\]+)")
LANGUAGE = re.compile(r'(?<=")Language:([^"\\]*)')
UNSET_CHARSETS = ("CHARSET", "ASCII", "US-ASCII")  # of templates
# An accelerator inside a word, such as E&xit, moves to the start of the word.
INNER_ACCELERATOR = re.compile(r"(?<![\w&])([A-Z][a-z]*)(&(?!\w+;)|_)(?=[a-z])")


def read(text: str, target_language: str | None = None) -> Document:
    """Parse a file. Existing translations, also fuzzy ones, and obsolete entries stay."""
    edits: list[Edit] = []
    header = ""
    comments: list[re.Match[str]] = []  # before the entry
    position = 0
    while position < len(text):
        if comment := COMMENT.match(text, position):
            comments.append(comment)
            position = comment.end()
            continue
        entry = ENTRY.match(text, position)
        if entry is None:
            line = text[position:].splitlines()[0][:40]
            raise ValueError(
                "text: expected an entry with msgid and msgstr in quotes, got one that begins with "
                f"'{line}' in line {line_of(text, position)}; correct the entry."
            )
        if EMPTY.fullmatch(entry["source"]):
            if entry["forms"] is None and not entry["context"]:
                header = entry["target"]
                edits += _header_edits(text, *entry.span("target"), target_language)
        elif EMPTY.fullmatch(entry["target"] or entry["forms"] or ""):
            edits += [_fuzzy_edit(entry, comments), *_entry_edits(text, entry, header)]
        comments = []
        position = entry.end()
    if "\r\n" in text:
        edits = [edit._replace(text=LINE_FEED.sub("\r\n", edit.text)) for edit in edits]
    return place_document(text, edits, Notation(ESCAPES, _decode, _encode))


def _header_edits(text: str, start: int, end: int, target_language: str | None) -> Iterator[Edit]:
    charset = CHARSET.search(text, start, end)
    if charset and charset[1].upper() in UNSET_CHARSETS:
        yield Edit(*charset.span(1), "UTF-8")
    elif charset and charset[1].upper() not in ("UTF-8", "UTF8"):
        raise ValueError(
            f"text: expected charset=UTF-8 in the header, got {charset[1]}; convert the file with "
            "`msgconv --to-code=UTF-8`."
        )
    if target_language is not None:
        code = target_language.replace("-", "_")
        language = LANGUAGE.search(text, start, end)
        if language:
            yield Edit(*language.span(1), f" {code}")
        else:
            yield Edit(end, end, f'"\n"Language: {code}\\n')


def _fuzzy_edit(entry: re.Match[str], comments: list[re.Match[str]]) -> Edit:
    for comment in comments:
        if comment["type"] == ",":
            is_fuzzy = "fuzzy" in comment["text"]
            return Edit(*(comment.start("text"),) * 2, "" if is_fuzzy else " fuzzy,")
    # The previous source is after the flags.
    previous = [comment.start() for comment in comments if comment["type"] == "|"]
    return Edit(*([*previous, entry.start()][0],) * 2, "#, fuzzy\n")


def _entry_edits(text: str, entry: re.Match[str], header: str) -> Iterator[Edit]:
    """Yield a copy of the source for each form of the translation."""
    if entry["forms"] is None:
        yield _copy(entry, "source", *entry.span("target"))
        return
    count = NUMBER_OF_PLURALS.search(header)
    if count is None:
        raise ValueError(
            "text: expected Plural-Forms with nplurals in the header, since line "
            f"{line_of(text, entry.start('plural'))} has plural forms, got none; add the rule of "
            "the language of the translation."
        )
    start = entry.start("forms")
    end = entry.start("forms") + len(entry["forms"].rstrip())
    for index in range(int(count[1])):
        yield Edit(start, end, f'{chr(10) if index else ""}msgstr[{index}] "')
        # A language with one form uses it for all numbers.
        yield _copy(entry, "source" if index == 0 and count[1] != "1" else "plural", end, end)
        yield Edit(end, end, '"')
        start = end


def _copy(entry: re.Match[str], name: str, start: int, end: int) -> Edit:
    """Return an edit to a copy of a string."""
    return Edit(start, end, INNER_ACCELERATOR.sub(r"\2\1", entry[name]), entry.span(name))


def _decode(match: re.Match[str]) -> str | Item:
    if match[0].startswith('"'):
        return ""
    # The number of a byte, or a control character.
    return DECODED.get(match[0]) or Item(ItemType.POINT, *match.span())


def _encode(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
