"""`tfk-transformer score`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import BadLines, OnError, check_files, open_model
from tfk_transformer.cli.text_lines import line_pairs, score_lines, write_lines


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A bundle, a SavedModel folder or score.onnx.")],
    source: Annotated[Path, typer.Option(help="A UTF-8 file with one sentence per line.")],
    target: Annotated[Path, typer.Option(help="A file with the translation of each line of --source.")],
    output: Annotated[
        Path | None,
        typer.Option(help="The file for the log-probabilities, written as FILE.partial until all are there. Default: standard output."),
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Print one line of JSON per pair, with the log-probability of every token.")
    ] = False,
    on_error: OnError = BadLines.STOP,
) -> None:
    """Print the log-probability of given translations, one per line, in their order.

    With `--on-error blank`, the place of a pair that cannot be processed has `nan`, or with `--tokens` a JSON object with the key `error`.
    """
    check_files(source=source, target=target)
    write_lines(score_lines(open_model(model), line_pairs(source, target), tokens, on_error), output)
