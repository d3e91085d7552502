"""`tfk-transformer translate --document`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.atomic_write import atomic_write
from tfk_transformer.cli.arguments import OUTPUT, check_input_files, open_model

FORMAT_BY_SUFFIX = {
    ".txt": "text",
    ".text": "text",
    "": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
}
PANEL = "Whole documents"
DocumentFile = Annotated[
    Path | None,
    typer.Option(
        "--document",
        metavar="FILE",
        help=(
            "Translate a whole document: plain text (.txt), Markdown (.md) or HTML (.html), "
            "UTF-8. Requires the extra `documents`."
        ),
        rich_help_panel=PANEL,
    ),
]
Language = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="CODE",
        help=(
            "With --document: the language of FILE, such as de, by whose rules it is split into "
            "sentences. Default: en."
        ),
        rich_help_panel=PANEL,
    ),
]
LinesFlag = Annotated[
    bool,
    typer.Option(
        "--lines",
        help=(
            "With --document: each line of a plain text is a paragraph. Without it, blank lines "
            "separate paragraphs."
        ),
        rich_help_panel=PANEL,
    ),
]
TranslationJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one line of JSON per sentence, with the scores of all hypotheses. With "
        "--document: the translation, and the places of "
        "every sentence in both documents.",
        rich_help_panel=OUTPUT,
    ),
]


def write_document(
    model: Path,
    file: Path,
    output: Path | None,
    language: str | None,
    lines: bool,
    as_json: bool,
    settings: dict[str, Any],
) -> None:
    """Translate a document, and write the translation to a file or to standard output.

    Raises:
        ValueError: if the file is missing, is not UTF-8, or has an unknown suffix.
    """
    check_input_files(document=file)
    format = FORMAT_BY_SUFFIX.get(file.suffix.lower())
    if format is None:
        raise ValueError(
            "--document: expected a file with one of the suffixes "
            f"{', '.join(filter(None, FORMAT_BY_SUFFIX))}, got {file}."
        )
    mark, text = _read(file)
    translation = open_model(model).translate_document(
        text, format, language=language or "en", lines=lines, **settings
    )
    if as_json:
        sentences = [sentence._asdict() for sentence in translation.sentences]
        text = json.dumps({"text": translation.text, "sentences": sentences}, ensure_ascii=False)
        _write(f"{text}\n", output)
    else:
        _write(mark + translation.text, output)


def check_document(file: Path | None, language: str | None, lines: bool, **options: object) -> None:
    """Refuse options that require --document, and options that cannot be combined with it.

    Raises:
        ValueError: if one of these options is set.
    """
    if file is None:
        excluded: dict[str, object] = {"--language": language, "--lines": lines}
        problem = "expected --document FILE with it, got none"
    else:
        excluded = {
            "TEXT" if name == "text" else f"--{name}": value for name, value in options.items()
        }
        problem = "expected none with --document, got one"
    for name, value in excluded.items():
        if value:
            raise ValueError(f"{name}: {problem}; leave it out.")


def _read(file: Path) -> tuple[str, str]:
    """Return the byte order mark of a file or "", and its text."""
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"--document: expected UTF-8, got byte 0x{error.object[error.start]:02x} at place "
            f"{error.start} of {file}."
        ) from None
    plain = text.removeprefix("\ufeff")
    return text[: len(text) - len(plain)], plain


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text.encode("utf-8"), nl=False)
    else:
        with atomic_write(output) as new:
            new.write_bytes(text.encode("utf-8"))
