"""`tfk-transformer score`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.apps.cli.arguments import (
    INPUT,
    OUTPUT,
    BadLines,
    Force,
    OnError,
    Quiet,
    check_input_files,
    open_translator,
)
from tfk_transformer.apps.cli.progress import progress_bar
from tfk_transformer.apps.cli.text_lines import line_pairs, scoring_job, write_results
from tfk_transformer.apps.cli.text_output import check_output

EXAMPLES = """
tfk-transformer score numbers --source numbers.en --target numbers.de
# A line of JSON for each pair, with the log-probability of every token.
tfk-transformer score numbers --source numbers.en --target numbers.de --json
"""


def command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A bundle, a SavedModel folder or score.onnx.")
    ],
    source: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="A UTF-8 file with one sentence per line: plain, .gz or .zst.",
            rich_help_panel=INPUT,
        ),
    ],
    target: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="A file with the translation of each line of --source.",
            rich_help_panel=INPUT,
        ),
    ],
    on_error: OnError = BadLines.STOP,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file for the log-probabilities: plain, .gz or .zst. It is written as "
            "FILE.partial until it is complete. "
            "Default: standard output.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    force: Force = False,
    tokens: Annotated[
        bool,
        typer.Option(
            "--tokens",
            "--json",
            help="Print one line of JSON per pair, with the log-probability of every token.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Print the log-probability of given translations, one per line, in the order of the lines.

    With `--on-error blank`, the result of a pair that cannot be processed is `nan`, or with
    `--json` an object with the key `error`.
    """
    check_input_files(source=source, target=target)
    check_output(output, force)
    scorer = open_translator(model)
    with progress_bar(source, output, 0, quiet) as progress:
        write_results(
            scoring_job(scorer, tokens), line_pairs(source, target), output, on_error, progress
        )
