"""`tfk-transformer classify`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import BadLines, Input, Model, OnError, Texts, check_files, open_model
from tfk_transformer.cli.text_lines import classification_lines, given_texts, write_lines


def command(
    model: Model,
    text: Texts = None,
    input: Input = None,
    output: Annotated[
        Path | None, typer.Option(help="The file for the labels, written as FILE.partial until all are there. Default: standard output.")
    ] = None,
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
    write_lines(classification_lines(open_model(model), texts, json_output, on_error), output)
