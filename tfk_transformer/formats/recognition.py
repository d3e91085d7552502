"""Recognize documents among the files that a command reads as lines."""

import contextlib
import re
from pathlib import Path

from tfk_transformer.formats.compression import open_decompressed, text_suffix
from tfk_transformer.formats.registry import DOCUMENT_SUFFIXES, LINE_SUFFIXES

HEAD_BYTES = 4096
PLAIN_TEXT = "text"  # the document format whose files may also be lines
# Suffixes of files that are not lines of texts, in addition to those of the document formats.
OTHER_SUFFIXES = (".odt", ".pdf")
# How such files begin after whitespace, whatever their names are, and their usual suffix.
BEGINNINGS = {
    rb"(?i)<!doctype html|<html\b": ".html",
    rb"<\?xml\b": ".xml",
    # Front matter: the first line with a key, and the last line.
    rb"---[ \t]*\r?\n(?:#.*\n|[ \t\r]*\n)*[\w-]+:.*\n(?:.*\n)*?---[ \t]*\r?\n": ".md",
    rb"WEBVTT\b": ".vtt",
    rb"\d+[ \t]*\r?\n\d+:\d\d:\d\d,\d+ --> \d": ".srt",
    rb'(?:#.*\n\s*)*msgid "': ".po",
    rb"PK\x03\x04": ".zip",
    rb"%PDF-": ".pdf",
}


def document_suffix(path: Path) -> str:
    """Return the suffix of the format of a document, or "" for a file of lines."""
    suffix = text_suffix(path)
    if suffix in LINE_SUFFIXES:
        return ""
    if suffix in OTHER_SUFFIXES or DOCUMENT_SUFFIXES.get(suffix, PLAIN_TEXT) != PLAIN_TEXT:
        return suffix
    head = b""
    # Reading from a pipe takes away what is read. An error is reported when the lines are read.
    if path.is_file():
        with contextlib.suppress(OSError, ValueError), open_decompressed(path) as file:
            head = file.read(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((suffix for start, suffix in BEGINNINGS.items() if re.match(start, head)), "")
