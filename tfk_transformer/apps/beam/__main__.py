"""`python -m tfk_transformer.beam`: translate JSON lines with Apache Beam."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.apps.cli.arguments import DEFAULT_BEAM, Settings, search_settings
from tfk_transformer.apps.cli.help_pages import help_of
from tfk_transformer.apps.cli.main import USER_ERRORS, print_error
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
from tfk_transformer.formats.lines import JsonObjects
from tfk_transformer.formats.registry import check_hypotheses

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}  # the options of Beam


def command(
    context: typer.Context,
    model: Annotated[Path, typer.Option()],
    input: Annotated[str, typer.Option(metavar="PATTERN")],
    output: Annotated[str, typer.Option(metavar="FOLDER")],
    runner: Annotated[str, typer.Option()] = "FnApiRunner",
    field: Annotated[str, typer.Option()] = "text",
    output_field: Annotated[str, typer.Option()] = "translation",
    score_field: Annotated[str, typer.Option()] = "score",
    beam_size: Annotated[
        int | None,
        typer.Option(
            help=f"The hypotheses kept per sentence; 1 is greedy search. Default: {DEFAULT_BEAM}."
        ),
    ] = None,
    setting: Settings = None,
    split_sentences: Annotated[bool | None, typer.Option(show_default=False)] = None,
    language: Annotated[str | None, typer.Option(metavar="CODE")] = None,
    share_model: Annotated[bool, typer.Option("--share-model")] = False,
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    texts: Annotated[int, typer.Option(min=1)] = 1024,
) -> None:
    """Translate the texts in JSON lines with Apache Beam: each line comes out with its translation
    and score. Their order changes.

    A line that cannot be processed does not stop the run. It goes to bad-lines-*.jsonl with its
    file and the reason.

    All other options are Beam's, such as --direct_num_workers 2 --direct_running_mode
    multi_processing.

    Args:
        model: An ONNX file that takes text. It has the same path on every worker.
        input: Files of JSON lines, plain or compressed, as in 'in/*.jsonl'.
        output: The folder for translations-*.jsonl, and for bad-lines-*.jsonl if there are bad
            lines.
        runner: Beam's runner: FnApiRunner on this machine, FlinkRunner, SparkRunner and others.
        field: The name of the value with the text.
        output_field: The name of the new value for the translation.
        score_field: The name of the new value for its score.
        split_sentences: Translate the sentences of each text separately, or let the model read each
            text as one sentence. Default: as the model is used, usually separately.
        language: The ISO 639 code of the language of the texts, for the ends of sentences. Default:
            the source language of the model, or English.
        share_model: Open the model once per machine, not once per process: less memory, slower.
        threads: Threads of each open model. Default: 1, or the processors with --share-model.
        texts: Texts that are collected and sorted by length before they are translated.
    """
    # The shell may have replaced a pattern by the names of files, for example.
    stray = [
        argument
        for previous, argument in pairwise(["", *context.args])
        if not argument.startswith("-") and (not previous.startswith("--") or "=" in previous)
    ]
    if stray:
        raise ValueError(
            f"--input: expected one pattern, got also {stray[0]}; write the pattern in quotes, so "
            "that the shell leaves it."
        )
    if score_field == output_field:
        raise ValueError(
            f"--score-field: expected another name than --output-field, got {score_field}; give "
            "another name."
        )
    from tfk_transformer.apps.beam.model_handler import TranslationHandler
    from tfk_transformer.apps.beam.pipeline import run

    settings = search_settings(setting, beam_size)
    records = JsonObjects(field, output_field, score_field)
    check_hypotheses(settings, records)
    settings |= {"split_sentences": split_sentences, "language": language}
    OnnxTranslator(model, threads=1).translate([""], **settings)  # checks model and settings
    handler = TranslationHandler(model, shared=share_model, threads=threads, texts=texts)
    run([f"--runner={runner}", *context.args], input, output, handler, settings, records)


app.command(help=help_of(command), context_settings=PASS_ON)(command)


def main() -> None:
    """Run the command. An invalid input is one line on standard error, and exit status 1."""
    try:
        app(prog_name="python -m tfk_transformer.beam")
    except USER_ERRORS as error:
        print_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
