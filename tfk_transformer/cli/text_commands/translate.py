"""`tfk-transformer translate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.cli.arguments import (
    DEFAULT_BEAM,
    INPUT,
    OUTPUT,
    SEARCH,
    BadLines,
    Input,
    Model,
    OnError,
    Quiet,
    Settings,
    Texts,
    check_input_files,
    check_settings,
    open_model,
    search_settings,
)
from tfk_transformer.cli.progress import progress_bar
from tfk_transformer.cli.text_commands.conversation import converse, is_interactive
from tfk_transformer.cli.text_commands.documents import (
    DocumentFile,
    Language,
    LinesFlag,
    TranslationJson,
    check_document,
    write_document,
)
from tfk_transformer.cli.text_lines import (
    check_stream,
    input_lines,
    print_streams,
    print_terminal_hint,
    translation_job,
    write_results,
)
from tfk_transformer.cli.text_output import (
    check_output,
    is_resumable,
    model_digest,
    nothing_to_resume,
    resumable_output,
)
from tfk_transformer.text_files.compression import check_compression
from tfk_transformer.text_files.output_file import OutputFile
from tfk_transformer.text_files.records import Texts as PlainTexts
from tfk_transformer.text_files.records import check_hypotheses, input_records, output_records
from tfk_transformer.text_files.unfinished import content_digest

EXAMPLES = """
# Type sentences, and get each translation at once.
tfk-transformer translate numbers-files/translate.onnx
tfk-transformer translate numbers-files/translate.onnx 'forty-two' 'seven'
tfk-transformer translate numbers -i numbers.en -o numbers.out
# The three best translations with their scores.
tfk-transformer translate numbers 'forty-two' --setting n_best=3
"""


def command(
    model: Model,
    text: Texts = None,
    input: Input = None,
    field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The column of a .tsv file, or the value of a .jsonl file, that holds the texts "
            "of --input. A number is that of a column "
            "in a table without names.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    on_error: OnError = BadLines.STOP,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file for the translations: plain, .gz or .zst. It is written as FILE.partial "
            "until it is complete. "
            "Default: standard output.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    output_field: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The column or value for the translations in an --output of .tsv or .jsonl.",
            rich_help_panel=OUTPUT,
        ),
    ] = "translation",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help=(
                "Continue an interrupted run from --input to --output. Starts one if there is none."
            ),
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace an --output that exists, or an unfinished run.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    as_json: TranslationJson = False,
    beam_size: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of hypotheses that the search keeps for each sentence; 1 is greedy "
            "search. "
            f"Default: {DEFAULT_BEAM}, or 1 with --stream.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    setting: Settings = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The forced beginning of every translation.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Terms with their translations, which are forced: on each line a source term, a "
                "tab and its translation, UTF-8."
            ),
            rich_help_panel=SEARCH,
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Print each translation token by token, by greedy search or by sampling.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    document: DocumentFile = None,
    language: Language = None,
    lines: LinesFlag = False,
    quiet: Quiet = False,
) -> None:
    """Translate sentences, one per line, in the order of the lines. The translation of a blank line
    is blank.

    Without TEXT and --input, on a terminal, translate what you type: a prompt with history, in
    which :set NAME=VALUE changes a search setting and :quit ends.

    With `--setting n_best=N`, print N lines per sentence, best first: NUMBER ||| TRANSLATION |||
    SCORE. Sentences are numbered from 0. With `--on-error skip`, the numbers of skipped sentences
    are missing; with `--on-error blank`, their lines are NUMBER |||  ||| nan.
    """
    check_document(
        document,
        language,
        lines,
        text=text,
        input=input,
        prefix=prefix,
        field=field,
        stream=stream,
        resume=resume,
    )
    settings = search_settings(setting, beam_size, 1 if stream else DEFAULT_BEAM)
    terms = _terms(glossary, stream)
    if document is not None:
        check_output(output, force)
        check_settings(model, settings)
        write_document(model, document, output, language, lines, as_json, {**settings, **terms})
        return
    if stream:
        check_stream(output, prefix)
    records = input_records(input, field, output_field)
    texts = input_lines(text, input, records)
    check_input_files(input=input)
    check_compression(input)
    results = output_records(records, input, output)
    check_hypotheses(settings, records, results)
    _check_json(as_json, stream, results)
    if nothing_to_resume(input, output, resume, force):
        return
    check_settings(model, settings)
    out: OutputFile | Path | None = output
    if output is not None and is_resumable(input, output):
        run: dict[str, Any] = {
            "model": model_digest(model),
            "settings": settings,
            "prefix": prefix,
            "field": field,
            "output_field": output_field,
            "glossary": None if glossary is None else content_digest(glossary),
            **({"json": True} if as_json else {}),
            "records": type(results).__name__,
            "on_error": on_error.value,
        }
        out = resumable_output(output, resume, run)
    if not as_json and is_interactive(text, input, output):
        converse(open_model(model), {**settings, **terms}, prefix, stream)
        return
    print_terminal_hint(text, input)
    translator = open_model(model)
    if stream:
        print_streams(translator, texts, settings, on_error)
        return
    job = translation_job(translator, prefix, {**settings, **terms}, results, as_json)
    done = out.done.lines if isinstance(out, OutputFile) else 0
    with progress_bar(input, output, done, quiet) as progress:
        write_results(job, texts, out, on_error, progress)


def _check_json(as_json: bool, stream: bool, records: PlainTexts) -> None:
    """Refuse --json with --stream, and with tables or JSON lines as input or output.

    Raises:
        ValueError: if --json is refused.
    """
    if as_json and stream:
        raise ValueError("--json: expected no --stream, which prints text; leave out either.")
    if as_json and type(records) is not PlainTexts:
        raise ValueError(
            "--json: expected an --input and an --output of plain lines, got records of .tsv or "
            ".jsonl; leave it out."
        )


def _terms(glossary: Path | None, stream: bool) -> dict[str, Any]:
    """Return the glossary as an argument of `translate`, or no arguments without a glossary."""
    if glossary is None:
        return {}
    if stream:
        raise ValueError(
            "--stream: expected no --glossary, since a stream cannot be taken back; leave out "
            "either."
        )
    check_input_files(glossary=glossary)
    from tfk_transformer.glossary.terms import Glossary

    return {"glossary": Glossary.read(glossary)}
