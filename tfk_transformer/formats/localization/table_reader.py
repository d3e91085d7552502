"""Tables with commas, semicolons or tabs: the cells of some columns are translated in place."""

import re
from collections.abc import Iterator, Sequence

from tfk_transformer.formats.documents.edited_text import Edit, EditedText
from tfk_transformer.formats.documents.items import Document
from tfk_transformer.formats.localization.places import QUOTE, Notation, line_of, place_document
from tfk_transformer.text.results import DocumentTranslation
from tfk_transformer.text.words import Span

DELIMITERS = ",;\t"
ESCAPES = re.compile(f'""|"|{QUOTE}')
ADDED_QUOTES = re.compile(f"{QUOTE}([^{QUOTE}]*){QUOTE}")


def read(text: str, fields: Sequence[str] = ()) -> Document:
    """Parse a table whose delimiter is the most frequent one in its first row."""
    first = re.sub(r'"[^"]*"', "", text).split("\n")[0]
    delimiter = max(DELIMITERS, key=first.count)
    if QUOTE in text:
        raise ValueError(
            "text: expected no character U+E000, which has no meaning, got one in line "
            f"{line_of(text, text.index(QUOTE))}; remove it."
        )
    rows = list(_rows(text, delimiter))
    has_header, columns = _columns(text, rows[0] if rows else [], fields)
    edits: list[Edit] = []
    for row in rows[has_header:]:
        if len(row) <= max(columns):
            raise ValueError(
                f"text: expected {max(columns) + 1} columns or more, got {len(row)} in line "
                f"{line_of(text, row[0][0])}; correct the row."
            )
        for cell in sorted({row[column] for column in columns}):
            edits += _edits(text, *cell)
    document = place_document(text, edits, Notation(ESCAPES, lambda match: '"', _encode))
    special = re.compile(f'[{delimiter}"\r\n]')
    return document._replace(
        finish=lambda translation: _with_quotes(document.finish(translation), special)
    )


def _rows(text: str, delimiter: str) -> Iterator[list[Span]]:
    """Yield the cells, without their quotes, of each row that is not blank."""
    pattern = re.compile(
        rf'(?:"(?P<quoted>(?:[^"]|"")*+)"|(?P<plain>(?!")[^{delimiter}\r\n]*))'
        rf"(?P<end>{delimiter}|\r?\n|\r|\Z)|(?P<other>[^\r\n]{{1,40}})"
    )
    row: list[Span] = []
    for match in pattern.finditer(text):
        if match["other"]:
            raise ValueError(
                "text: expected quotes around a whole cell, and two for a quote inside it, got "
                f"'{match['other']}' in line {line_of(text, match.start())}; correct the cell."
            )
        row.append(match.span("plain" if match["quoted"] is None else "quoted"))
        if match["end"] != delimiter:
            if len(row) > 1 or match[0].strip():
                yield row
            row = []


def _columns(text: str, first: list[Span], fields: Sequence[str]) -> tuple[bool, list[int]]:
    """Return whether the first row has the names of columns, and the indices of `fields`."""
    if fields and all(field.isdecimal() and int(field) for field in fields):
        return False, [int(field) - 1 for field in fields]
    names = [text[slice(*cell)].replace('""', '"') for cell in first]
    unknown = [field for field in fields if names.count(field) != 1]
    if unknown or not fields:
        raise ValueError(
            f"fields: expected one of the columns {', '.join(names)}, or a number from 1 in a file "
            f"without names, got {', '.join(unknown) or 'none'}; name the columns to translate."
        )
    return True, [names.index(field) for field in fields]


def _edits(text: str, start: int, end: int) -> Iterator[Edit]:
    """Yield a copy of a cell with letters, in quotes, which its translation may need."""
    value = text[start:end]
    if text[start - 1 : start] == '"':
        yield Edit(start, end, value, (start, end))
    elif any(map(str.isalpha, value)):
        yield Edit(start, start, QUOTE)
        yield Edit(start, end, value.replace('"', '""'), (start, end))
        yield Edit(end, end, QUOTE)


def _encode(text: str) -> str:
    return text.replace('"', '""').replace(QUOTE, " ")


def _with_quotes(translation: DocumentTranslation, special: re.Pattern[str]) -> DocumentTranslation:
    """Return a translation with the added quotes only around cells that need them."""
    edits = []
    for cell in ADDED_QUOTES.finditer(translation.text):
        quote = '"' if special.search(cell[1]) else ""
        edits += [Edit(at, at + 1, quote) for at in (cell.start(), cell.end() - 1)]
    edited = EditedText(translation.text, edits)
    sentences = []
    for sentence in translation.sentences:
        start, end = map(edited.position, sentence[2:4])
        target = edited.text[start:end]
        sentences.append(sentence._replace(target_start=start, target_end=end, target=target))
    return DocumentTranslation(edited.text, sentences)
