"""`tfk-transformer score`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import check_files, open_model
from tfk_transformer.cli.text_lines import line_pairs, score_lines, write_lines


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A bundle, a SavedModel folder or score.onnx.")],
    source: Annotated[Path, typer.Option(help="A UTF-8 file with one sentence per line.")],
    target: Annotated[Path, typer.Option(help="A file with the translation of each line of --source.")],
    output: Annotated[Path | None, typer.Option(help="The file for the log-probabilities. Default: standard output.")] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Print one line of JSON per pair, with the log-probability of every token.")
    ] = False,
) -> None:
    """Print the log-probability of given translations, one per line, in their order."""
    check_files(source=source, target=target)
    write_lines(score_lines(open_model(model), line_pairs(source, target), tokens), output)
