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

# The field whose values are given one at a time: --option norm=post.
MODEL_OPTIONS = "options"
FLAGS = {"start": "--from"}  # the other flags have the names of their fields
# The other values are numbers.
METAVARS = {"data": "SPEC", "validation_data": "SPEC", "start": "BUNDLE", "profile": "FIRST LAST"}


def with_recipe(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for every field of `Recipe` to a command, which receives the given ones by name
    in the argument `given`.
    """
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "given"]
    ours = [_parameter(name, field) for name, field in Recipe.model_fields.items()]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {
            name: value
            for name in Recipe.model_fields
            if (value := values.pop(name)) not in (None, [])
        }
        command(**values, given=given)

    run.__signature__ = inspect.Signature([*own, *ours])  # type: ignore[attr-defined]
    return run


def read_recipe(file: Path | None, given: dict[str, Any]) -> Recipe:
    """Return the recipe that a TOML file and command-line options define together.

    Args:
        file: the TOML file, or None.
        given: values by the name of the field. They override the file's.

    Raises:
        ValueError: if a value is invalid or missing.
    """
    values = Recipe.read_values(file) if file else {}
    named = dict(
        named_value(text, "--option", "norm=post") for text in given.get(MODEL_OPTIONS, ())
    )
    values |= {
        **given,
        **({MODEL_OPTIONS: {**values.get(MODEL_OPTIONS, {}), **named}} if named else {}),
    }
    if "data" not in values:
        raise ValueError(
            "--data: expected a spec of the training pairs, as in folder:DIR:de-en, got none; see "
            "docs/data.md."
        )
    return Recipe(**values)


def _parameter(name: str, field: "FieldInfo") -> inspect.Parameter:
    """Return the option of a field; the value of an option that is not given is None."""
    extra: Any = field.json_schema_extra
    kind: Any = field.annotation
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
        kind = list[str]
    elif kind is bool:
        option = typer.Option(**texts)
    elif get_origin(kind) is Literal:
        # Other words are refused by the recipe, which names the field.
        words = get_args(kind)
        option, kind = (
            typer.Option(flag, metavar="NAME", autocompletion=lambda: list(words), **texts),
            str,
        )
    elif kind == tuple[str, ...]:
        option, kind = (
            typer.Option(
                flag, metavar="NAME", **texts | {"help": f"{_help(field)} May be repeated."}
            ),
            list[str],
        )
    else:
        option = typer.Option(flag, metavar=METAVARS.get(name) or _metavar(kind), **texts)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _metavar(kind: Any) -> str:
    """Return N for an integer, and X for another number."""
    return "N" if kind is int or int in get_args(kind) else "X"


def _help(field: "FieldInfo") -> str:
    """Return the description of a field as sentences: with the words that it takes, and its
    default.
    """
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
    """Refuse wrong data or a wrong folder before the backend is loaded, which takes seconds."""
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
