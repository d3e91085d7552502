"""`tfk-transformer translate`."""

from pathlib import Path
from typing import Annotated

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
from tfk_transformer.cli.text_lines import given_texts, print_streams, translation_lines, write_lines


def command(
    model: Model,
    text: Texts = None,
    input: Input = None,
    output: Annotated[
        Path | None,
        typer.Option(help="The file for the translations, written as FILE.partial until all are there. Default: standard output."),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="The forced beginning of every translation.")] = None,
    beam_size: Annotated[
        int | None,
        typer.Option(help=f"The hypotheses kept per sentence; 1 is greedy search. Default: {DEFAULT_BEAM}, or 1 with --stream."),
    ] = None,
    setting: Settings = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each translation while it is decoded, greedily or sampled.")] = False,
    on_error: OnError = BadLines.STOP,
) -> None:
    """Translate sentences, one per line, in their order. The translation of a blank line is blank.

    With `--setting n_best=N`, print N lines per sentence, best first: NUMBER ||| TRANSLATION ||| SCORE. Sentences are numbered from 0.
    With `--on-error skip`, the numbers of skipped sentences are missing; with `--on-error blank`, their lines are NUMBER |||  ||| nan.
    """
    settings = search_settings(setting, beam_size, 1 if stream else DEFAULT_BEAM)
    texts = given_texts(text, input)
    check_files(input=input)
    check_settings(model, settings)
    translator = open_model(model)
    if stream:
        print_streams(translator, texts, prefix, settings, output, on_error)
    else:
        write_lines(translation_lines(translator, texts, prefix, settings, on_error), output)
