"""`tfk-transformer score`."""

import math
from collections.abc import Iterator
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
from tfk_transformer.apps.cli.processing import Job, json_line, line_pairs, write_results
from tfk_transformer.apps.cli.progress import progress_bar
from tfk_transformer.apps.cli.text_options import option, output_option
from tfk_transformer.apps.cli.text_output import check_output
from tfk_transformer.formats.lines import Line

EXAMPLES = """
tfk-transformer score numbers --source numbers.en --target numbers.de
# A line of JSON for each pair, with the log-probability of every token.
tfk-transformer score numbers --source numbers.en --target numbers.de --json
"""


MODEL = "A bundle, a SavedModel folder or score.onnx."
SOURCE = "A UTF-8 file with one sentence per line: plain, .gz or .zst."
TARGET = "A file with the translation of each line of --source."
TOKENS = "Print one line of JSON per pair, with the log-probability of every token."


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL)],
    source: Annotated[Path, option(INPUT, SOURCE, metavar="FILE")],
    target: Annotated[Path, option(INPUT, TARGET, metavar="FILE")],
    on_error: OnError = BadLines.STOP,
    output: Annotated[Path | None, output_option("log-probabilities")] = None,
    force: Force = False,
    tokens: Annotated[bool, option(OUTPUT, TOKENS, "--tokens", "--json")] = False,
    quiet: Quiet = False,
) -> None:
    """Print the log-probability of given translations, one per line, in the order of the lines.

    With `--on-error blank`, the result of a pair that cannot be processed is `nan`, or with
    `--json` an object with the key `error`.
    """
    check_input_files(source=source, target=target)
    check_output(output, force)
    scorer = open_translator(model)
    job = Job(scorer.try_score_tokens, _token_line if tokens else _score_line)
    with progress_bar(source, output, 0, quiet) as progress:
        write_results(job, line_pairs(source, target), output, on_error, progress)


def _score_line(line: Line) -> Iterator[str]:
    yield f"{math.nan if line.reason else line.outcome.log_probability:.6f}"


def _token_line(line: Line) -> Iterator[str]:
    if line.reason:
        yield json_line(error=line.problem)
        return
    scored = line.outcome
    yield json_line(
        source=line.texts[0],
        target=scored.text,
        log_probability=round(scored.log_probability, 6),
        tokens=scored.tokens,
        token_log_probs=[round(value, 6) for value in scored.token_log_probs],
    )
