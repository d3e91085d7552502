"""Command-line options that are generated from the fields of a configuration record."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from tfk_transformer.apps.cli.arguments import option

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def with_options(
    options: Mapping[str, inspect.Parameter],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options of fields to a command.

    The argument `overrides` of the command receives the values of the options that are set, by the
    name of the field.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = [
            parameter
            for parameter in inspect.signature(command).parameters.values()
            if parameter.name != "overrides"
        ]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            fields = {name: values.pop(name) for name in options}
            overrides = {name: value for name, value in fields.items() if value not in (None, [])}
            command(**values, overrides=overrides)

        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*parameters, *options.values()]
        )
        return run

    return decorate


def field_option(
    name: str,
    field: "FieldInfo",
    flag: str | None = None,
    metavar: str | None = None,
    help_text: str | None = None,
) -> inspect.Parameter:
    """Return the option of a field, as a parameter of a Typer command with the default None.

    By default, its help is the description of the field. The extra keys `part` and `metavar` of the
    field's JSON schema are its group and the name of its value, otherwise N or X for a number.
    """
    extra: Any = field.json_schema_extra
    annotation: Any = field.annotation
    flags = [flag or f"--{name.replace('_', '-')}"]
    settings: dict[str, Any] = {"help": help_text or _help(field), "show_default": False}
    metavar = metavar or extra.get("metavar")
    if annotation in (bool, bool | None):
        flags = []  # the option has a negation
    elif get_origin(annotation) is Literal:
        words = list(get_args(annotation))
        settings |= {"metavar": "NAME", "autocompletion": lambda: words}
        annotation = str  # the record refuses other words, and its error names the field
    elif annotation == tuple[str, ...] or get_origin(annotation) is dict:
        several = "NAME" if annotation == tuple[str, ...] else "NAME=VALUE"
        settings["help"] += " May be repeated."
        settings["metavar"] = metavar or several
        annotation = list[str]
    else:
        number = "N" if annotation is int or int in get_args(annotation) else "X"
        settings["metavar"] = metavar or number
    return parameter(name, annotation, option(extra["part"], *flags, **settings))


def parameter(name: str, annotation: Any, typer_option: Any) -> inspect.Parameter:
    """Return an option as a keyword parameter of a command, with the default None."""
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[annotation | None, typer_option],
    )


def _help(field: "FieldInfo") -> str:
    """Return the description of a field as sentences, with its allowed words and its default."""
    text = f"{(field.description or '')[0].upper()}{(field.description or '')[1:]}."
    if get_origin(field.annotation) is Literal:
        text += f" One of {', '.join(get_args(field.annotation))}."
    shown = (
        not field.is_required()
        and field.default not in (None, (), {})
        and not isinstance(field.default, bool)
    )
    return f"{text} Default: {field.default}." if shown else text
