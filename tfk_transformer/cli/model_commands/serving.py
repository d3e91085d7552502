"""`tfk-transformer serving`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import Json, Quiet, Verbose, console
from tfk_transformer.cli.progress import steps

EXAMPLES = """
# Write models/numbers/1 for TensorFlow Serving.
tfk-transformer serving files/saved_model --models models --name numbers
"""


def command(
    saved_model: Annotated[Path, typer.Argument(metavar="SAVED_MODEL", help="The folder saved_model/ that `export` wrote.")],
    models: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder of all models that the server serves. It is created if it does not exist.")
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="The name of the model, which is part of the URL.")],
    version: Annotated[int | None, typer.Option(metavar="N", help="The version number. Default: one more than the newest.")] = None,
    mounted: Annotated[
        str, typer.Option(metavar="PATH", help="The path under which the server sees the folder of all models.")
    ] = "/models",
    json_output: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Add a SavedModel to a model folder of TensorFlow Serving, as MODELS/NAME/VERSION, and write the server's configuration."""
    from tfk_transformer.export.to_saved_model.serving import write_serving

    with steps(quiet, verbose) as begin:
        begin(f"copy {saved_model}")
        written = write_serving(saved_model, models, name, version, mounted)
    shown = json.dumps({"folder": str(written), "version": int(written.name)}, indent=2) if json_output else written
    console().print(shown)
