"""`tfk-transformer classify`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.apps.cli.arguments import (
    OUTPUT,
    BadLines,
    Force,
    Input,
    Model,
    OnError,
    Quiet,
    Texts,
    check_input_files,
    open_classifier,
)
from tfk_transformer.apps.cli.progress import progress_bar
from tfk_transformer.apps.cli.text_lines import (
    classification_job,
    input_lines,
    print_terminal_hint,
    write_results,
)
from tfk_transformer.apps.cli.text_output import check_output

EXAMPLES = """
tfk-transformer classify languages 'forty-two' 'zweiundvierzig'
# The probability of every label, as JSON, for each line of a file.
tfk-transformer classify languages -i texts.txt -o labels.jsonl --json
"""


def command(
    model: Model,
    text: Texts = None,
    input: Input = None,
    on_error: OnError = BadLines.STOP,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file for the labels: plain, .gz or .zst. It is written as FILE.partial until "
            "it is complete. "
            "Default: standard output.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    force: Force = False,
    json_output: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one line of JSON per text, with the probability of every label.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Classify texts, one per line, and print the most probable label of each, in the same order.
    The label of a blank line is blank.

    With `--json --on-error blank`, a line that cannot be processed becomes a JSON object with the
    key `error`.
    """
    texts = input_lines(text, input)
    check_input_files(input=input)
    check_output(output, force)
    print_terminal_hint(text, input)
    classifier = open_classifier(model)
    with progress_bar(input, output, 0, quiet or bool(text)) as progress:
        write_results(
            classification_job(classifier, json_output), texts, output, on_error, progress
        )
