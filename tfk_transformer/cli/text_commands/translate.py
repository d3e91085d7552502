"""`tfk-transformer translate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.cli.arguments import (
    DEFAULT_BEAM,
    BadLines,
    Input,
    Model,
    OnError,
    Settings,
    Texts,
    check_files,
    check_settings,
    open_model,
    search_settings,
)
from tfk_transformer.cli.progress import progress_bar
from tfk_transformer.cli.text_commands.documents import DocumentFile, DocumentJson, Language, LinesFlag, check_document, write_document
from tfk_transformer.cli.text_lines import given_texts, print_streams, translation_job, write_results
from tfk_transformer.cli.text_output import check_output, is_resumable, model_digest, nothing_to_resume, resumable_output
from tfk_transformer.text_files.compression import check_compression
from tfk_transformer.text_files.output_file import OutputFile
from tfk_transformer.text_files.records import check_hypotheses, input_records, output_records
from tfk_transformer.text_files.unfinished import content_digest


def command(
    model: Model,
    text: Texts = None,
    input: Input = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The file for the translations, plain, .gz or .zst, written as FILE.partial until all are there. Default: standard output."
        ),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(
            help="Where the texts are in an --input with the end .tsv or .jsonl: the name of the column or value. A number is that of a "
            "column in a table without names."
        ),
    ] = None,
    output_field: Annotated[
        str, typer.Option(help="The name of the column or value for the translations in an --output with the end .tsv or .jsonl.")
    ] = "translation",
    prefix: Annotated[str | None, typer.Option(help="The forced beginning of every translation.")] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Terms that translations contain: a source term, a tab and its translation in each line, UTF-8."),
    ] = None,
    beam_size: Annotated[
        int | None,
        typer.Option(help=f"The hypotheses kept per sentence; 1 is greedy search. Default: {DEFAULT_BEAM}, or 1 with --stream."),
    ] = None,
    setting: Settings = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each translation while it is decoded, greedily or sampled.")] = False,
    on_error: OnError = BadLines.STOP,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run from --input to --output. Starts one if there is none.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an --output that exists, or an unfinished run.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")] = False,
    document: DocumentFile = None,
    language: Language = None,
    lines: LinesFlag = False,
    as_json: DocumentJson = False,
) -> None:
    """Translate sentences, one per line, in their order. The translation of a blank line is blank.

    With `--setting n_best=N`, print N lines per sentence, best first: NUMBER ||| TRANSLATION ||| SCORE. Sentences are numbered from 0.
    With `--on-error skip`, the numbers of skipped sentences are missing; with `--on-error blank`, their lines are NUMBER |||  ||| nan.
    """
    check_document(document, language, lines, as_json, text=text, input=input, prefix=prefix, field=field, stream=stream, resume=resume)
    settings = search_settings(setting, beam_size, 1 if stream else DEFAULT_BEAM)
    terms = _terms(glossary, stream)
    if document is not None:
        check_output(output, force)
        check_settings(model, settings)
        write_document(model, document, output, language, lines, as_json, {**settings, **terms})
        return
    records = input_records(input, field, output_field)
    texts = given_texts(text, input, records)
    check_files(input=input)
    check_compression(input)
    written = output_records(records, input, output)
    check_hypotheses(settings, records, written)
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
        }
        run["glossary"] = None if glossary is None else content_digest(glossary)
        out = resumable_output(output, resume, {**run, "records": type(written).__name__, "on_error": on_error.value})
    translator = open_model(model)
    if stream:
        print_streams(translator, texts, prefix, settings, output, on_error)
        return
    job = translation_job(translator, prefix, {**settings, **terms}, written)
    done = out.done.lines if isinstance(out, OutputFile) else 0
    with progress_bar(input, output, done, quiet) as progress:
        write_results(job, texts, out, on_error, progress)


def _terms(glossary: Path | None, stream: bool) -> dict[str, Any]:
    """Return the argument of `translate` for a glossary, if there is one."""
    if glossary is None:
        return {}
    if stream:
        raise ValueError("--stream: expected no --glossary, since a stream cannot be taken back; leave out either.")
    check_files(glossary=glossary)
    from tfk_transformer.glossary.terms import Glossary

    return {"glossary": Glossary.read(glossary)}
