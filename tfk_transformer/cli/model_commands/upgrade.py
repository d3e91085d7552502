"""`tfk-transformer upgrade`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import Json, Quiet, Verbose, check_bundle, console
from tfk_transformer.cli.progress import steps
from tfk_transformer.runtime_environment import load_tensorflow

EXAMPLES = """
tfk-transformer upgrade numbers
"""


def command(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that `train` of an earlier version wrote.")],
    json_output: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write the weights of a bundle anew, as safetensors. Its other files stay as they are."""
    check_bundle(bundle)
    with steps(quiet, verbose) as begin:
        begin("load TensorFlow")
        load_tensorflow()
        from tfk_transformer.pipelines.bundle import rewrite
        from tfk_transformer.pipelines.weights import WEIGHTS

        begin(f"write the weights of {bundle}")
        rewrite(bundle)
    weights = bundle / WEIGHTS
    console().print(json.dumps({"weights": str(weights)}, indent=2) if json_output else weights)
