"""`tfk-transformer inspect`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import Json, console, prepare


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An exported file or folder, or a bundle.")],
    json_output: Json = False,
) -> None:
    """Show the signatures, sizes, version and configuration of a file or folder, and how closely it agrees with the Keras model."""
    prepare(file)
    from tfk_transformer.export.inspection import inspect, tables

    found = inspect(file)
    if json_output:
        print(json.dumps(found, indent=2))
        return
    for table in tables(found):
        console().print(table)
