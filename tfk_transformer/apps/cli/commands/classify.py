"""`tfk-transformer classify`."""

from pathlib import Path
from typing import Annotated, Any

from tfk_transformer.apps.cli import arguments, processing
from tfk_transformer.formats.lines import Line

CLASSIFY_EXAMPLES = """
tfk-transformer classify languages 'forty-two' 'zweiundvierzig'
# The probability of every label, as JSON, for each line of a file.
tfk-transformer classify languages -i texts.txt -o labels.jsonl --json
"""


def classify_command(
    model: arguments.Model,
    text: arguments.Texts = None,
    input: arguments.Input = None,
    as_lines: arguments.AsLines = False,
    on_error: arguments.OnError = arguments.BadLines.STOP,
    output: Annotated[Path | None, arguments.output_option("labels")] = None,
    force: arguments.Force = False,
    as_json: Annotated[bool, arguments.option(arguments.OUTPUT, "--json")] = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Classify texts, one per line, and print the most probable label of each, in the same order.
    The label of a blank line is blank.

    With `--json --on-error blank`, a line that cannot be processed becomes a JSON object with the
    key `error`.

    Args:
        as_json: Print one line of JSON per text, with the probability of every label.
    """
    processing.check_lines(input, "--input", as_lines)
    lines = processing.input_lines(text, input)
    arguments.check_input_files(input=input)
    processing.check_output(output, force)
    processing.print_terminal_hint(text, input)
    from tfk_transformer.inference.base_classifier import BaseClassifier

    classifier = arguments.open_model(model)
    if not isinstance(classifier, BaseClassifier):
        raise ValueError(
            f"MODEL: expected a classifier, got {model}, a translator; use the commands translate, "
            "translate-document or score."
        )
    output_lines = processing.json_lines(_values) if as_json else _label
    run = classifier.try_classify
    quiet = quiet or bool(text)
    processing.write_results(lines, run, output_lines, output, on_error, input=input, quiet=quiet)


def _label(line: Line) -> list[str]:
    return ["" if line.reason else line.outcome.label]


def _values(line: Line) -> dict[str, Any]:
    values = line.outcome._asdict()
    return {"text": values.pop("source"), **values}
