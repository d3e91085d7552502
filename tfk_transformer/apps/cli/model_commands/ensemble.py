"""`tfk-transformer ensemble`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.apps.cli.arguments import (
    Json,
    Quiet,
    Verbose,
    check_bundle,
    check_new_folder,
    console,
)
from tfk_transformer.apps.cli.progress import steps
from tfk_transformer.atomic_write import lock
from tfk_transformer.runtime_environment import load_tensorflow

EXAMPLES = """
tfk-transformer ensemble numbers numbers-2 --out both
"""


def command(
    bundles: Annotated[
        list[Path],
        typer.Argument(
            metavar="BUNDLE", help="Folders that `train` wrote, with the same tokenizers."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="DIR", help="The folder for the new bundle. It must not exist."
        ),
    ],
    json_output: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Combine the models of several bundles into an ensemble, and write it as a bundle.

    The ensemble translates as one model: the log-probability of each next token is the mean of the
    members' log-probabilities.
    """
    for bundle in bundles:
        check_bundle(bundle)
    check_new_folder(out)
    with lock(out), steps(quiet, verbose) as begin:
        check_new_folder(out)  # another run may have just ended
        begin("load TensorFlow")
        load_tensorflow()
        from tfk_transformer.pipelines.translator import Translator

        members = []
        for bundle in bundles:
            begin(f"open {bundle}")
            members.append(Translator.load(bundle))
        begin(f"write {out}")
        Translator.ensemble(members).save(out)
    shown = (
        json.dumps({"bundle": str(out), "members": [str(bundle) for bundle in bundles]}, indent=2)
        if json_output
        else f"bundle: {out}"
    )
    console().print(shown)
