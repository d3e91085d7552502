"""`tfk-transformer translate-document`."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfk_transformer.apps.cli import arguments, processing
from tfk_transformer.apps.cli.arguments import INPUT, OUTPUT, SEARCH, option
from tfk_transformer.apps.cli.main import lock_output
from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.atomic_write import atomic_write
from tfk_transformer.config.words import escape_controls
from tfk_transformer.formats.registry import DOCUMENT_FORMATS, DOCUMENT_SUFFIXES, DOCUMENTS, listed

if TYPE_CHECKING:
    from tfk_transformer.text.results import DocumentTranslation

STANDARD_INPUT = Path("-")
BYTE_ORDER_MARK = "\ufeff"
# The members are those of the table of formats, which a type checker cannot read.
DocumentFormat = StrEnum("DocumentFormat", [*DOCUMENT_FORMATS])  # type: ignore[misc]
TRANSLATE_DOCUMENT_EXAMPLES = """
tfk-transformer translate-document numbers-files/translate.onnx notes.txt
tfk-transformer translate-document numbers notes.md --output notes.de.md
# Several documents, to a folder with the same names.
tfk-transformer translate-document numbers notes.md notes.txt --output de
# The translation, and the position of every sentence in both documents.
tfk-transformer translate-document numbers notes.html --json
"""
FORMATS = listed(f"{format.title} ({format.suffixes[0]})" for format in DOCUMENTS)
FILES = f"UTF-8 documents: {FORMATS}. - is standard input."
FORMAT = (
    f"The format of FILE: {listed(DOCUMENT_FORMATS)}. Default: by the suffix of FILE; "
    f"{DOCUMENT_SUFFIXES['']} for standard input."
)


def translate_document_command(
    model: arguments.Model,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help=FILES)],
    format: Annotated[DocumentFormat | None, option(INPUT, metavar="FORMAT", help=FORMAT)] = None,
    language: Annotated[str | None, option(INPUT, metavar="CODE")] = None,
    lines: Annotated[bool, option(INPUT, "--lines")] = False,
    attributes: Annotated[bool, option(INPUT, "--attributes")] = False,
    target_language: Annotated[str | None, option(OUTPUT, metavar="CODE")] = None,
    output: Annotated[Path | None, option(OUTPUT, "--output", "-o", metavar="FILE")] = None,
    force: arguments.Force = False,
    as_json: Annotated[bool, option(OUTPUT, "--json")] = False,
    beam_size: arguments.BeamSize = None,
    setting: arguments.Settings = None,
    glossary: arguments.Glossary = None,
    attention_layer: Annotated[int | None, option(SEARCH, metavar="N")] = None,
) -> None:
    """Translate documents sentence by sentence, and keep their markup.

    Requires the extra `documents`. See docs/documents.md.

    Args:
        language: The language of FILE, such as de, for splitting FILE into sentences. Default: the
            source language of MODEL, or English.
        lines: Treat each line of a plain text as a paragraph. Without this option, blank lines
            separate paragraphs.
        attributes: Also translate the attributes of HTML that people read: alt, title, placeholder,
            aria-label, and the description of the page.
        target_language: The language of the translation, such as de, to write in <html lang>.
        output: The file for the translation, or the folder for the translations of several
            documents. Default: standard output.
        as_json: Print one JSON object: the translation, and the positions of every sentence in both
            documents.
        attention_layer: The layer of the decoder whose attention places markup, from 0; -1 is the
            last. Default: the mean of all layers.
    """
    settings = arguments.search_settings(setting, beam_size)
    terms = arguments.glossary_argument(glossary)
    outputs = _outputs(files, output, as_json)
    in_folder = len(outputs) > 1
    if in_folder:  # one lock: those of the files would keep as many files open
        lock_output(output, "--output")
    for path in outputs:
        processing.check_output(path, force, is_locked=in_folder)
    arguments.check_settings(model, settings)
    documents = [_read_document(file, format) for file in files]
    translator = arguments.open_translator(model)
    for (document, name), path in zip(documents, outputs, strict=True):
        text = document.removeprefix(BYTE_ORDER_MARK)
        translation = translator.translate_document(
            text,
            name,
            language=language,
            lines=lines,
            attention_layer=attention_layer,
            attributes=attributes,
            target_language=target_language,
            **settings,
            **terms,
        )
        _write(translation, document[: len(document) - len(text)], path, as_json)


def _outputs(files: Sequence[Path], output: Path | None, as_json: bool) -> list[Path | None]:
    """Return the output of each document; of several, a file of the same name in a folder."""
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
    """Write a translation, and warn if some of its sentences are not translated."""
    sentences = translation.sentences
    result = byte_order_mark + translation.text
    if as_json:
        rows = [sentence._asdict() for sentence in sentences]
        values = {"text": translation.text, "sentences": rows}
        result = f"{json.dumps(values, ensure_ascii=False)}\n"
    if output is not None:
        with atomic_write(output) as new:
            new.write_bytes(result.encode("utf-8"))
    elif sys.stdout.isatty():
        sys.stdout.write(escape_controls(result))
    else:
        typer.echo(result.encode("utf-8"), nl=False)
    if kept := sum(sentence.keeps_source for sentence in sentences):
        file = "" if output is None else f" of {output}"
        print_line(
            f"warning: {kept:,} of {len(sentences):,} sentences{file} are not translated, since "
            "their translations would change the markup."
        )


def _read_document(file: Path, format: str | None) -> tuple[str, str]:
    """Return a document and its format, by default by its suffix."""
    is_input = file == STANDARD_INPUT
    if not is_input and not file.exists():
        raise ValueError(f"FILE: expected a document, got {file}, which does not exist.")
    if not is_input and file.is_dir():
        raise ValueError(f"FILE: expected a document, got the folder {file}; name a file in it.")
    format = format or DOCUMENT_SUFFIXES.get("" if is_input else file.suffix.lower())
    if format is None:
        raise ValueError(
            f"FILE: expected one of the suffixes {', '.join(filter(None, DOCUMENT_SUFFIXES))}, got "
            f"{file}; give --format."
        )
    content = sys.stdin.buffer.read() if is_input else file.read_bytes()
    try:
        return content.decode("utf-8"), format
    except UnicodeDecodeError as error:
        raise ValueError(
            f"FILE: expected UTF-8, got byte 0x{content[error.start]:02x} at position "
            f"{error.start} of {'standard input' if is_input else file}; convert it to UTF-8."
        ) from None
