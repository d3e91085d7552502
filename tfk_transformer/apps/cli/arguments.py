"""Options that several commands share or that are fields of a record, and checks of arguments.

The checks run before TensorFlow is loaded.
"""

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_origin

import typer

from tfk_transformer.config.search_settings import (
    SETTING_DTYPES,
    SearchSettings,
    resolve_settings,
    setting_rules,
)
from tfk_transformer.config.words import shorten, unknown_names
from tfk_transformer.runtime_environment import load_tensorflow

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from tfk_transformer.inference.base_classifier import BaseClassifier
    from tfk_transformer.inference.base_translator import BaseTranslator

Command: TypeAlias = Callable[..., None]
DEFAULT_BEAM = SearchSettings.beam_size
# The search settings in the help of `--setting`. `--beam-size` is a separate option.
SHOWN_SETTINGS = (*list(SETTING_DTYPES)[2:], "n_best")
INPUT, OUTPUT, SEARCH = "Input", "Output", "Translation"  # titles of groups of options
# The actions of a command for a line that it cannot process.
BadLines = StrEnum("BadLines", ["STOP", "SKIP", "BLANK"])


def option(panel: str | None, *flags: str, **settings: Any) -> Any:
    """Return an option in a group of the help page; without flags, it has its parameter's name.

    Without `help`, its help is in the docstring of the command; see `help_pages.help_of`.
    """
    return typer.Option(*flags, rich_help_panel=panel, **settings)


def output_option(content: str) -> Any:
    """Return the option of the file for the results of a command, such as "labels"."""
    help = (
        f"The file for the {content}: plain, .gz or .zst. It is written as FILE.partial until it "
        "is complete. Default: standard output."
    )
    return option(OUTPUT, "--output", "-o", metavar="FILE", help=help)


HELP = {
    "model": "A bundle, a SavedModel folder or an .onnx file.",
    "text": "The texts. Default: the lines of --input.",
    "input": "A UTF-8 file with one text per line: plain, .gz or .zst. Default: standard input.",
    "as_lines": "Read the lines of a file even if it looks like a document, such as a .md file.",
    "on_error": "The action for a line that is too long for the model, is not UTF-8 or contains a "
    "NUL character: stop (with an error), skip (omit the line) or blank (write a blank line "
    "instead). skip and blank report each such line on standard error and in OUTPUT.errors.jsonl, "
    "and exit with status 0.",
    "beam_size": "Number of hypotheses that the search keeps for each sentence; 1 is greedy "
    f"search. Default: the model's, or else {DEFAULT_BEAM}.",
    "setting": "A search setting, such as length_penalty=1. "
    f"Names: {', '.join(SHOWN_SETTINGS)}. May be repeated.",
    "glossary": "A UTF-8 file of terms and their required translations. Each line has a source "
    "term, a tab and the translation.",
    "verbose": "Print each step with its time to standard error.",
}
SETTING = option(
    SEARCH,
    "--setting",
    metavar="NAME=VALUE",
    help=HELP["setting"],
    autocompletion=lambda: [f"{name}=" for name in SHOWN_SETTINGS],
)

Model = Annotated[Path, typer.Argument(metavar="MODEL", help=HELP["model"])]
Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help=HELP["text"])]
Input = Annotated[Path | None, option(INPUT, "--input", "-i", metavar="FILE", help=HELP["input"])]
AsLines = Annotated[bool, option(INPUT, "--as-lines", help=HELP["as_lines"])]
Force = Annotated[bool, option(OUTPUT, "--force", help="Replace an --output that exists.")]
OnError = Annotated[BadLines, option(INPUT, metavar="ACTION", help=HELP["on_error"])]
BeamSize = Annotated[int | None, option(SEARCH, metavar="N", help=HELP["beam_size"])]
Settings = Annotated[list[str] | None, SETTING]
Glossary = Annotated[
    Path | None, option(SEARCH, "--glossary", metavar="FILE", help=HELP["glossary"])
]
Json = Annotated[bool, option(None, "--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, option(None, "--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[bool, option(None, "--verbose", "-v", help=HELP["verbose"])]


def with_options(options: Mapping[str, inspect.Parameter]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command.

    The argument `overrides` of the command receives the values of the options that are set.
    """

    def decorate(command: Command) -> Command:
        parameters = dict(inspect.signature(command).parameters)
        del parameters["overrides"]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            fields = {name: values.pop(name) for name in options}
            overrides = {name: value for name, value in fields.items() if value not in (None, [])}
            command(**values, overrides=overrides)

        signature = inspect.Signature([*parameters.values(), *options.values()])
        run.__signature__ = signature  # type: ignore[attr-defined]
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
    metavar = metavar or extra.get("metavar")
    words = list(get_args(annotation)) if get_origin(annotation) is Literal else []
    text = f"{(field.description or '')[0].upper()}{(field.description or '')[1:]}."
    if words:
        text += f" One of {', '.join(words)}."
    has_default = not field.is_required() and field.default not in (None, (), {})
    if has_default and not isinstance(field.default, bool):
        text += f" Default: {field.default}."
    text = help_text or text
    if annotation in (bool, bool | None):
        flags, metavar = [], None  # the option has a negation
    elif words:
        metavar = "NAME"
        annotation = str  # the record refuses other words, and its error names the field
    elif annotation == tuple[str, ...] or get_origin(annotation) is dict:
        metavar = metavar or ("NAME" if annotation == tuple[str, ...] else "NAME=VALUE")
        text += " May be repeated."
        annotation = list[str]
    else:
        is_integer = annotation is int or int in get_args(annotation)
        metavar = metavar or ("N" if is_integer else "X")
    completion = (lambda: words) if words else None
    settings = {"metavar": metavar, "help": text, "autocompletion": completion}
    typer_option = option(extra["part"], *flags, show_default=False, **settings)
    annotation = Annotated[annotation | None, typer_option]
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def named_value(text: str, flag: str, example: str) -> tuple[str, Any]:
    """Parse NAME=VALUE, where the value is JSON or a bare word."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"{flag}: expected NAME=VALUE, as in {example}, got '{shorten(text)}'.")
    try:
        return name, json.loads(value)
    except RecursionError:
        raise ValueError(
            f"{flag}: expected a value for {shorten(name)}, got too many nested brackets."
        ) from None
    except ValueError:  # a bare word, or a number with too many digits
        return name, value


def named_values(texts: Iterable[str] | None, flag: str, example: str) -> dict[str, Any]:
    """Parse the values of a repeated option; see `named_value`."""
    return dict(named_value(text, flag, example) for text in texts or ())


def search_settings(
    values: list[str] | None, beam_size: int | None, default_beam: int | None = None
) -> dict[str, Any]:
    """Return the search settings of a command by name; the model checks their values.

    `values` are those of `--setting`. `default_beam` is the beam size if no option sets one; with
    None, the model's default applies.
    """
    settings = named_values(values, "--setting", "length_penalty=1")
    rules = setting_rules()
    if unknown := sorted(set(settings) - set(rules)):
        raise ValueError(unknown_names("settings", unknown, rules))
    beam = settings.get("beam_size", default_beam if beam_size is None else beam_size)
    if beam is None:
        return settings
    if beam_size is not None and beam != beam_size:
        raise ValueError(
            f"beam_size: expected one value, got --beam-size {beam_size} and --setting "
            f"beam_size={beam}; give one of them."
        )
    return {**settings, "beam_size": beam}


def glossary_argument(file: Path | None) -> dict[str, Any]:
    """Return the argument `glossary` of `translate`, or no argument without a file."""
    if file is None:
        return {}
    check_input_files(glossary=file)
    from tfk_transformer.text.glossary import Glossary

    return {"glossary": Glossary.read(file)}


def open_model(model: Path) -> "BaseTranslator | BaseClassifier":
    """Open a bundle, a SavedModel folder or, without TensorFlow, an ONNX file."""
    prepare(model)
    from tfk_transformer.export.runtime.opening import load

    return load(model)


def open_translator(model: Path) -> "BaseTranslator":
    """Open a model as `open_model` does, and refuse a classifier."""
    from tfk_transformer.inference.base_translator import BaseTranslator

    opened = open_model(model)
    if not isinstance(opened, BaseTranslator):
        raise ValueError(
            f"MODEL: expected a translator, got {model}, a classifier; use the command classify."
        )
    return opened


def prepare(model: Path) -> None:
    """Load TensorFlow without its start-up messages if the model exists and requires it."""
    from tfk_transformer.export.runtime.opening import model_kind, newest_model

    if model_kind(newest_model(model)) in ("SavedModel", "bundle"):
        load_tensorflow()


def check_settings(model: Path, settings: dict[str, Any]) -> None:
    """Refuse invalid search settings before a bundle or a SavedModel is loaded, which is slow."""
    if model.is_dir():  # an ONNX file loads quickly, and its translator checks the settings
        resolve_settings(settings, setting_rules())


def check_input_files(**files: Path | None) -> None:
    """Refuse input files that do not exist, by the name of their option."""
    for name, file in files.items():
        if file is not None and not file.exists():
            raise ValueError(f"--{name}: No such file or directory: '{file}'")


def check_bundle(bundle: Path, names: Iterable[str] = ("config.json", "source.model")) -> None:
    """Refuse a folder without these files, before the backend is loaded."""
    if missing := [name for name in names if not (bundle / name).is_file()]:
        problem = f"which has no {missing[0]}" if bundle.exists() else "which does not exist"
        raise ValueError(
            f"bundle: expected a folder that `train` or `import` wrote, got {bundle}, {problem}; "
            "check the path, or convert a model of another library with `tfk-transformer import`."
        )
