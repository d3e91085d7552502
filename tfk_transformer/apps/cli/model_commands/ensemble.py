"""`tfk-transformer ensemble`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.apps.cli.arguments import (
    Json,
    Quiet,
    Verbose,
    check_bundle,
    check_new_folder,
    option,
)
from tfk_transformer.apps.cli.progress import new_folder
from tfk_transformer.apps.cli.terminal import print_report

EXAMPLES = """
tfk-transformer ensemble numbers numbers-2 --out both
"""


def command(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE")],
    out: Annotated[Path, option(None, "--out", "-o", metavar="DIR")],
    json_output: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Combine the models of several bundles into an ensemble, and write it as a bundle.

    The ensemble translates as one model: the log-probability of each next token is the mean of the
    members' log-probabilities.

    Args:
        bundles: Folders that `train` wrote, with the same tokenizers.
        out: The folder for the new bundle. It must not exist.
    """
    for bundle in bundles:
        check_bundle(bundle)
    check_new_folder(out)
    with new_folder(out, quiet, verbose) as begin:
        from tfk_transformer.pipelines.translator import Translator

        members = []
        for bundle in bundles:
            begin(f"open {bundle}")
            members.append(Translator.load(bundle))
        begin(f"write {out}")
        Translator.ensemble(members).save(out)
    report = {"bundle": str(out), "members": [str(bundle) for bundle in bundles]}
    print_report(report, [f"bundle: {out}"], json_output)
