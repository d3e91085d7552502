"""Parse documents of all formats."""

from tfk_transformer.documents.items import Document
from tfk_transformer.documents.reading.text_reader import escape_text, read_text


def read(text: str, format: str, lines: bool = False) -> Document:
    """Parse a document.

    Args:
        text: the document.
        format: "text", "markdown" or "html".
        lines: whether each line of a plain text is a paragraph.
    """
    if format == "markdown":
        from tfk_transformer.documents.reading.markdown_reader import escape_markdown, read_markdown

        return Document(text, read_markdown(text), escape_markdown)
    if format == "html":
        from tfk_transformer.documents.reading.html_reader import escape_html, read_html

        return Document(text, read_html(text), escape_html)
    return Document(text, read_text(text, lines), escape_text)
