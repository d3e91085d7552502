"""Recipes from a TOML file and the command line: every field of `Recipe` is an option."""

import inspect
from pathlib import Path
from typing import Any

import typer

from tfk_transformer.apps.cli.arguments import check_bundle, check_new_folder, named_value
from tfk_transformer.apps.cli.record_options import option, parameter, with_options
from tfk_transformer.training.recipe import EVALUATION, MODEL, Recipe

# The fields whose options set one value at a time, with an example.
MODEL_OPTIONS, SEARCH = "options", "search"
NAMED_VALUES = {MODEL_OPTIONS: ("--option", "norm=post"), SEARCH: ("--setting", "beam_size=6")}

FLAGS = {"start": "--from"}  # the other options have the names of their fields
# The other values are numbers.
METAVARS = {
    "data": "SPEC",
    "validation_data": "SPEC",
    "source_language": "CODE",
    "target_language": "CODE",
    "start": "BUNDLE",
    "profile": "FIRST LAST",
}


def _recipe_options() -> dict[str, inspect.Parameter]:
    options = {
        name: option(name, field, FLAGS.get(name), METAVARS.get(name))
        for name, field in Recipe.model_fields.items()
    }
    model_options = typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the model that differs from the preset, such as norm=post "
        "(docs/seeds.md). May be repeated.",
        rich_help_panel=MODEL,
        show_default=False,
    )
    settings = typer.Option(
        "--setting",
        metavar="NAME=VALUE",
        help=f"{str(Recipe.model_fields[SEARCH].description).capitalize()}. May be repeated.",
        rich_help_panel=EVALUATION,
        show_default=False,
    )
    options[MODEL_OPTIONS] = parameter(MODEL_OPTIONS, list[str], model_options)
    options[SEARCH] = parameter(SEARCH, list[str], settings)
    return options


# Adds an option for every field of `Recipe` to a command.
with_recipe = with_options(_recipe_options())


def read_recipe(file: Path | None, overrides: dict[str, Any]) -> Recipe:
    """Return the recipe that a TOML file and command-line options define together.

    Args:
        file: the TOML file, or None.
        overrides: values by the name of the field. They override the values of the file.

    Raises:
        ValueError: if a value is invalid or missing.
    """
    values = Recipe.read_values(file) if file else {}
    for name, (flag, example) in NAMED_VALUES.items():
        named = dict(named_value(text, flag, example) for text in overrides.get(name, ()))
        if named:
            overrides = {**overrides, name: {**values.get(name, {}), **named}}
    values |= overrides
    if "data" not in values:
        raise ValueError(
            "--data: expected a spec of the training pairs, as in folder:DIR:de-en, got none; see "
            "docs/data.md."
        )
    return Recipe(**values)


def check_data(recipe: Recipe, out: Path, resume: bool, cache: Path | None) -> None:
    """Refuse invalid data or folders before the backend is loaded, which takes seconds."""
    from tfk_transformer import datasets

    if not resume:
        check_new_folder(out)
        if recipe.start is not None:
            check_bundle(Path(recipe.start))
    for data, split in ((recipe.data, "train"), (recipe.validation_data, "validation")):
        if data is not None and cache is None:
            source = datasets.load(data)
            # TensorFlow Datasets loads TensorFlow, and may download.
            if not data.startswith("tfds:"):
                source.pairs(split)  # checks the files without reading pairs
