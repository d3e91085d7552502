"""`tfk-transformer train`."""

import contextlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.apps.cli.arguments import (
    OUTPUT,
    Json,
    Quiet,
    check_bundle,
    print_bundle,
    printer,
)
from tfk_transformer.apps.cli.main import USER_ERRORS, print_error
from tfk_transformer.apps.cli.model_commands.recipe_flags import (
    check_data,
    read_recipe,
    with_recipe,
)
from tfk_transformer.atomic_write import lock
from tfk_transformer.runtime_environment import load_backend
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.recipe_schema import recipe_schema

EXAMPLES = """
tfk-transformer train recipes/numbers.toml --out numbers
# From two files: line N of the second translates line N of the first.
tfk-transformer train --data files:numbers.en,numbers.de --preset tiny -o mine
# Fine-tune an imported model on your own sentence pairs.
tfk-transformer train --from de-en --data files:mine.de,mine.en -o mine
# Print the complete recipe, to save it in a file.
tfk-transformer train --data numbers:en-de --preset tiny --print-config
"""
RESOURCES = "Resources"


@with_recipe
def command(
    recipe: Annotated[
        Path | None,
        typer.Argument(
            metavar="RECIPE", help="A TOML file. Options on the command line override its values."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="The folder for the bundle. It must not exist.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help=(
                "Continue an interrupted training run after its last complete epoch. Without one, "
                "begin; after its end, do nothing."
            ),
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help=(
                "A folder for the tokenizers and the token ids of the data. If it exists, the "
                "texts are not read again."
            ),
            rich_help_panel=RESOURCES,
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=(
                "Number of GPUs of this machine that share each batch (docs/scaling.md). "
                "Default: all."
            ),
            rich_help_panel=RESOURCES,
        ),
    ] = None,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed",
            help=(
                "Train jointly with other processes. Environment variables describe them "
                "(docs/scaling.md)."
            ),
            rich_help_panel=RESOURCES,
        ),
    ] = False,
    towers: Annotated[
        bool,
        typer.Option(
            "--towers/--no-towers",
            help="On a CPU, compute the halves of each batch in parallel (docs/training.md).",
            rich_help_panel=RESOURCES,
        ),
    ] = True,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the complete recipe as TOML, and exit.")
    ] = False,
    print_schema: Annotated[
        bool,
        typer.Option(
            "--print-schema",
            help="Print the JSON schema of recipes, for editors (docs/training.md), and exit.",
        ),
    ] = False,
    json_output: Json = False,
    quiet: Quiet = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Train a model and write a bundle: configuration, tokenizers, weights and history.

    With --from, fine-tune a bundle that `train` or `import` wrote: training continues from its
    weights.
    """
    if print_schema:
        print(json.dumps(recipe_schema(), indent=2))
        return
    full_recipe = read_recipe(recipe, overrides)
    if print_config:
        print(_with_start(full_recipe).to_toml(), end="")
        return
    if out is None:
        raise ValueError("--out: expected a folder for the bundle, got none; add --out DIR.")
    say = printer(quiet, json_output)
    # Only the first of several processes locks the folder, and only `train` knows which it is.
    with contextlib.nullcontext() if distributed else lock(out):
        check_data(full_recipe, out, resume, cache)
        is_first = _run(
            full_recipe,
            out,
            say=say,
            bar=not (quiet or json_output),
            resume=resume,
            cache=cache,
            devices=devices,
            distributed=distributed,
            towers=towers,
        )
    if is_first:
        print_bundle(out, json_output, say)


def _with_start(recipe: Recipe) -> Recipe:
    """Return a recipe with the values that its start bundle determines."""
    if recipe.start is None:
        return recipe
    check_bundle(Path(recipe.start))
    load_backend()
    from tfk_transformer.training.fine_tuning.start import Start

    return Start(Path(recipe.start)).adopt(recipe)


def _run(recipe: Recipe, out: Path, *, distributed: bool, **options: Any) -> bool:
    """Train a model, and return whether this process wrote the bundle."""
    load_backend()
    from tfk_transformer.training.distribution import is_first
    from tfk_transformer.training.trainer import train

    try:
        train(recipe, out, distributed=distributed, **options)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as error:
        if distributed:
            _exit_immediately(error)
        raise
    return is_first()


def _exit_immediately(error: Exception) -> None:
    """End one of several training processes without JAX's shutdown.

    The shutdown would wait for the other processes, and then abort.
    """
    if isinstance(error, USER_ERRORS):
        print_error(error)
    else:
        traceback.print_exception(error)
    sys.stdout.flush()
    os._exit(1)
