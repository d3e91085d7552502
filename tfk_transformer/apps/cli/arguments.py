"""Arguments that several commands share, and checks that run before TensorFlow is loaded."""

import json
import os
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
    from tfk_transformer.inference.base_classifier import BaseClassifier
    from tfk_transformer.inference.base_translator import BaseTranslator

DEFAULT_BEAM = SearchSettings.beam_size
# The search settings in the help of `--setting`. `--beam-size` is a separate option.
SHOWN_SETTINGS = (*list(SETTING_DTYPES)[2:], "n_best")
MODEL_HELP = "A bundle, a SavedModel folder or an .onnx file."
INPUT, OUTPUT, SEARCH = "Input", "Output", "Translation"  # titles of groups of options


class BadLines(StrEnum):
    """The action of a command for a line that it cannot process."""

    STOP = "stop"
    SKIP = "skip"
    BLANK = "blank"


def option(panel: str | None, *flags: str, metavar: str | None = None, **settings: Any) -> Any:
    """Return an option in a group of the help page; without flags, it has its parameter's name.

    Without `help`, its help is in the docstring of the command; see `help_pages.help_of`.
    """
    return typer.Option(*flags, metavar=metavar, rich_help_panel=panel, **settings)


Model = Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="The texts. Default: the lines of --input."),
]
Input = Annotated[
    Path | None,
    option(
        INPUT,
        "--input",
        "-i",
        metavar="FILE",
        help="A UTF-8 file with one text per line: plain, .gz or .zst. Default: standard input.",
    ),
]
Force = Annotated[bool, option(OUTPUT, "--force", help="Replace an --output that exists.")]
OnError = Annotated[
    BadLines,
    option(
        INPUT,
        metavar="ACTION",
        help="The action for a line that is too long for the model, is not UTF-8 or contains a "
        "NUL character: stop (with an error), skip (omit the line) or blank (write a blank line "
        "instead). skip and blank report each such line on standard error and in "
        "OUTPUT.errors.jsonl, and exit with status 0.",
    ),
]
BeamSize = Annotated[
    int | None,
    option(
        SEARCH,
        metavar="N",
        help="Number of hypotheses that the search keeps for each sentence; 1 is greedy search. "
        f"Default: the model's, or else {DEFAULT_BEAM}.",
    ),
]
Settings = Annotated[
    list[str] | None,
    option(
        SEARCH,
        "--setting",
        metavar="NAME=VALUE",
        help="A search setting, such as length_penalty=1. "
        f"Names: {', '.join(SHOWN_SETTINGS)}. May be repeated.",
        autocompletion=lambda: [f"{name}=" for name in SHOWN_SETTINGS],
    ),
]
GlossaryFile = Annotated[
    Path | None,
    option(
        SEARCH,
        "--glossary",
        metavar="FILE",
        help="A UTF-8 file of terms and their required translations. Each line has a source term, "
        "a tab and the translation.",
    ),
]
Data = Annotated[
    str,
    option(
        INPUT,
        metavar="SPEC",
        help="Text pairs: numbers:en-de, addition:2, files:SOURCE,TARGET, folder:DIR:de-en or "
        "tfds:NAME:pt-en. Files are plain or .gz.",
    ),
]
Json = Annotated[bool, option(None, "--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, option(None, "--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[
    bool,
    option(None, "--verbose", "-v", help="Print each step with its time to standard error."),
]


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


def search_settings(
    values: list[str] | None, beam_size: int | None, default_beam: int | None = None
) -> dict[str, Any]:
    """Return the search settings of a command by name; the model checks their values.

    `values` are those of `--setting`. `default_beam` is the beam size if no option sets one, and
    None the model's default.
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
    """Return the argument `glossary` of `translate`, or no argument without a file."""
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
    """Open a model as `open_model` does, and refuse a classifier."""
    from tfk_transformer.inference.base_translator import BaseTranslator

    opened = open_model(model)
    if not isinstance(opened, BaseTranslator):
        raise ValueError(
            f"MODEL: expected a translator, got {model}, a classifier; use the command classify."
        )
    return opened


def open_classifier(model: Path) -> "BaseClassifier":
    """Open a model as `open_model` does, and refuse a translator."""
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

    A model that does not exist requires nothing: opening it fails with a clear error.
    """
    from tfk_transformer.export.runtime.opening import model_kind, newest_model

    if model_kind(newest_model(model)) in ("SavedModel", "bundle"):
        load_tensorflow()


def check_settings(model: Path, settings: dict[str, Any]) -> None:
    """Refuse invalid search settings before a bundle or a SavedModel is loaded.

    ONNX files load quickly, and their translators check the settings.
    """
    if model.is_dir():
        resolve_settings(settings, setting_rules())


def check_input_files(**files: Path | None) -> None:
    """Refuse input files that do not exist, by the name of their option."""
    for name, file in files.items():
        if file is not None and not file.exists():
            raise ValueError(f"--{name}: No such file or directory: '{file}'")


def check_training_folder(bundle: Path) -> None:
    """Refuse a folder that no training run wrote."""
    if not (bundle / "config.json").is_file():
        raise ValueError(
            f"bundle: expected a folder that `train` wrote, got {bundle} without config.json."
        )


def check_bundle(bundle: Path) -> None:
    """Refuse a folder that is not a bundle, before the backend is loaded."""
    check_training_folder(bundle)
    if not (bundle / "source.model").is_file():
        raise ValueError(
            f"bundle: expected a folder that `train` or `import` wrote, got {bundle} without "
            "source.model; convert a model of another library with `tfk-transformer import`."
        )


def check_new_folder(out: Path, name: str = "out") -> None:
    """Refuse an output folder that exists; `name` is that of the argument."""
    if os.path.lexists(out):  # also a link to a missing folder
        raise ValueError(
            f"{name}: expected a new folder, got {out}, which exists; choose another name or "
            "remove it."
        )
