"""A recipe from a TOML file and the command line: every field is an option."""

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from tfk_transformer.training.recipe import Recipe

# Its values are given one by one: --option norm=post.
NAMED = "options"


def with_recipe(command: Callable) -> Callable:
    """Give a command an option for every field of `Recipe`; it gets those that were given as `given`, by name."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "given"]
    ours = [_parameter(name, field) for name, field in Recipe.model_fields.items()]

    @functools.wraps(command)
    def run(**values):
        given = {name: value for name in Recipe.model_fields if (value := values.pop(name)) is not None}
        return command(**values, given=given)

    run.__signature__ = inspect.Signature([*own, *ours])
    return run


def read_recipe(file: Path | None, given: dict) -> Recipe:
    """Make the recipe of a file, if there is one, and of what was given on the command line, which comes first.

    Raises:
        ValueError: if file and options together make no recipe.
    """
    values = Recipe.read_values(file) if file else {}
    named = dict(named_value(text, "--option", "norm=post") for text in given.get(NAMED, ()))
    values |= {**given, NAMED: {**values.get(NAMED, {}), **named}}
    if "data" not in values:
        raise ValueError("--data: expected a spec of the training pairs, as in folder:DIR:de-en, got none; see docs/data.md.")
    return Recipe(**values)


def named_value(text: str, option: str, example: str) -> tuple[str, Any]:
    """Read NAME=VALUE, where the value is JSON or a bare word."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"{option}: expected NAME=VALUE, as in {example}, got '{text}'.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _parameter(name: str, field) -> inspect.Parameter:
    """Return the option of a field; what is not given is None."""
    kind, texts = field.annotation, {"help": _help(field), "rich_help_panel": field.json_schema_extra["part"], "show_default": False}
    if name == NAMED:
        option = typer.Option(
            "--option", metavar="NAME=VALUE", **texts | {"help": "An option of the model, as in norm=post; may be repeated."}
        )
        kind = list[str]
    elif kind is bool:
        option = typer.Option(**texts)
    elif get_origin(kind) is Literal:  # the recipe itself says what is wrong with another word
        option, kind = typer.Option(f"--{name.replace('_', '-')}", metavar="|".join(get_args(kind)), **texts), str
    else:
        option = typer.Option(f"--{name.replace('_', '-')}", **texts)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


def _help(field) -> str:
    text = f"{field.description[0].upper()}{field.description[1:]}."
    shown = not field.is_required() and field.default is not None and not isinstance(field.default, bool)
    return f"{text} Default: {field.default}." if shown else text
