"""Recipes from a TOML file and the command line: every field of `Recipe` is an option."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from tfk_transformer.cli.arguments import check_bundle, check_new_folder, named_value
from tfk_transformer.training.recipe import Recipe

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

# The field whose option sets one value at a time: --option norm=post.
MODEL_OPTIONS = "options"
FLAGS = {"start": "--from"}  # the other options have the names of their fields
# The other values are numbers.
METAVARS = {"data": "SPEC", "validation_data": "SPEC", "start": "BUNDLE", "profile": "FIRST LAST"}


def with_recipe(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for every field of `Recipe` to a command.

    The argument `overrides` of the command receives the values of the options that are set, by the
    name of the field.
    """
    parameters = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "overrides"
    ]
    parameters += [_parameter(name, field) for name, field in Recipe.model_fields.items()]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        fields = {name: values.pop(name) for name in Recipe.model_fields}
        overrides = {name: value for name, value in fields.items() if value not in (None, [])}
        command(**values, overrides=overrides)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def read_recipe(file: Path | None, overrides: dict[str, Any]) -> Recipe:
    """Return the recipe that a TOML file and command-line options define together.

    Args:
        file: the TOML file, or None.
        overrides: values by the name of the field. They override the values of the file.

    Raises:
        ValueError: if a value is invalid or missing.
    """
    values = Recipe.read_values(file) if file else {}
    options = dict(
        named_value(text, "--option", "norm=post") for text in overrides.get(MODEL_OPTIONS, ())
    )
    if options:
        overrides = {**overrides, MODEL_OPTIONS: {**values.get(MODEL_OPTIONS, {}), **options}}
    values |= overrides
    if "data" not in values:
        raise ValueError(
            "--data: expected a spec of the training pairs, as in folder:DIR:de-en, got none; see "
            "docs/data.md."
        )
    return Recipe(**values)


def _parameter(name: str, field: "FieldInfo") -> inspect.Parameter:
    """Return the option of a field. Its default is None."""
    extra: Any = field.json_schema_extra
    annotation: Any = field.annotation
    flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
    texts: dict[str, Any] = {
        "help": _help(field),
        "rich_help_panel": extra["part"],
        "show_default": False,
    }
    if name == MODEL_OPTIONS:
        help = (
            "An option of the model that differs from the preset, such as norm=post "
            "(docs/seeds.md). May be repeated."
        )
        option = typer.Option("--option", metavar="NAME=VALUE", **texts | {"help": help})
        annotation = list[str]
    elif annotation is bool:
        option = typer.Option(**texts)
    elif get_origin(annotation) is Literal:
        words = get_args(annotation)
        option = typer.Option(flag, metavar="NAME", autocompletion=lambda: list(words), **texts)
        annotation = str  # the recipe refuses other words, with the name of the field
    elif annotation == tuple[str, ...]:
        texts["help"] += " May be repeated."
        option = typer.Option(flag, metavar="NAME", **texts)
        annotation = list[str]
    else:
        number = "N" if annotation is int or int in get_args(annotation) else "X"
        option = typer.Option(flag, metavar=METAVARS.get(name, number), **texts)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[annotation | None, option],
    )


def _help(field: "FieldInfo") -> str:
    """Return the description of a field as sentences, with its allowed words and its default."""
    text = f"{(field.description or '')[0].upper()}{(field.description or '')[1:]}."
    if get_origin(field.annotation) is Literal:
        text += f" One of {', '.join(get_args(field.annotation))}."
    shown = (
        not field.is_required()
        and field.default not in (None, ())
        and not isinstance(field.default, bool)
    )
    return f"{text} Default: {field.default}." if shown else text


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
                source.pairs(split)  # checks the files, and reads no pair yet
