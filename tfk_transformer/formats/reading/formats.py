"""Parse documents of all formats."""

import re

from tfk_transformer.formats.documents.items import Document
from tfk_transformer.formats.reading.text_reader import escape_text, read_text

# Read as one character: a backslash before punctuation, and the name or number of a character.
MARKDOWN_CHARACTER = re.compile(r"\\(?=[!-/:-@\[-`{-~])|&(?=#?\w+;)")


def encode_markdown(text: str) -> str:
    """Return a text as Markdown in which each character is read as itself, or as markup."""
    return MARKDOWN_CHARACTER.sub(r"\\\g<0>", text)


def read(text: str, format: str, lines: bool = False) -> Document:
    """Parse a document.

    Args:
        text: the document.
        format: "text", "markdown" or "html".
        lines: whether each line of a plain text is a paragraph.
    """
    if format == "markdown":
        from tfk_transformer.formats.reading.markdown_reader import escape_markdown, read_markdown
        from tfk_transformer.formats.reading.markdown_structure import structure_within

        items = read_markdown(text)
        return Document(text, items, escape_markdown, structure_within(text), encode_markdown)
    if format == "html":
        from tfk_transformer.formats.reading.html_reader import escape_html, read_html
        from tfk_transformer.formats.reading.html_structure import html_structure

        return Document(text, read_html(text), escape_html, html_structure, escape_html)
    return Document(text, read_text(text, lines), escape_text)
