"""The commands `score` and `evaluate`, which measure translations."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfk_transformer import datasets
from tfk_transformer.apps.cli import arguments, processing
from tfk_transformer.apps.cli.arguments import INPUT, OUTPUT, option
from tfk_transformer.apps.cli.terminal import print_line, print_report, steps
from tfk_transformer.formats.lines import Line, one_line
from tfk_transformer.formats.output_file import OutputFile

if TYPE_CHECKING:
    from tfk_transformer.evaluation import Evaluation

SCORE_EXAMPLES = """
tfk-transformer score numbers --source numbers.en --target numbers.de
# A line of JSON for each pair, with the log-probability of every token.
tfk-transformer score numbers --source numbers.en --target numbers.de --json
"""
EVALUATE_EXAMPLES = """
tfk-transformer evaluate numbers --data numbers:en-de
# Chinese, by sacreBLEU's tokenizer for it.
tfk-transformer evaluate de-zh --data folder:mine:de-zh --bleu-tokenizer zh
# Print the figures as JSON, and write the translations to a file.
tfk-transformer evaluate numbers --data numbers:en-de --json -o numbers.out
"""


def score_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL")],
    source: Annotated[Path, option(INPUT, metavar="FILE")],
    target: Annotated[Path, option(INPUT, metavar="FILE")],
    as_lines: arguments.AsLines = False,
    on_error: arguments.OnError = arguments.BadLines.STOP,
    output: Annotated[Path | None, arguments.output_option("log-probabilities")] = None,
    force: arguments.Force = False,
    tokens: Annotated[bool, option(OUTPUT, "--tokens", "--json")] = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Print the log-probability of given translations, one per line, in the order of the lines.

    With `--on-error blank`, the result of a pair that cannot be processed is `nan`, or with
    `--json` an object with the key `error`.

    Args:
        model: A bundle, a SavedModel folder or score.onnx.
        source: A UTF-8 file with one sentence per line: plain, .gz or .zst.
        target: A file with the translation of each line of --source.
        tokens: Print one line of JSON per pair, with the log-probability of every token.
    """
    for path, name in ((source, "--source"), (target, "--target")):
        processing.check_lines(path, name, as_lines)
    arguments.check_input_files(source=source, target=target)
    processing.check_output(output, force)
    scorer = arguments.open_translator(model)
    output_lines = processing.json_lines(_token_values) if tokens else _score_lines
    pairs = processing.line_pairs(source, target)
    run = scorer.try_score_tokens
    processing.write_results(pairs, run, output_lines, output, on_error, input=source, quiet=quiet)


def _score_lines(line: Line) -> list[str]:
    return [f"{math.nan if line.reason else line.outcome.log_probability:.6f}"]


def _token_values(line: Line) -> dict[str, Any]:
    return {
        "source": line.texts[0],
        "target": line.outcome.text,
        "log_probability": round(line.outcome.log_probability, 6),
        "tokens": line.outcome.tokens,
        "token_log_probs": [round(value, 6) for value in line.outcome.token_log_probs],
    }


def evaluate_command(
    model: arguments.Model,
    data: Annotated[str, option(INPUT, metavar="SPEC")],
    split: Annotated[str, option(INPUT, metavar="NAME")] = "test",
    bleu_tokenizer: Annotated[str | None, option(None, metavar="NAME")] = None,
    pronunciations: Annotated[bool, option(None, "--pronunciations")] = False,
    beam_size: arguments.BeamSize = None,
    setting: arguments.Settings = None,
    output: Annotated[Path | None, option(OUTPUT, "--output", "-o", metavar="FILE")] = None,
    force: arguments.Force = False,
    json_output: arguments.Json = False,
    quiet: arguments.Quiet = False,
    verbose: arguments.Verbose = False,
) -> None:
    """Measure BLEU and chrF (sacreBLEU), exact match and speed on a split of text pairs.

    Args:
        data: Text pairs (docs/data.md), such as files:SOURCE,TARGET, folder:DIR:de-en, or a .tsv,
            .csv, .jsonl, .parquet, .tmx or .po file.
        split: The split of the data: train, validation, test, or all pairs of a single file.
        bleu_tokenizer: Tokenizer of BLEU: 13a, intl, zh, ja-mecab, ko-mecab, char, none, flores101
            or flores200. Default: by the target language or script.
        pronunciations: Also measure the word and phone error rates (WER, PER). A translation is
            right if it is one of the targets that the data has for its source.
        output: A file for the translations: plain, .gz or .zst.
    """
    settings = arguments.search_settings(setting, beam_size)
    arguments.check_settings(model, settings)
    processing.check_output(output, force)
    from tfk_transformer.evaluation import check_bleu_tokenizer, evaluate

    if bleu_tokenizer is not None:
        check_bleu_tokenizer(bleu_tokenizer)
    report = datasets.Report()
    source = datasets.load(data)
    pairs = list(source.pairs(split, report))
    with steps(quiet, verbose) as begin:
        begin(f"open {model}")
        translator = arguments.open_translator(model)
        begin(f"translate {len(pairs):,} sentences")
        evaluation, translations = evaluate(
            translator,
            pairs,
            bleu_tokenizer=bleu_tokenizer,
            target_language=source.target_language,
            pronunciations=pronunciations,
            **settings,
        )
    if output is not None:
        with processing.open_output(output) as out:
            if isinstance(out, OutputFile):
                out.write(map(one_line, translations))
            else:
                for line in translations:
                    print_line(line, out)
    default_beam = translator.runtime.rules["beam_size"]["default"]
    facts = {"dropped": report.dropped, "beam_size": default_beam, **settings}
    notes = [source.note] if source.note and split != "train" else []
    lines = [*notes, *report.lines(), *_evaluation_lines(evaluation)]
    print_report({**evaluation._asdict(), **facts}, lines, json_output)


def _evaluation_lines(evaluation: "Evaluation") -> Iterator[str]:
    yield f"sentences    {evaluation.sentences:,}"
    # BLEU is 0 without a match of four words, also if all of many short targets are right.
    note = "" if evaluation.bleu else ": no four words in a row are right, see exact match"
    yield f"BLEU         {evaluation.bleu:.2f}{note}  {evaluation.bleu_signature}"
    yield f"chrF         {evaluation.chrf:.2f}  {evaluation.chrf_signature}"
    yield f"exact match  {evaluation.exact_match:.1f} %"
    if evaluation.word_error_rate is not None:
        yield f"WER          {evaluation.word_error_rate:.2f} %"
        yield f"PER          {evaluation.phone_error_rate:.2f} %"
    yield f"speed        {evaluation.sentences_per_second:.1f} sentences/s"
    if evaluation.expected_calibration_error is not None:
        auroc = "" if evaluation.auroc is None else f", AUROC {evaluation.auroc:.3f}"
        error = evaluation.expected_calibration_error
        yield f"confidence   calibration error {error:.3f}{auroc}"
