"""Every format of texts, declared once: documents, which are read as a whole, and files of lines.

A new one is a module with its reader and a record here. Commands, messages, help texts and
`translate_document` derive from the records.
"""

import contextlib
import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfk_transformer.formats.compression import open_decompressed, text_suffix
from tfk_transformer.formats.lines import JsonObjects, TableRows, Texts
from tfk_transformer.runtime_environment import with_install_line

if TYPE_CHECKING:
    from tfk_transformer.formats.documents.items import Document


class Format(NamedTuple):
    """A format of documents or of lines."""

    name: str  # of documents, the argument `format` of `translate_document`
    suffixes: tuple[str, ...]  # of its files; help texts show the first one
    # Of documents: (text, **options) -> `Document`. Of lines: (field, output field) -> `Texts`.
    read: Callable[..., Any]
    title: str = ""  # of documents: the name in help texts
    options: tuple[str, ...] = ()  # of documents: arguments of `translate_document` for it
    is_office: bool = False  # of documents: whether it is bytes, and `read` returns `OfficeFile`
    part: str = ""  # of lines: the part with the text, if a line has several
    field: str = ""  # of lines: the value of --field


def _reader(module: str, folder: str = "reading", **fixed: Any) -> Callable[..., Any]:
    """Return the function `read` of a module, whose packages are imported when it is called."""

    def read(text: str | bytes, **options: Any) -> Any:
        try:
            reader = importlib.import_module(f"tfk_transformer.formats.{folder}.{module}")
        except ImportError as error:
            raise with_install_line(error) from error
        return reader.read(text, **fixed, **options)

    return read


KEYS = ("front_matter",)
HTML_OPTIONS = ("attributes", "target_language", *KEYS)
MDX = _reader("markdown_reader", dialect="mdx")
LANGUAGE, FIELDS = ("target_language",), ("fields",)
ARB = _reader("json_reader", "localization", is_arb=True)
DOCUMENTS = (
    Format("text", (".txt", ".text", ""), _reader("text_reader"), "plain text", ("lines",)),
    Format("markdown", (".md", ".markdown"), _reader("markdown_reader"), "Markdown", KEYS),
    Format("mdx", (".mdx",), MDX, "Markdown with JSX", KEYS),
    Format("html", (".html", ".htm", ".xhtml"), _reader("html_reader"), "HTML", HTML_OPTIONS),
    Format("subtitles", (".srt", ".vtt", ".ass", ".ssa"), _reader("subtitle_reader"), "subtitles"),
    Format("docx", (".docx",), _reader("word", "office"), "Word", is_office=True),
    Format("epub", (".epub",), _reader("epub", "office"), "EPUB", is_office=True),
    Format("po", (".po", ".pot"), _reader("po_reader", "localization"), "gettext PO", LANGUAGE),
    Format("xliff", (".xlf", ".xliff"), _reader("xliff_reader", "localization"), "XLIFF", LANGUAGE),
    Format("json", (".json",), _reader("json_reader", "localization"), "JSON of strings"),
    Format("arb", (".arb",), ARB, "ARB", LANGUAGE),
    Format("csv", (".csv", ".tsv"), _reader("table_reader", "localization"), "tables", FIELDS),
)
PLAIN_LINES = Format("lines", (), lambda field, output_field: Texts())  # with any suffix
TABLE_FIELD = "the column with the texts, by its name or number"
JSON_FIELD = "the name of the value with the texts"
LINES = (
    PLAIN_LINES,
    Format("table", (".tsv",), TableRows, part="column", field=TABLE_FIELD),
    Format("json", (".jsonl",), JsonObjects, part="key", field=JSON_FIELD),
)
DOCUMENT_FORMATS = {format.name: format for format in DOCUMENTS}
DOCUMENT_SUFFIXES = {suffix: format.name for format in DOCUMENTS for suffix in format.suffixes}
LINE_SUFFIXES = {suffix: format for format in LINES for suffix in format.suffixes}

HEAD_BYTES = 4096
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


def listed(words: Iterable[str], conjunction: str = "or") -> str:
    """Return words as "a, b or c"."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def parts_of(option: str) -> str:
    """Return the parts of the lines of a file that contain texts, for the help of a command."""
    parts = [f"{each.part} of a {each.suffixes[0]} {option}" for each in LINES if each.part]
    return ", or the ".join(parts)


def read(text: str, format: str, **options: Any) -> "Document":
    """Parse a document with options of its format."""
    present = {name: value for name, value in options.items() if value}
    document: Document = DOCUMENT_FORMATS[format].read(text, **present)
    return document


def check_document(text: object, format: str, **options: Any) -> None:
    """Refuse an unknown format, and arguments of `translate_document` that it does not have."""
    if format not in [*DOCUMENT_FORMATS]:
        raise ValueError(f"format: expected one of {', '.join(DOCUMENT_FORMATS)}, got '{format}'.")
    expected = bytes if DOCUMENT_FORMATS[format].is_office else str
    if not isinstance(text, expected):
        name = "a string" if expected is str else f"the bytes of a .{format} file"
        raise ValueError(f"text: expected {name}, got {type(text).__name__}.")
    for name, value in options.items():
        if value and name not in DOCUMENT_FORMATS[format].options:
            owners = listed(f"'{each.name}'" for each in DOCUMENTS if name in each.options)
            raise ValueError(f"{name}: expected format {owners}, got '{format}'; leave {name} out.")


def _line_format(path: Path | None) -> Format:
    return LINE_SUFFIXES.get(text_suffix(path), PLAIN_LINES) if path else PLAIN_LINES


def input_records(path: Path | None, field: str | None, output_field: str) -> Texts:
    """Return what reads the lines of an input, by its suffix."""
    format = _line_format(path)
    if format is PLAIN_LINES and field is not None:
        raise ValueError(
            f"--field: expected an --input with the end {listed(LINE_SUFFIXES)}, got "
            f"{path or 'standard input'}; save it in such a format, or leave --field out if each "
            "line is a text."
        )
    if format is not PLAIN_LINES and field is None:
        raise ValueError(f"--field: expected {format.field}, since --input is {path}; give one.")
    records: Texts = format.read(field, output_field)
    return records


def output_records(records: Texts, input: Path | None, output: Path | None) -> Texts:
    """Return what writes the lines of an output, by its suffix: `records`, or only translations."""
    if output is None:
        return records
    format = _line_format(output)
    if format is PLAIN_LINES:
        return Texts()
    if format is not _line_format(input):
        raise ValueError(
            f"--output: expected {text_suffix(output)} only for an --input with this end, got "
            f"{output}; give another name."
        )
    return records


def check_hypotheses(settings: dict[str, Any], *records: Texts) -> None:
    """Refuse several hypotheses for formats that have one translation in a record."""
    if settings.get("n_best", 1) != 1 and any(type(each) is not Texts for each in records):
        raise ValueError(
            f"n_best: expected 1 with {listed(LINE_SUFFIXES, 'and')} files, got "
            f"{settings['n_best']}; leave it out, or give texts."
        )


def document_suffix(path: Path) -> str:
    """Return the suffix of the format of a document, or "" for a file of lines."""
    suffix = text_suffix(path)
    if suffix in LINE_SUFFIXES:
        return ""
    if suffix in OTHER_SUFFIXES or DOCUMENT_SUFFIXES.get(suffix, "text") != "text":
        return suffix
    head = b""
    # Reading from a pipe takes away what is read. An error is reported when the lines are read.
    if path.is_file():
        with contextlib.suppress(OSError, ValueError), open_decompressed(path) as file:
            head = file.read(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((suffix for start, suffix in BEGINNINGS.items() if re.match(start, head)), "")
