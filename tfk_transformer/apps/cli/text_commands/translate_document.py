"""`tfk-transformer translate-document`."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tfk_transformer.apps.cli.arguments import (
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
from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.apps.cli.text_output import check_output
from tfk_transformer.atomic_write import atomic_write
from tfk_transformer.config.words import escape_controls

if TYPE_CHECKING:
    from tfk_transformer.formats.documents.results import DocumentTranslation

STANDARD_INPUT = Path("-")
BYTE_ORDER_MARK = "\ufeff"


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
# Several documents, to a folder with the same names.
tfk-transformer translate-document numbers notes.md notes.txt --output de
# The translation, and the position of every sentence in both documents.
tfk-transformer translate-document numbers notes.html --json
"""


class SourceDocument(NamedTuple):
    """A document to translate."""

    text: str
    format: DocumentFormat
    output: Path | None  # None: standard output


def command(
    model: Model,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="UTF-8 documents: plain text (.txt), Markdown (.md) or HTML (.html). - is "
            "standard input.",
        ),
    ],
    format: Annotated[
        DocumentFormat | None,
        typer.Option(
            metavar="FORMAT",
            help="The format of FILE: text, markdown or html. Default: by the suffix of FILE; text "
            "for standard input.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="The language of FILE, such as de, for splitting FILE into sentences. Default: "
            "the source language of MODEL, or English.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    lines: Annotated[
        bool,
        typer.Option(
            "--lines",
            help="Treat each line of a plain text as a paragraph. Without this option, blank lines "
            "separate paragraphs.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    attributes: Annotated[
        bool,
        typer.Option(
            "--attributes",
            help="Also translate the attributes of HTML that people read: alt, title, placeholder, "
            "aria-label, and the description of the page.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    target_language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="The language of the translation, such as de, to write in <html lang>.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file for the translation, or the folder for the translations of several "
            "documents. Default: standard output.",
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
    """Translate documents sentence by sentence, and keep their markup.

    Requires the extra `documents`. See docs/documents.md.
    """
    settings = search_settings(setting, beam_size)
    terms = glossary_argument(glossary)
    outputs = _outputs(files, output, as_json)
    for path in outputs:
        check_output(path, force)
    check_settings(model, settings)
    documents = [
        _read_document(file, format, path) for file, path in zip(files, outputs, strict=True)
    ]
    translator = open_translator(model)
    for document in documents:
        text = document.text.removeprefix(BYTE_ORDER_MARK)
        translation = translator.translate_document(
            text,
            document.format,
            language=language,
            lines=lines,
            attention_layer=attention_layer,
            attributes=attributes,
            target_language=target_language,
            **settings,
            **terms,
        )
        byte_order_mark = document.text[: len(document.text) - len(text)]
        _write(translation, byte_order_mark, document.output, as_json)


def _outputs(files: Sequence[Path], output: Path | None, as_json: bool) -> list[Path | None]:
    """Return the output of each document; of several, a file of the same name in a folder.

    Raises:
        ValueError: if several documents have no folder, equal names, or one JSON object.
    """
    if len(files) == 1:
        return [output]
    count = len(files)
    if as_json:
        raise ValueError(f"--json: expected one FILE, got {count}; run the command for each FILE.")
    if output is None:
        raise ValueError(f"--output: expected a folder for {count} documents, got none; name one.")
    if output.is_file():
        raise ValueError(f"--output: expected a folder, got the file {output}; name a folder.")
    if STANDARD_INPUT in files:
        raise ValueError(f"FILE: expected - as the only document, got {count}; leave out -.")
    name, uses = Counter(file.name for file in files).most_common(1)[0]
    if uses > 1:
        raise ValueError(f"FILE: expected different names, got {uses} files {name}; rename them.")
    return [output / file.name for file in files]


def _write(
    translation: "DocumentTranslation", byte_order_mark: str, output: Path | None, as_json: bool
) -> None:
    """Write a translation, and print a warning if some of its sentences are those of the source.

    Args:
        translation: the translation.
        byte_order_mark: the beginning of the document.
        output: the file; None is standard output.
        as_json: whether to write the positions of sentences.
    """
    sentences = translation.sentences
    result = byte_order_mark + translation.text
    if as_json:
        rows = [sentence._asdict() for sentence in sentences]
        result = (
            f"{json.dumps({'text': translation.text, 'sentences': rows}, ensure_ascii=False)}\n"
        )
    if output is None:
        _print_document(result)
    else:
        with atomic_write(output) as new:
            new.write_bytes(result.encode("utf-8"))
    if kept := sum(sentence.keeps_source for sentence in sentences):
        file = "" if output is None else f" of {output}"
        print_line(
            f"warning: {kept:,} of {len(sentences):,} sentences{file} are not translated, since "
            "their translations would change the markup."
        )


def _print_document(document: str) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(escape_controls(document))
    else:
        typer.echo(document.encode("utf-8"), nl=False)


def _read_document(
    file: Path, format: DocumentFormat | None, output: Path | None
) -> SourceDocument:
    """Return a document, by default with the format of its suffix.

    Raises:
        ValueError: if the file is missing, is not UTF-8, or has an unknown suffix.
    """
    if file == STANDARD_INPUT:
        document = _decode(sys.stdin.buffer.read(), "standard input")
        return SourceDocument(document, format or DocumentFormat.TEXT, output)
    if not file.exists():
        raise ValueError(f"FILE: expected a document, got {file}, which does not exist.")
    if file.is_dir():
        raise ValueError(f"FILE: expected a document, got the folder {file}; name a file in it.")
    format = format or FORMAT_BY_SUFFIX.get(file.suffix.lower())
    if format is None:
        raise ValueError(
            f"FILE: expected one of the suffixes {', '.join(filter(None, FORMAT_BY_SUFFIX))}, got "
            f"{file}; give --format."
        )
    return SourceDocument(_decode(file.read_bytes(), str(file)), format, output)


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"FILE: expected UTF-8, got byte 0x{error.object[error.start]:02x} at position "
            f"{error.start} of {name}; convert it to UTF-8."
        ) from None
