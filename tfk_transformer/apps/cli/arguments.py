"""Arguments that several commands share, and checks that run before TensorFlow is loaded."""

import json
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    from rich.console import Console

    from tfk_transformer.inference.base_classifier import BaseClassifier
    from tfk_transformer.inference.base_translator import BaseTranslator

DEFAULT_BEAM = SearchSettings.beam_size
# The search settings in the help of `--setting`. `--beam-size` is a separate option.
SHOWN_SETTINGS = (*list(SETTING_DTYPES)[2:], "n_best")
MODEL_HELP = "A bundle, a SavedModel folder or an .onnx file."


class BadLines(StrEnum):
    """The action of a command for a line that it cannot process."""

    STOP = "stop"
    SKIP = "skip"
    BLANK = "blank"


# Titles of groups of options in the help.
INPUT, OUTPUT, SEARCH = "Input", "Output", "Translation"

Model = Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="The texts. Default: the lines of --input."),
]
Input = Annotated[
    Path | None,
    typer.Option(
        "--input",
        "-i",
        metavar="FILE",
        help="A UTF-8 file with one text per line: plain, .gz or .zst. Default: standard input.",
        rich_help_panel=INPUT,
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace an --output that exists.", rich_help_panel=OUTPUT)
]
OnError = Annotated[
    BadLines,
    typer.Option(
        "--on-error",
        metavar="ACTION",
        help="The action for a line that is too long for the model, is not UTF-8 or contains a "
        "NUL character: stop (with an error), skip (omit the line) or blank (write a blank line "
        "instead). skip and blank report each such line on standard error and in "
        "OUTPUT.errors.jsonl, and exit with status 0.",
        rich_help_panel=INPUT,
    ),
]
BeamSize = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help=(
            "Number of hypotheses that the search keeps for each sentence; 1 is greedy search. "
            f"Default: the model's, or else {DEFAULT_BEAM}."
        ),
        rich_help_panel=SEARCH,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        metavar="NAME=VALUE",
        help=(
            "A search setting, such as length_penalty=1. "
            f"Names: {', '.join(SHOWN_SETTINGS)}. May be repeated."
        ),
        rich_help_panel=SEARCH,
        autocompletion=lambda: [f"{name}=" for name in SHOWN_SETTINGS],
    ),
]
GlossaryFile = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        metavar="FILE",
        help=(
            "A UTF-8 file of terms and their required translations. Each line has a source term, "
            "a tab and the translation."
        ),
        rich_help_panel=SEARCH,
    ),
]
Data = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help=(
            "Text pairs: numbers:en-de, addition:2, files:SOURCE,TARGET, folder:DIR:de-en or "
            "tfds:NAME:pt-en. Files are plain or .gz."
        ),
        rich_help_panel=INPUT,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print each step with its time to standard error.")
]


def console(stderr: bool = False) -> "Console":
    """Return a console that prints texts without markup.

    Rich is imported only by the commands that print with it.
    """
    from tfk_transformer.apps.cli.escaping_console import EscapingConsole

    return EscapingConsole(stderr=stderr)


def printer(quiet: bool, as_json: bool = False) -> Callable[[str], None]:
    """Return a function that prints a line, or does nothing if `quiet` or the output is closed.

    Lines go to standard error if `as_json`, since standard output then contains only JSON.
    """
    shown = console(stderr=as_json)
    return (lambda line: None) if quiet or not shown.file.writable() else shown.print


def print_bundle(out: Path, as_json: bool, say: Callable[[str], None]) -> None:
    """Print the path of a trained bundle, or as JSON its path and metrics."""
    if not as_json:
        say(f"bundle: {out}")
        return
    file = out / "metrics.json"
    metrics = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    print(json.dumps({"bundle": str(out), **metrics}, indent=2))


def named_value(text: str, option: str, example: str) -> tuple[str, Any]:
    """Parse NAME=VALUE, where the value is JSON or a bare word.

    Raises:
        ValueError: if the text has no name or no value.
    """
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"{option}: expected NAME=VALUE, as in {example}, got '{shorten(text)}'.")
    try:
        return name, json.loads(value)
    except RecursionError:
        raise ValueError(
            f"{option}: expected a value for {shorten(name)}, got too many nested brackets."
        ) from None
    except ValueError:  # a bare word, or a number with too many digits
        return name, value


def search_settings(
    values: list[str] | None, beam_size: int | None, default_beam: int | None = None
) -> dict[str, Any]:
    """Return the search settings of a command by name; the model checks their values.

    Args:
        values: the values of `--setting`.
        beam_size: the value of `--beam-size`, or None without this option.
        default_beam: the beam size if neither option sets one. None: the model's default.

    Raises:
        ValueError: if a name is unknown, or the two options set different beam sizes.
    """
    settings = dict(named_value(text, "--setting", "length_penalty=1") for text in values or [])
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
    """Return the argument `glossary` of `translate`, or no argument without a file.

    Raises:
        ValueError: if the file does not exist or is not a glossary.
    """
    if file is None:
        return {}
    check_input_files(glossary=file)
    from tfk_transformer.text.glossary import Glossary

    return {"glossary": Glossary.read(file)}


def open_model(model: Path) -> "BaseTranslator | BaseClassifier":
    """Open a bundle, a SavedModel folder or an ONNX file.

    Opening an ONNX file does not load TensorFlow.
    """
    prepare(model)
    from tfk_transformer.export.runtime.opening import load

    return load(model)


def open_translator(model: Path) -> "BaseTranslator":
    """Open a model as `open_model` does, and refuse a classifier.

    Raises:
        ValueError: if the model is not a translator.
    """
    from tfk_transformer.inference.base_translator import BaseTranslator

    opened = open_model(model)
    if not isinstance(opened, BaseTranslator):
        raise ValueError(
            f"MODEL: expected a translator, got {model}, a classifier; use the command classify."
        )
    return opened


def open_classifier(model: Path) -> "BaseClassifier":
    """Open a model as `open_model` does, and refuse a translator.

    Raises:
        ValueError: if the model is not a classifier.
    """
    from tfk_transformer.inference.base_classifier import BaseClassifier

    opened = open_model(model)
    if not isinstance(opened, BaseClassifier):
        raise ValueError(
            f"MODEL: expected a classifier, got {model}, a translator; use the commands translate, "
            "translate-document or score."
        )
    return opened


def prepare(model: Path) -> None:
    """Load TensorFlow without its start-up messages if the model requires it.

    If no model exists at `model`, TensorFlow is not loaded, and opening `model` fails with a clear
    error.
    """
    from tfk_transformer.export.runtime.opening import model_kind, newest_model

    if model_kind(newest_model(model)) in ("SavedModel", "bundle"):
        load_tensorflow()


def check_settings(model: Path, settings: dict[str, Any]) -> None:
    """Refuse invalid search settings before a bundle or a SavedModel is loaded.

    ONNX files are not checked here: they load quickly, and their translators check the settings.

    Raises:
        ValueError: if a setting is unknown or its value is invalid.
    """
    if model.is_dir():
        resolve_settings(settings, setting_rules())


def check_input_files(**files: Path | None) -> None:
    """Refuse input files that do not exist.

    Args:
        **files: the files by the name of their option.

    Raises:
        ValueError: if a file does not exist.
    """
    for option, file in files.items():
        if file is not None and not file.exists():
            raise ValueError(f"--{option}: No such file or directory: '{file}'")


def check_training_folder(bundle: Path) -> None:
    """Refuse a folder that no training run wrote.

    Raises:
        ValueError: if the folder has no configuration.
    """
    if not (bundle / "config.json").is_file():
        raise ValueError(
            f"bundle: expected a folder that `train` wrote, got {bundle} without config.json."
        )


def check_bundle(bundle: Path) -> None:
    """Refuse a folder that is not a bundle, before the backend is loaded.

    Raises:
        ValueError: if the folder has no configuration or no tokenizer.
    """
    check_training_folder(bundle)
    if not (bundle / "source.model").is_file():
        raise ValueError(
            f"bundle: expected a folder that `train` or `import` wrote, got {bundle} without "
            "source.model; convert a model of another library with `tfk-transformer import`."
        )


def check_new_folder(out: Path, name: str = "out") -> None:
    """Refuse an output folder that exists.

    Args:
        out: the folder.
        name: the name of the argument, for the error message.

    Raises:
        ValueError: if the folder exists.
    """
    if os.path.lexists(out):  # also a link to a missing folder
        raise ValueError(
            f"{name}: expected a new folder, got {out}, which exists; choose another name or "
            "remove it."
        )
