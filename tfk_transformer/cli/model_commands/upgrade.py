"""`tfk-transformer upgrade`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import check_bundle, console
from tfk_transformer.runtime_environment import load_tensorflow

EXAMPLES = """
tfk-transformer upgrade numbers
"""


def command(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that `train` of an earlier version wrote.")],
) -> None:
    """Write the weights of a bundle anew, as safetensors. Its other files stay as they are."""
    check_bundle(bundle)
    load_tensorflow()
    from tfk_transformer.pipelines.bundle import rewrite
    from tfk_transformer.pipelines.weights import WEIGHTS

    rewrite(bundle)
    console().print(bundle / WEIGHTS)
