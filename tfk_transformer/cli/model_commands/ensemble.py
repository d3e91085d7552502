"""`tfk-transformer ensemble`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import check_bundle, check_new_folder, console
from tfk_transformer.runtime_environment import load_tensorflow

EXAMPLES = """
tfk-transformer ensemble numbers numbers-2 --out both
"""


def command(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE", help="Folders that `train` wrote, with the same tokenizers.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder for the joint bundle. It must not exist.")],
) -> None:
    """Join the models of several bundles to an ensemble, and write its bundle.

    The ensemble translates as one model: the log-probability of each next token is the mean of the members' log-probabilities.
    """
    for bundle in bundles:
        check_bundle(bundle)
    check_new_folder(out)
    load_tensorflow()
    from tfk_transformer.pipelines.translator import Translator

    Translator.ensemble([Translator.load(bundle) for bundle in bundles]).save(out)
    console().print(f"bundle: {out}")
