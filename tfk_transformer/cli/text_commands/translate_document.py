"""`tfk-transformer translate-document`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.atomic_write import atomic_write
from tfk_transformer.cli.arguments import (
    INPUT,
    OUTPUT,
    SEARCH,
    BeamSize,
    Force,
    GlossaryFile,
    Model,
    Settings,
    check_settings,
    glossary_argument,
    open_translator,
    search_settings,
)
from tfk_transformer.cli.text_output import check_output


class DocumentFormat(StrEnum):
    """The format of a document."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"


FORMAT_BY_SUFFIX = {
    ".txt": DocumentFormat.TEXT,
    ".text": DocumentFormat.TEXT,
    "": DocumentFormat.TEXT,
    ".md": DocumentFormat.MARKDOWN,
    ".markdown": DocumentFormat.MARKDOWN,
    ".html": DocumentFormat.HTML,
    ".htm": DocumentFormat.HTML,
    ".xhtml": DocumentFormat.HTML,
}
EXAMPLES = """
tfk-transformer translate-document numbers-files/translate.onnx notes.txt
tfk-transformer translate-document numbers notes.md --output notes.de.md
# The translation, and the position of every sentence in both documents.
tfk-transformer translate-document numbers notes.html --json
"""


def command(
    model: Model,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A UTF-8 document: plain text (.txt), Markdown (.md) or HTML (.html).",
        ),
    ],
    format: Annotated[
        DocumentFormat | None,
        typer.Option(
            metavar="FORMAT",
            help="The format of FILE: text, markdown or html. Default: by the suffix of FILE.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    language: Annotated[
        str,
        typer.Option(
            metavar="CODE",
            help="The language of FILE, such as de, for splitting FILE into sentences.",
            rich_help_panel=INPUT,
        ),
    ] = "en",
    lines: Annotated[
        bool,
        typer.Option(
            "--lines",
            help="Treat each line of a plain text as a paragraph. Without this option, blank lines "
            "separate paragraphs.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file for the translation. Default: standard output.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    force: Force = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object: the translation, and the positions of every sentence in "
            "both documents.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    beam_size: BeamSize = None,
    setting: Settings = None,
    glossary: GlossaryFile = None,
    attention_layer: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The layer of the decoder whose attention places markup, from 0; -1 is the last. "
            "Default: the mean of all layers.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
) -> None:
    """Translate a document sentence by sentence, and keep its markup.

    Requires the extra `documents`. See docs/documents.md.
    """
    settings = search_settings(setting, beam_size)
    terms = glossary_argument(glossary)
    check_output(output, force)
    check_settings(model, settings)
    document, document_format = _read_document(file, format)
    text = document.removeprefix("\ufeff")
    byte_order_mark = document[: len(document) - len(text)]
    translation = open_translator(model).translate_document(
        text,
        document_format,
        language=language,
        lines=lines,
        attention_layer=attention_layer,
        **settings,
        **terms,
    )
    if as_json:
        sentences = [sentence._asdict() for sentence in translation.sentences]
        record = {"text": translation.text, "sentences": sentences}
        result = f"{json.dumps(record, ensure_ascii=False)}\n"
    else:
        result = byte_order_mark + translation.text
    if output is None:
        typer.echo(result.encode("utf-8"), nl=False)
        return
    with atomic_write(output) as new:
        new.write_bytes(result.encode("utf-8"))


def _read_document(file: Path, format: DocumentFormat | None) -> tuple[str, DocumentFormat]:
    """Return the content of a document and its format, by default the format of its suffix.

    Raises:
        ValueError: if the file is missing, is not UTF-8, or has an unknown suffix.
    """
    if not file.exists():
        raise ValueError(f"FILE: expected a document, got {file}, which does not exist.")
    format = format or FORMAT_BY_SUFFIX.get(file.suffix.lower())
    if format is None:
        raise ValueError(
            f"FILE: expected one of the suffixes {', '.join(filter(None, FORMAT_BY_SUFFIX))}, got "
            f"{file}; give --format."
        )
    try:
        return file.read_bytes().decode("utf-8"), format
    except UnicodeDecodeError as error:
        raise ValueError(
            f"FILE: expected UTF-8, got byte 0x{error.object[error.start]:02x} at position "
            f"{error.start} of {file}."
        ) from None
