"""`tfk-transformer classify`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import BadLines, Force, Input, Model, OnError, Texts, check_files, open_model
from tfk_transformer.cli.text_lines import classification_job, given_texts, write_results
from tfk_transformer.cli.text_output import check_output


def command(
    model: Model,
    text: Texts = None,
    input: Input = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The file for the labels, plain, .gz or .zst, written as FILE.partial until all are there. Default: standard output."
        ),
    ] = None,
    force: Force = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per text, with the probability of every label.")
    ] = False,
    on_error: OnError = BadLines.STOP,
) -> None:
    """Classify texts, one per line, in their order, and print the most probable label of each. The label of a blank line is blank.

    With `--json --on-error blank`, the place of a line that cannot be processed has a JSON object with the key `error`.
    """
    texts = given_texts(text, input)
    check_files(input=input)
    check_output(output, force)
    write_results(classification_job(open_model(model), json_output), texts, output, on_error)
