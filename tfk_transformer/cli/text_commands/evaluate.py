"""`tfk-transformer evaluate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfk_transformer.cli.arguments import (
    DEFAULT_BEAM,
    Data,
    Force,
    Json,
    Model,
    Settings,
    check_settings,
    console,
    open_model,
    search_settings,
)
from tfk_transformer.cli.text_lines import write_lines
from tfk_transformer.cli.text_output import check_output

if TYPE_CHECKING:
    from tfk_transformer.datasets import Report
    from tfk_transformer.evaluation import Evaluation


def command(
    model: Model,
    data: Data,
    split: Annotated[str, typer.Option(help="The split to evaluate on.")] = "test",
    beam_size: Annotated[
        int | None, typer.Option(help=f"The hypotheses kept per sentence; 1 is greedy search. Default: {DEFAULT_BEAM}.")
    ] = None,
    setting: Settings = None,
    json_output: Json = False,
    output: Annotated[Path | None, typer.Option(help="The file for the translations, plain, .gz or .zst.")] = None,
    force: Force = False,
) -> None:
    """Measure BLEU and chrF (sacreBLEU), exact match and speed on a split."""
    settings = search_settings(setting, beam_size)
    check_settings(model, settings)
    check_output(output, force)
    from tfk_transformer import datasets
    from tfk_transformer.evaluation import evaluate

    report = datasets.Report()
    pairs = list(datasets.load(data).pairs(split, report))
    found, translations = evaluate(open_model(model), pairs, **settings)
    if output is not None:
        write_lines(translations, output)
    if json_output:
        print(json.dumps({**found._asdict(), "dropped": report.dropped, **settings}, indent=2))
    else:
        _print_figures(found, report)


def _print_figures(found: "Evaluation", report: "Report") -> None:
    lines = [
        *report.lines(),
        f"sentences    {found.sentences:,}",
        f"BLEU         {found.bleu:.2f}  {found.bleu_signature}",
        f"chrF         {found.chrf:.2f}  {found.chrf_signature}",
        f"exact match  {found.exact_match:.1f} %",
        f"speed        {found.sentences_per_second:.1f} sentences/s",
    ]
    for line in lines:
        console().print(line)
