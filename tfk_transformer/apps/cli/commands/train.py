"""The commands `train` and `distill`, and recipes from a TOML file and the command line."""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer import datasets
from tfk_transformer.apps.cli import arguments
from tfk_transformer.apps.cli.arguments import OUTPUT, check_bundle, option
from tfk_transformer.apps.cli.main import USER_ERRORS, print_error
from tfk_transformer.apps.cli.terminal import console
from tfk_transformer.atomic_write import check_new, lock
from tfk_transformer.runtime_environment import load_backend, use_onednn
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.recipe_schema import recipe_schema

TRAIN_EXAMPLES = """
tfk-transformer train recipes/numbers.toml --out numbers
# From two files: line N of the second translates line N of the first.
tfk-transformer train --data files:numbers.en,numbers.de --preset tiny -o mine
# Fine-tune an imported model on your own sentence pairs.
tfk-transformer train --from de-en --data files:mine.de,mine.en -o mine
# Print the complete recipe, to save it in a file.
tfk-transformer train --data numbers:en-de --preset tiny --print-config
"""
DISTILL_EXAMPLES = """
tfk-transformer distill numbers --recipe student.toml --out student
# Learn the best hypothesis of two teachers.
tfk-transformer distill numbers numbers-2 --recipe student.toml -o student
"""
RESOURCES, DISTILLATION = "Resources", "Distillation"  # titles of groups of options in the help
TEACHERS = f"{arguments.HELP['model']} The student learns the best hypothesis of all teachers."

# What the options of fields have instead of the name of the field, its description, and N or X.
OPTIONS: dict[str, dict[str, str]] = {
    **dict.fromkeys(("data", "validation_data"), {"metavar": "SPEC"}),
    **dict.fromkeys(("source_language", "target_language"), {"metavar": "CODE"}),
    "start": {"flag": "--from", "metavar": "BUNDLE"},
    "options": {
        "flag": "--option",
        "help_text": "An option of the model that differs from the preset, such as norm=post "
        "(docs/seeds.md).",
    },
    "search": {"flag": "--setting"},
    "profile": {"metavar": "FIRST LAST"},
}
# Adds an option for every field of `Recipe` to a command.
with_recipe = arguments.with_options(
    {
        name: arguments.field_option(name, field, **OPTIONS.get(name, {}))
        for name, field in Recipe.model_fields.items()
    }
)


def read_recipe(file: Path | None, overrides: dict[str, Any]) -> Recipe:
    """Return the recipe of a TOML file and of options, whose `overrides` replace its values."""
    values = Recipe.read_values(file) if file else {}
    for name, example in (("options", "norm=post"), ("search", "beam_size=6")):
        flag = OPTIONS[name]["flag"]
        if named := arguments.named_values(overrides.get(name), flag, example):
            overrides = {**overrides, name: {**values.get(name, {}), **named}}
    values |= overrides
    if "data" not in values:
        raise ValueError(
            "--data: expected a spec of the training pairs, as in folder:DIR:de-en, got none; see "
            "docs/data.md."
        )
    return Recipe(**values)


def required_out(out: Path | None) -> Path:
    """Return the folder for the bundle, which some options make optional."""
    if out is None:
        raise ValueError("--out: expected a folder for the bundle, got none; add --out DIR.")
    return out


def check_data(recipe: Recipe, out: Path, resume: bool, cache: Path | None) -> None:
    """Refuse invalid data or folders before the backend is loaded, which takes seconds."""
    if not resume:
        check_new(out)
        if recipe.start is not None:
            check_bundle(Path(recipe.start))
    for data, split in ((recipe.data, "train"), (recipe.validation_data, "validation")):
        if data is not None and cache is None:
            source = datasets.load(data)
            source = source.undivided() if split == "validation" else source
            # TensorFlow Datasets loads TensorFlow, and may download.
            if not data.startswith("tfds:"):
                source.pairs(split)  # checks the files without reading pairs


def printer(quiet: bool, as_json: bool = False) -> Callable[[str], None]:
    """Return a function that prints a line, or does nothing if `quiet` or the output is closed."""
    shown = console(stderr=as_json)  # with --json, standard output contains only JSON
    return (lambda line: None) if quiet or not shown.file.writable() else shown.print


def print_bundle(out: Path, as_json: bool, say: Callable[[str], None]) -> None:
    """Print the path of a trained bundle, or as JSON its path and metrics."""
    if not as_json:
        say(f"bundle: {out}")
        return
    file = out / "metrics.json"
    metrics = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    print(json.dumps({"bundle": str(out), **metrics}, indent=2))


@with_recipe
def train_command(
    recipe: Annotated[Path | None, typer.Argument(metavar="RECIPE")] = None,
    out: Annotated[Path | None, option(OUTPUT, "--out", "-o", metavar="DIR")] = None,
    resume: Annotated[bool, option(OUTPUT, "--resume")] = False,
    cache: Annotated[Path | None, option(RESOURCES, metavar="DIR")] = None,
    devices: Annotated[int | None, option(RESOURCES, metavar="N", min=1)] = None,
    distributed: Annotated[bool, option(RESOURCES, "--distributed")] = False,
    towers: Annotated[bool, option(RESOURCES)] = True,
    print_config: Annotated[bool, option(None, "--print-config")] = False,
    print_schema: Annotated[bool, option(None, "--print-schema")] = False,
    json_output: arguments.Json = False,
    quiet: arguments.Quiet = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Train a model and write a bundle: configuration, tokenizers, weights and history.

    With --from, fine-tune a bundle that `train` or `import` wrote: training continues from its
    weights.

    Args:
        recipe: A TOML file. Options on the command line override its values.
        out: The folder for the bundle. It must not exist.
        resume: Continue an interrupted training run after its last complete epoch. Without one,
            begin; after its end, do nothing.
        cache: A folder for the tokenizers and the token ids of the data. If it exists, the texts
            are not read again.
        devices: Number of GPUs of this machine that share each batch (docs/scaling.md). Default:
            all.
        distributed: Train jointly with other processes. Environment variables describe them
            (docs/scaling.md).
        towers: On a CPU, compute the halves of each batch in parallel (docs/training.md).
        print_config: Print the complete recipe as TOML, and exit.
        print_schema: Print the JSON schema of recipes, for editors (docs/training.md), and exit.
    """
    if print_schema:
        print(json.dumps(recipe_schema(), indent=2))
        return
    full_recipe = read_recipe(recipe, overrides)
    if print_config:
        if full_recipe.start is not None:  # determines some values
            check_bundle(Path(full_recipe.start))
            load_backend()
            from tfk_transformer.training.fine_tuning import Start

            full_recipe = Start(Path(full_recipe.start)).adopt(full_recipe)
        print(full_recipe.to_toml(), end="")
        return
    out = required_out(out)
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


def _run(recipe: Recipe, out: Path, *, distributed: bool, **options: Any) -> bool:
    """Train a model, and return whether this process wrote the bundle."""
    load_backend()
    from tfk_transformer.training.distribution import is_first
    from tfk_transformer.training.trainer import train

    try:
        train(recipe, out, distributed=distributed, **options)
    except Exception as error:
        if not distributed:
            raise
        if isinstance(error, USER_ERRORS):
            print_error(error)
        else:
            traceback.print_exception(error)
        sys.stdout.flush()
        os._exit(1)  # JAX's shutdown would wait for the other processes, and then abort
    return is_first()


@with_recipe
def distill_command(
    teachers: Annotated[list[Path], typer.Argument(metavar="TEACHER", help=TEACHERS)],
    recipe: Annotated[Path | None, option(DISTILLATION, metavar="FILE")] = None,
    out: Annotated[Path | None, option(OUTPUT, "--out", "-o", metavar="DIR")] = None,
    resume: Annotated[bool, option(OUTPUT, "--resume")] = False,
    beam_size: Annotated[int, option(DISTILLATION, metavar="N", min=1)] = 5,
    json_output: arguments.Json = False,
    quiet: arguments.Quiet = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Train a small student on the translations of teachers, and on the original pairs.

    For each training sentence, the student learns the hypothesis that is closest to the
    translation in the data (sequence-level distillation, arXiv:1606.07947). The folder
    OUT.distilled contains these pairs.

    Args:
        recipe: The student's TOML file. Options on the command line override its values.
        out: The folder for the student's bundle. It must not exist.
        resume: Continue an interrupted distillation. Without one, begin; after its end, do nothing.
        beam_size: Number of hypotheses per teacher and sentence.
    """
    student_recipe = read_recipe(recipe, overrides)
    out = required_out(out)
    say = printer(quiet, json_output)
    with lock(out):
        check_data(student_recipe, out, resume, None)
        use_onednn()  # a teacher may load TensorFlow
        models = [arguments.open_translator(teacher) for teacher in teachers]
        load_backend()
        from tfk_transformer.training.distillation import distill

        bar = not (quiet or json_output)
        distill(models, student_recipe, out, beam_size=beam_size, resume=resume, say=say, bar=bar)
    print_bundle(out, json_output, say)
