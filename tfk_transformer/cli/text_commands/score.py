"""`tfk-transformer score`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import BadLines, Force, OnError, check_files, open_model
from tfk_transformer.cli.text_lines import line_pairs, scoring_job, write_results
from tfk_transformer.cli.text_output import check_output


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A bundle, a SavedModel folder or score.onnx.")],
    source: Annotated[Path, typer.Option(help="A UTF-8 file with one sentence per line, plain, .gz or .zst.")],
    target: Annotated[Path, typer.Option(help="A file with the translation of each line of --source.")],
    output: Annotated[
        Path | None,
        typer.Option(
            help="The file for the log-probabilities, plain, .gz or .zst, written as FILE.partial until all are there. "
            "Default: standard output."
        ),
    ] = None,
    force: Force = False,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Print one line of JSON per pair, with the log-probability of every token.")
    ] = False,
    on_error: OnError = BadLines.STOP,
) -> None:
    """Print the log-probability of given translations, one per line, in their order.

    With `--on-error blank`, the place of a pair that cannot be processed has `nan`, or with `--tokens` a JSON object with the key `error`.
    """
    check_files(source=source, target=target)
    check_output(output, force)
    write_results(scoring_job(open_model(model), tokens), line_pairs(source, target), output, on_error)
