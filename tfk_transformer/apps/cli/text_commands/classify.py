"""`tfk-transformer classify`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

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
from tfk_transformer.apps.cli.processing import (
    Job,
    input_lines,
    json_line,
    print_terminal_hint,
    write_results,
)
from tfk_transformer.apps.cli.progress import progress_bar
from tfk_transformer.apps.cli.text_options import option, output_option
from tfk_transformer.apps.cli.text_output import check_output
from tfk_transformer.formats.lines import Line

EXAMPLES = """
tfk-transformer classify languages 'forty-two' 'zweiundvierzig'
# The probability of every label, as JSON, for each line of a file.
tfk-transformer classify languages -i texts.txt -o labels.jsonl --json
"""
JSON = "Print one line of JSON per text, with the probability of every label."


def command(
    model: Model,
    text: Texts = None,
    input: Input = None,
    on_error: OnError = BadLines.STOP,
    output: Annotated[Path | None, output_option("labels")] = None,
    force: Force = False,
    as_json: Annotated[bool, option(OUTPUT, JSON, "--json")] = False,
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
    job = Job(classifier.try_classify, _json_line if as_json else _label_line)
    with progress_bar(input, output, 0, quiet or bool(text)) as progress:
        write_results(job, texts, output, on_error, progress)


def _label_line(line: Line) -> Iterator[str]:
    yield "" if line.reason else line.outcome.label


def _json_line(line: Line) -> Iterator[str]:
    if line.reason:
        yield json_line(error=line.problem)
        return
    result = line.outcome
    yield json_line(
        text=result.source,
        label=result.label,
        probability=result.probability,
        probabilities=result.probabilities,
    )
