"""`tfk-transformer evaluate`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfk_transformer.apps.cli.arguments import (
    INPUT,
    OUTPUT,
    BeamSize,
    Data,
    Force,
    Json,
    Model,
    Quiet,
    Settings,
    Verbose,
    check_settings,
    open_translator,
    option,
    search_settings,
)
from tfk_transformer.apps.cli.progress import steps
from tfk_transformer.apps.cli.terminal import print_report
from tfk_transformer.apps.cli.text_output import check_output, write_lines

if TYPE_CHECKING:
    from tfk_transformer.evaluation import Evaluation

EXAMPLES = """
tfk-transformer evaluate numbers --data numbers:en-de
# Chinese, by sacreBLEU's tokenizer for it.
tfk-transformer evaluate de-zh --data folder:mine:de-zh --bleu-tokenizer zh
# Print the figures as JSON, and write the translations to a file.
tfk-transformer evaluate numbers --data numbers:en-de --json -o numbers.out
"""


def command(
    model: Model,
    data: Data,
    split: Annotated[str, option(INPUT, metavar="NAME")] = "test",
    bleu_tokenizer: Annotated[str | None, option(None, metavar="NAME")] = None,
    beam_size: BeamSize = None,
    setting: Settings = None,
    output: Annotated[Path | None, option(OUTPUT, "--output", "-o", metavar="FILE")] = None,
    force: Force = False,
    json_output: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure BLEU and chrF (sacreBLEU), exact match and speed on a split of text pairs.

    Args:
        split: The split of the data: train, validation or test.
        bleu_tokenizer: Tokenizer of BLEU: 13a, intl, zh, ja-mecab, ko-mecab, char, none, flores101
            or flores200. Default: by the target language or script.
        output: A file for the translations: plain, .gz or .zst.
    """
    settings = search_settings(setting, beam_size)
    check_settings(model, settings)
    check_output(output, force)
    from tfk_transformer import datasets
    from tfk_transformer.evaluation import check_bleu_tokenizer, evaluate

    if bleu_tokenizer is not None:
        check_bleu_tokenizer(bleu_tokenizer)
    report = datasets.Report()
    source = datasets.load(data)
    pairs = list(source.pairs(split, report))
    with steps(quiet, verbose) as begin:
        begin(f"open {model}")
        translator = open_translator(model)
        begin(f"translate {len(pairs):,} sentences")
        evaluation, translations = evaluate(
            translator,
            pairs,
            bleu_tokenizer=bleu_tokenizer,
            target_language=source.target_language,
            **settings,
        )
    if output is not None:
        write_lines(translations, output)
    default_beam = translator.runtime.rules["beam_size"]["default"]
    facts = {"dropped": report.dropped, "beam_size": default_beam, **settings}
    lines = [*report.lines(), *_lines(evaluation)]
    print_report({**evaluation._asdict(), **facts}, lines, json_output)


def _lines(evaluation: "Evaluation") -> Iterator[str]:
    yield f"sentences    {evaluation.sentences:,}"
    yield f"BLEU         {evaluation.bleu:.2f}  {evaluation.bleu_signature}"
    yield f"chrF         {evaluation.chrf:.2f}  {evaluation.chrf_signature}"
    yield f"exact match  {evaluation.exact_match:.1f} %"
    yield f"speed        {evaluation.sentences_per_second:.1f} sentences/s"
    if evaluation.expected_calibration_error is not None:
        auroc = "" if evaluation.auroc is None else f", AUROC {evaluation.auroc:.3f}"
        error = evaluation.expected_calibration_error
        yield f"confidence   calibration error {error:.3f}{auroc}"
