"""`tfk-transformer train`, and `distill`, which trains a student."""

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.cli.arguments import MODEL_HELP, check_bundle, check_new_folder, console, open_model
from tfk_transformer.cli.main import EXPECTED, print_error
from tfk_transformer.cli.recipe_flags import read_recipe, with_recipe
from tfk_transformer.runtime_environment import load_backend
from tfk_transformer.training.recipe import Recipe


@with_recipe
def command(
    recipe: Annotated[
        Path | None, typer.Argument(metavar="RECIPE", help="A TOML file. Options on the command line override its values.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder for the bundle. It must not exist.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted training run after its last complete epoch.")] = False,
    cache: Annotated[
        Path | None,
        typer.Option(help="A folder for the tokenizers and the encoded data. If it exists, the texts are not read again."),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="The GPUs of this machine that share each batch. Default: all. See docs/scaling.md.")
    ] = None,
    distributed: Annotated[
        bool,
        typer.Option("--distributed", help="Train together with other processes, which environment variables name. See docs/scaling.md."),
    ] = False,
    towers: Annotated[
        bool, typer.Option("--towers/--no-towers", help="On a CPU, compute the halves of each batch in parallel. See docs/training.md.")
    ] = True,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the recipe as TOML and exit.")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Train a model and write a bundle: configuration, tokenizers, weights and history.

    With --from, training continues from the weights of a bundle (fine-tuning): a trained model, or one that `import` made.
    """
    chosen = read_recipe(recipe, given)
    if print_config:
        print(_adopted(chosen).to_toml(), end="")
        return
    if out is None:
        raise ValueError("--out: expected a folder for the bundle, got none.")
    _check(chosen, out, resume, cache)
    _run(chosen, out, resume=resume, cache=cache, devices=devices, distributed=distributed, towers=towers)


@with_recipe
def distill(
    teachers: Annotated[
        list[Path], typer.Argument(metavar="TEACHER...", help=f"{MODEL_HELP} With several, the hypotheses of all are compared.")
    ],
    recipe: Annotated[
        Path | None, typer.Option(help="The student's TOML file. Options on the command line override its values.", metavar="FILE")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder for the student's bundle. It must not exist.")] = None,
    beam_size: Annotated[int, typer.Option(min=1, help="The hypotheses of each teacher per sentence.")] = 5,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted distillation.")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Train a small student on the translations of teachers, and on the original pairs.

    For each training sentence, the student learns the hypothesis that is most like the given translation (sequence-level distillation,
    arXiv:1606.07947). OUT.distilled keeps these pairs.
    """
    chosen = read_recipe(recipe, given)
    if out is None:
        raise ValueError("--out: expected a folder for the bundle, got none.")
    _check(chosen, out, resume, None)
    models = [open_model(teacher) for teacher in teachers]
    load_backend()
    from tfk_transformer.distillation.distilling import distill

    try:
        distill(models, chosen, out, beam_size=beam_size, resume=resume, say=console().print)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    console().print(f"bundle: {out}")


def _check(recipe: Recipe, out: Path, resume: bool, cache: Path | None) -> None:
    """Refuse wrong data or a wrong folder before the backend is loaded, which takes seconds."""
    from tfk_transformer import datasets

    if not resume:
        check_new_folder(out)
        if recipe.start is not None:
            check_bundle(Path(recipe.start))
    for data, split in ((recipe.data, "train"), (recipe.validation_data, "validation")):
        if data is not None and cache is None:
            source = datasets.load(data)
            if not data.startswith("tfds:"):  # TensorFlow Datasets loads TensorFlow, and may download
                source.pairs(split)  # checks the files, and reads no pair yet


def _adopted(recipe: Recipe) -> Recipe:
    """Return a recipe with the values that the bundle decides from which it starts."""
    if recipe.start is None:
        return recipe
    check_bundle(Path(recipe.start))
    load_backend()
    from tfk_transformer.fine_tuning.start import Start

    return Start(Path(recipe.start)).adopt(recipe)


def _run(recipe: Recipe, out: Path, *, distributed: bool, **options: Any) -> None:
    load_backend()
    from tfk_transformer.training.distribution import is_first
    from tfk_transformer.training.trainer import train

    try:
        train(recipe, out, say=console().print, distributed=distributed, **options)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as error:
        if distributed:
            _leave_at_once(error)
        raise
    if is_first():
        console().print(f"bundle: {out}")


def _leave_at_once(error: Exception) -> None:
    """End one of several processes without JAX's shutdown, which would wait for the others and then abort."""
    if isinstance(error, EXPECTED):
        print_error(error)
    else:
        traceback.print_exception(error)
    sys.stdout.flush()
    os._exit(1)
