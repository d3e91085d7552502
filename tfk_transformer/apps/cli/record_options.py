"""Command-line options that are generated from the fields of a configuration record."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def with_options(
    options: Mapping[str, inspect.Parameter],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds options to a command.

    The argument `overrides` of the command receives the values of the options that are set, by the
    name of the field.

    Args:
        options: the parameter of each field by its name, see `option`.
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


def option(
    name: str, field: "FieldInfo", flag: str | None = None, metavar: str | None = None
) -> inspect.Parameter:
    """Return the option of a field, as a parameter of a Typer command with the default None.

    Args:
        name: the name of the field.
        field: the field. Its description is the help, and the extra key `part` of its JSON schema
            is the panel.
        flag: the name of the option. Defaults to the name of the field.
        metavar: the name of the value in the help. Defaults to the extra key `metavar`, otherwise
            N for an integer and X for a number.
    """
    extra: Any = field.json_schema_extra
    annotation: Any = field.annotation
    flag = flag or f"--{name.replace('_', '-')}"
    texts = {
        "help": _help(field),
        "rich_help_panel": extra["part"],
        "show_default": False,
    }
    if annotation in (bool, bool | None):
        typer_option = typer.Option(**texts)
    elif get_origin(annotation) is Literal:
        words = list(get_args(annotation))
        typer_option = typer.Option(flag, metavar="NAME", autocompletion=lambda: words, **texts)
        annotation = str  # the record refuses other words, and its error names the field
    elif annotation == tuple[str, ...]:
        texts["help"] += " May be repeated."
        typer_option = typer.Option(flag, metavar=extra.get("metavar", "NAME"), **texts)
        annotation = list[str]
    else:
        number = "N" if annotation is int or int in get_args(annotation) else "X"
        metavar = metavar or extra.get("metavar", number)
        typer_option = typer.Option(flag, metavar=metavar, **texts)
    return parameter(name, annotation, typer_option)


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
        and field.default not in (None, ())
        and not isinstance(field.default, bool)
    )
    return f"{text} Default: {field.default}." if shown else text
