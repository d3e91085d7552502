"""Gettext PO: each empty `msgstr` gets the translation of its `msgid`, and the flag `fuzzy`."""

import re
from collections.abc import Iterator

from tfk_transformer.formats.documents.edited_text import Edit
from tfk_transformer.formats.documents.items import Document, Item, ItemType
from tfk_transformer.formats.localization.places import Notation, line_of, place_document

# A string, of which all quotes but the first and the last one belong to the content.
CONTENT = r'(?:[^"\\\r\n]|\\.|"\s*")*+'
STRING = rf'[ \t]*"{CONTENT}"\s*'
# The comments before an entry, and the entry; or what is no entry, or the end of the file.
ENTRY = re.compile(
    r"(?P<comments>(?:\s|#[^\r\n]*)*+)"
    rf'(?:(?P<context>msgctxt{STRING})?msgid[ \t]*"(?P<source>{CONTENT})"\s*'
    rf'(?:msgid_plural[ \t]*"(?P<plural>{CONTENT})"\s*(?P<forms>(?:msgstr\[\d+\]{STRING})+)'
    rf'|msgstr[ \t]*"(?P<target>{CONTENT})"\s*)|(?P<other>[^\r\n]{{1,40}})|\Z)'
)
FLAGS = re.compile(r"^[ \t]*#,([^\r\n]*)", re.MULTILINE)
PREVIOUS = re.compile(r"^[ \t]*(#\|)", re.MULTILINE)  # the previous source, after the flags
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
    for entry in ENTRY.finditer(text):
        if entry["other"]:
            raise ValueError(
                "text: expected an entry with msgid and msgstr in quotes, got one that begins with "
                f"'{entry['other']}' in line {line_of(text, entry.start('other'))}; correct the "
                "entry."
            )
        if not EMPTY.fullmatch(entry["source"] or ""):
            if EMPTY.fullmatch(entry["target"] or entry["forms"] or ""):
                edits += [_fuzzy_edit(entry), *_entry_edits(text, entry, header)]
        elif entry["target"] is not None and not entry["context"]:
            header = entry["target"]
            edits += _header_edits(text, *entry.span("target"), target_language)
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


def _fuzzy_edit(entry: re.Match[str]) -> Edit:
    comments = (entry.string, *entry.span("comments"))
    if flags := FLAGS.search(*comments):
        return Edit(*(flags.start(1),) * 2, "" if "fuzzy" in flags[1] else " fuzzy,")
    previous = PREVIOUS.search(*comments)
    position = previous.start(1) if previous else entry.end("comments")
    return Edit(position, position, "#, fuzzy\n")


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
