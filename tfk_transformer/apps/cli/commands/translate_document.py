"""`tfk-transformer translate-document`."""

import dataclasses
import functools
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfk_transformer.apps.cli import arguments, processing
from tfk_transformer.apps.cli.arguments import INPUT, OUTPUT, SEARCH, option
from tfk_transformer.apps.cli.document_folder import (
    PROGRAM_FILES,
    DocumentError,
    FileRecord,
    OtherFiles,
    OutputFolder,
    folder_files,
)
from tfk_transformer.apps.cli.main import lock_output
from tfk_transformer.apps.cli.terminal import print_line, print_report, progress_bar
from tfk_transformer.atomic_write import atomic_write
from tfk_transformer.config.words import escape_controls, shorten
from tfk_transformer.formats.output_file import content_digest
from tfk_transformer.formats.registry import DOCUMENT_FORMATS, DOCUMENT_SUFFIXES, DOCUMENTS, listed

if TYPE_CHECKING:
    from tfk_transformer.inference.base_translator import BaseTranslator
    from tfk_transformer.text.results import DocumentTranslation

STANDARD_INPUT = Path("-")
NO_LINE = 0  # in place of the line of a sentence, in documents without lines
BYTE_ORDER_MARK = "\ufeff"
KEPT = "not translated, since their translations would change the markup"
MAX_SHOWN = 20  # lines of a list in a report
MAX_BEGINNING = 60  # characters of a sentence in a report
# The members are those of the table of formats, which a type checker cannot read.
DocumentFormat = StrEnum("DocumentFormat", [*DOCUMENT_FORMATS])  # type: ignore[misc]
TRANSLATE_DOCUMENT_EXAMPLES = """
tfk-transformer translate-document numbers-files/translate.onnx notes.txt
tfk-transformer translate-document numbers notes.md --output notes.de.md
# A folder. After a change or an interruption, run it again.
tfk-transformer translate-document numbers docs --output docs-de
# The translation, and the position of every sentence in both documents.
tfk-transformer translate-document numbers notes.html --json
"""
FORMATS = listed(f"{format.title} ({format.suffixes[0]})" for format in DOCUMENTS)
FILES = f"Documents: {FORMATS}; or folders of documents. Text is in UTF-8. - is standard input."
FORMAT = (
    f"The format of FILE: {listed(DOCUMENT_FORMATS)}. Default: by the suffix of FILE; "
    f"{DOCUMENT_SUFFIXES['']} for standard input."
)
EXCLUDE = (
    "Documents of folders that are not translated, by name or path, such as 'api/*'. May be "
    f"repeated. Always excluded: {', '.join(PROGRAM_FILES)}, and files without a suffix."
)


def translate_document_command(
    model: arguments.Model,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help=FILES)],
    format: Annotated[DocumentFormat | None, option(INPUT, metavar="FORMAT", help=FORMAT)] = None,
    exclude: Annotated[list[str] | None, option(INPUT, metavar="PATTERN", help=EXCLUDE)] = None,
    language: Annotated[str | None, option(INPUT, metavar="CODE")] = None,
    lines: Annotated[bool, option(INPUT, "--lines")] = False,
    attributes: Annotated[bool, option(INPUT, "--attributes")] = False,
    front_matter: Annotated[
        list[str] | None, option(INPUT, "--front-matter", metavar="KEY")
    ] = None,
    field: Annotated[list[str] | None, option(INPUT, "--field", metavar="NAME")] = None,
    target_language: Annotated[str | None, option(OUTPUT, metavar="CODE")] = None,
    output: Annotated[Path | None, option(OUTPUT, "--output", "-o", metavar="FILE")] = None,
    other_files: Annotated[OtherFiles, option(OUTPUT, metavar="ACTION")] = OtherFiles.COPY,
    force: arguments.Force = False,
    as_json: Annotated[bool, option(OUTPUT, "--json")] = False,
    beam_size: arguments.BeamSize = None,
    setting: arguments.Settings = None,
    glossary: arguments.Glossary = None,
    attention_layer: Annotated[int | None, option(SEARCH, metavar="N")] = None,
    quiet: arguments.Quiet = False,
) -> None:
    """Translate documents sentence by sentence, and keep their markup.

    A folder is translated to a folder with the same tree, without hidden folders. Another run
    continues after an interruption, and skips a file if its source, the model and the settings are
    unchanged. It never replaces a translation that a person has edited.

    Requires the extra `documents`. See docs/documents.md.

    Args:
        language: The language of FILE, such as de, for splitting FILE into sentences. Default: the
            source language of MODEL, or English.
        lines: Treat each line of a plain text as a paragraph. Without this option, blank lines
            separate paragraphs.
        attributes: Also translate the attributes of HTML that people read: alt, title, placeholder,
            aria-label, and the description of the page.
        front_matter: Also translate this value of front matter, such as title. Repeatable.
        field: A column of a table to translate: its name in the first row, or its number from 1 in
            a table without names. Repeatable.
        target_language: The language of the translation, such as de, to write in <html lang>, or in
            the header of a PO, XLIFF or ARB file.
        output: The file for the translation, or the folder for the translations of a folder or of
            several documents. Default: standard output.
        other_files: The action for files of a folder that are not translated, and for documents
            that cannot be read: copy, link (make a symbolic link to the source) or omit.
        as_json: Print one JSON object: the translation, and the positions of every sentence in both
            documents; for a folder, the report.
        attention_layer: The layer of the decoder whose attention places markup, from 0; -1 is the
            last. Default: the mean of all layers.
    """
    settings = arguments.search_settings(setting, beam_size)
    work = _Work(
        model,
        {"language": language, "attention_layer": attention_layer, **settings},
        arguments.glossary_argument(glossary),
        {
            "lines": lines,
            "attributes": attributes,
            "target_language": target_language,
            "front_matter": front_matter or (),
            "fields": field or (),
        },
    )
    if len(files) == 1 and not files[0].is_dir():
        processing.check_output(output, force)
        arguments.check_settings(model, settings)
        _translate_file(work, files[0], _format_of(files[0], format), output, as_json, quiet)
        return
    if STANDARD_INPUT in files:
        raise ValueError(f"FILE: expected - as the only document, got {len(files)}; leave out -.")
    if output is None or output.is_file():
        raise ValueError(
            f"--output: expected a folder for the translations, got {output or 'none'}; name one."
        )
    lock_output(output, "--output")
    arguments.check_settings(model, settings)
    formats = [None if file.is_dir() else _format_of(file, format) for file in files]
    base, folder_sources, left_out = folder_files(files, output, formats, exclude or [])
    folder = OutputFolder(output, base, folder_sources, other_files, force)
    digests = {
        "model": processing.model_digest(model),
        "glossary": None if glossary is None else content_digest(glossary),
    }
    values = {**work.options, **work.format_options, **digests}
    report = {**_translate_folder(work, folder, values, quiet), "left_out": left_out}
    print_report(report, _report_lines(report), as_json)
    if count := len(report["problems"]):
        raise ValueError(f"FILE: expected no problems, got {count:,}, which the report names.")


@dataclasses.dataclass(frozen=True)
class _Work:
    """How documents are translated."""

    model: Path
    options: dict[str, Any]
    terms: dict[str, Any]  # the argument `glossary`, if there is one
    format_options: dict[str, Any]  # options of some formats

    @functools.cached_property
    def translator(self) -> "BaseTranslator":
        """The translator, opened when a document needs it."""
        return arguments.open_translator(self.model)

    def translate(
        self, document: str | bytes, file: str, format: str, options: dict[str, Any]
    ) -> tuple["DocumentTranslation", bytes, list[int]]:
        """Return a translation, the content of its file, and the line of each sentence.

        Raises:
            DocumentError: if the document cannot be read.
        """
        text = document if isinstance(document, bytes) else document.removeprefix(BYTE_ORDER_MARK)
        options = {**self.options, **self.terms, **options}
        try:
            translation = self.translator.translate_document(text, format, **options)
        except ValueError as error:
            argument, _, problem = str(error).partition(": ")
            if argument != "text":  # an argument of all documents
                raise
            raise DocumentError(f"{file}: {problem}") from error
        if isinstance(text, bytes):
            return translation, translation.data, [NO_LINE] * len(translation.sentences)
        positions = [0, *(sentence.source_start for sentence in translation.sentences)]
        breaks = (text.count("\n", *span) for span in itertools.pairwise(positions))
        lines = list(itertools.accumulate(breaks, initial=1))[1:]
        result = BYTE_ORDER_MARK[: len(document) - len(text)] + translation.text
        return translation, result.encode("utf-8"), lines


def _translate_file(
    work: _Work, file: Path, format: str, output: Path | None, as_json: bool, quiet: bool
) -> None:
    """Write the translation of one document, and name the sentences that are not translated."""
    name = "standard input" if file == STANDARD_INPUT else str(file)
    content = sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
    document = _decode(content, name, format)
    if DOCUMENT_FORMATS[format].is_office and (as_json or (output is None and sys.stdout.isatty())):
        raise ValueError(
            f"--output: expected a file for format {format}, which is not text; name one, and "
            "leave out --json."
        )
    _ = work.translator  # before the bar is shown
    with progress_bar("sentences", quiet, total=0, transient=True):
        translation, result, lines = work.translate(document, name, format, work.format_options)
    if as_json:
        sentences = zip(translation.sentences, lines, strict=True)
        rows = [{**sentence._asdict(), "line": line} for sentence, line in sentences]
        values = {"text": translation.text, "sentences": rows}
        result = f"{json.dumps(values, ensure_ascii=False)}\n".encode()
    if output is not None:
        with atomic_write(output) as new:
            new.write_bytes(result)
    elif sys.stdout.isatty():
        sys.stdout.write(escape_controls(result.decode()))
    else:
        typer.echo(result, nl=False)
    if kept := _kept(translation, lines):
        print_line(f"warning: {len(kept):,} of {len(lines):,} sentences are {KEPT}:")
        for row in _first([f"{_location(name, line)}: {text}" for line, text in kept]):
            print_line(row)


def _translate_folder(
    work: _Work, folder: OutputFolder, settings: dict[str, Any], quiet: bool
) -> dict[str, Any]:
    """Translate the documents of a folder, copy its other files, and return a report."""
    waiting, problems = folder.waiting(settings)
    documents = sum(file.format is not None for file in waiting)
    if documents:
        _ = work.translator  # before the folder is written
    unchanged = len(folder.files) - len(waiting) - len(problems)
    copied = "linked" if folder.other_files is OtherFiles.LINK else "copied"
    actions = Counter(
        {"translated": 0, copied: 0, "unchanged": unchanged, "refused": len(problems)}
    )
    read = sentences = 0
    with folder, progress_bar("sentences", quiet, total=0, transient=True) as show:
        for file, record in waiting.items():
            show(sentences, sentences * documents // max(1, read), f"{read:,}/{documents:,} files")
            try:
                if file.format is None:
                    folder.write(file, record)
                    actions[copied] += 1
                    continue
                read += 1
                document = _decode(file.source.read_bytes(), str(file.source), file.format)
                names = DOCUMENT_FORMATS[file.format].options
                options = {name: work.format_options[name] for name in names}
                translation, result, lines = work.translate(
                    document, str(file.source), file.format, options
                )
                kept = _kept(translation, lines)
                folder.write(file, record._replace(sentences=len(lines), kept=kept), result)
                actions["translated"] += 1
                sentences += len(lines)
            except (DocumentError, OSError) as error:
                problems.append(str(error))
                folder.write_refused(file)
                actions["refused"] += 1
    records = [(file, folder.records.get(file.name, FileRecord())) for file in folder.files]
    kept_rows = [(file, row) for file, record in records for row in record.kept]
    return {
        "files": actions,
        "sentences": sum(record.sentences for _, record in records),
        "kept": [f"{_location(file.source, line)}: {text}" for file, (line, text) in kept_rows],
        "without_source": folder.without_source(),
        "problems": problems,
    }


def _report_lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the report of a folder for people."""
    files, sentences, kept = report["files"], report["sentences"], len(report["kept"])
    counts = ", ".join(f"{count:,} {action}" for action, count in files.items() if count)
    yield f"files      {files.total():,}: {counts}"
    yield f"sentences  {sentences:,}: {sentences - kept:,} translated, {kept:,} kept as source"
    for name, title in (
        ("kept", f"Sentences that are {KEPT}"),
        ("left_out", "Left out"),
        ("without_source", "Translations whose source is gone; delete them"),
        ("problems", "Documents with problems"),
    ):
        if report[name]:
            yield f"{title}:"
            yield from _first(report[name])


def _location(file: object, line: int) -> str:
    return str(file) if line == NO_LINE else f"{file}:{line}"


def _first(rows: Sequence[str]) -> list[str]:
    """Return the first rows of a list, and the number of the others."""
    shown = [f"  {row}" for row in rows[:MAX_SHOWN]]
    return shown if len(rows) <= MAX_SHOWN else [*shown, f"  and {len(rows) - MAX_SHOWN:,} more"]


def _kept(translation: "DocumentTranslation", lines: Sequence[int]) -> list[tuple[int, str]]:
    """Return the line and the beginning of each sentence that is not translated."""
    return [
        (line, shorten(" ".join(sentence.source.split()), MAX_BEGINNING))
        for sentence, line in zip(translation.sentences, lines, strict=True)
        if sentence.keeps_source
    ]


def _format_of(file: Path, format: str | None) -> str:
    """Return the format of a document, by default by its suffix."""
    is_input = file == STANDARD_INPUT
    if not is_input and not file.exists():
        raise ValueError(f"FILE: expected a document, got {file}, which does not exist.")
    format = format or DOCUMENT_SUFFIXES.get("" if is_input else file.suffix.lower())
    if format is None:
        raise ValueError(
            f"FILE: expected one of the suffixes {', '.join(filter(None, DOCUMENT_SUFFIXES))}, got "
            f"{file}; give --format."
        )
    return format


def _decode(content: bytes, file: str, format: str) -> str | bytes:
    """Return the text of a document; the content of one that is not text."""
    if DOCUMENT_FORMATS[format].is_office:
        return content
    try:
        text = content.decode("utf-8")
        position, problem = content.find(0), "expected text, got the character NUL"
    except UnicodeDecodeError as error:
        position, problem = error.start, f"expected UTF-8, got byte 0x{content[error.start]:02x}"
    if position < 0:
        return text
    line = content.count(b"\n", 0, position) + 1
    column = position - content.rfind(b"\n", 0, position)
    raise DocumentError(f"{file}:{line}: {problem} at column {column}; convert it to UTF-8.")
