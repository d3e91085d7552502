"""`tfk-transformer plot`: a command for each type of picture."""

import os
import warnings
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer import plots  # each plot is loaded when it is used
from tfk_transformer.apps.cli import arguments
from tfk_transformer.apps.cli.arguments import check_bundle, option
from tfk_transformer.apps.cli.main import lock_output
from tfk_transformer.atomic_write import atomic_write
from tfk_transformer.config.small_files import read_json_object
from tfk_transformer.runtime_environment import load_backend

PLOT_EXAMPLES = """
tfk-transformer plot attention translate.onnx 'forty-two' -o attention.png
# Every layer and head in one page
tfk-transformer plot attention numbers 'forty-two' -o attention.html
tfk-transformer plot alignment translate.onnx 'forty-two' -o alignment.svg
# Two training runs in one picture
tfk-transformer plot training numbers numbers-2 -o training.png
tfk-transformer plot schedule recipe.toml --steps 20000 -o schedule.png
tfk-transformer plot positions --model-dim 128 -o positions.png
tfk-transformer plot model numbers -o model.svg
"""
PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
PAGE_SUFFIX = ".html"
AttentionType = StrEnum("AttentionType", ["CROSS", "ENCODER", "DECODER"])
# The position encodings for which a table can be computed.
PositionTable = StrEnum(
    "PositionTable", ["SINUSOIDAL", "SINUSOIDAL_HALVES", "SINUSOIDAL_PAPER_HALVES"]
)
OUT = "The output file: .png, .svg or .pdf; for attention also .html."
Out = Annotated[Path, option(None, "--out", "-o", metavar="FILE", help=OUT)]
Force = Annotated[bool, option(None, "--force", help="Replace an --out that exists.")]
Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle.")]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="A sentence.")]
KIND = option(None, "--kind", metavar="KIND", help=f"Without a bundle: {', '.join(PositionTable)}.")

plot_command = typer.Typer(
    help="Draw attention, alignments, training runs, schedules, positions and models. See "
    "docs/pictures.md.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@plot_command.command("attention")
def plot_attention(
    model: arguments.Model,
    text: Text,
    out: Out,
    translation: Annotated[str | None, option(None, "--translation", metavar="TEXT")] = None,
    attention_type: Annotated[AttentionType | None, option(None, "--kind", metavar="KIND")] = None,
    layer: Annotated[int | None, option(None, metavar="N")] = None,
    head: Annotated[int | None, option(None, metavar="N")] = None,
    mean: Annotated[bool, option(None, "--mean")] = False,
    beam_size: arguments.BeamSize = None,
    setting: arguments.Settings = None,
    force: Force = False,
) -> None:
    """Draw the attention between the tokens of a sentence and its translation.

    A picture (.png, .svg, .pdf) shows the heads of one layer. A page (.html) shows every layer and
    head, and needs no other files. SavedModels and ONNX files contain only the decoder's attention
    to the source; a bundle also contains the self-attention of encoder and decoder.

    Args:
        translation: Show the attention of this translation. Default: the model's best translation.
        attention_type: Attention from the decoder to the source (cross), or inside encoder or
            decoder. Default: cross, if the model has it.
        layer: The layer, from 1; -1 is the last. Default: the last.
        head: The head, from 1; -1 is the last. Default: all, side by side.
        mean: Show the mean of all heads, of one --layer or of all layers.
    """
    page = check_picture(out, force, pages=True)
    heads = attention_type, layer, head, mean
    if page and heads != (None, None, None, False):
        raise ValueError(
            f"--out: expected a picture with --kind, --layer, --head or --mean, got {out}; a page "
            "always shows every layer and head."
        )
    settings = arguments.search_settings(setting, beam_size)
    arguments.check_settings(model, settings)
    attention = plots.attention_of(arguments.open_translator(model), text, translation, **settings)
    if page:
        with atomic_write(out) as new:
            new.write_text(plots.attention_page(attention), encoding="utf-8")
    else:
        write_picture(lambda: plots.attention_figure(attention, *heads), out)
    if attention.missing:
        typer.echo(f"note: {attention.missing}", err=True)


@plot_command.command("alignment")
def plot_alignment(
    model: arguments.Model,
    text: Text,
    out: Out,
    beam_size: arguments.BeamSize = None,
    setting: arguments.Settings = None,
    force: Force = False,
) -> None:
    """Draw lines between the words of a sentence and the words of its translation, by the mean
    attention of all layers and heads.
    """
    check_picture(out, force)
    settings = arguments.search_settings(setting, beam_size)
    arguments.check_settings(model, settings)
    translations = arguments.open_translator(model).translate(
        [text], attention=True, split_sentences=False, **settings
    )
    write_picture(lambda: plots.alignment(translations[0]), out)


@plot_command.command("training")
def plot_training(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE")],
    out: Out,
    force: Force = False,
) -> None:
    """Draw the losses of training runs by epoch, and BLEU where it was measured, in one picture.

    Args:
        bundles: The bundles of one or more training runs.
    """
    check_picture(out, force)
    runs: dict[str, Any] = {}
    for bundle in bundles:
        check_bundle(bundle, ["config.json"])
        history = read_json_object(bundle / "history.json")
        if not history or not all(map(_are_numbers, history.values())):
            raise ValueError(
                f"bundle: expected a bundle that `train` wrote, got {bundle}, whose history.json "
                "does not have a list of numbers for each metric."
            )
        runs[bundle.name if bundle.name not in runs else str(bundle)] = history
    write_picture(lambda: plots.training_curves(runs), out)


@plot_command.command("schedule")
def plot_schedule(
    recipes: Annotated[list[Path], typer.Argument(metavar="RECIPE")],
    out: Out,
    steps: Annotated[int | None, option(None, metavar="N", min=1)] = None,
    force: Force = False,
) -> None:
    """Draw the learning rate of each training step.

    Args:
        recipes: TOML files.
        steps: Number of training steps of the whole run. Default: epochs times epoch_steps if the
            recipe sets epoch_steps, or ten times the warm-up if the schedule has no end.
    """
    check_picture(out, force)
    from tfk_transformer.training.recipe import Recipe

    by_name = {path.stem: Recipe.read(path) for path in recipes}
    lengths = {name: steps or _length(name, recipe) for name, recipe in by_name.items()}
    load_backend()
    from tfk_transformer.training import compilation

    schedules = {
        name: compilation.schedule(recipe, lengths[name]) for name, recipe in by_name.items()
    }
    write_picture(lambda: plots.learning_rates(schedules, max(lengths.values())), out)


def _length(name: str, recipe: Any) -> int:
    """Return the number of training steps."""
    if recipe.epoch_steps:
        return int(recipe.epochs * recipe.epoch_steps)
    if recipe.schedule == "inverse_sqrt":
        return int(10 * recipe.warmup_steps * recipe.accumulate)
    raise ValueError(
        f"--steps: expected the number of training steps, got none; the schedule "
        f"'{recipe.schedule}' of {name} depends on it, and the recipe does not set it: add "
        "--steps N."
    )


@plot_command.command("positions")
def plot_positions(
    out: Out,
    model: Annotated[Path | None, typer.Argument(metavar="BUNDLE")] = None,
    encoding: Annotated[PositionTable, KIND] = PositionTable.SINUSOIDAL,
    length: Annotated[int, option(None, metavar="N", min=1)] = 100,
    model_dim: Annotated[int, option(None, metavar="N", min=1)] = 128,
    force: Force = False,
) -> None:
    """Draw the vectors that are added to the embeddings at each position.

    Args:
        model: The bundle whose positions are drawn.
        length: The number of positions.
        model_dim: Without a bundle: the width of the embeddings.
    """
    check_picture(out, force)
    if model is not None:
        check_bundle(model)
    load_backend()
    from tfk_transformer.layers import position_table

    if model is None:
        table = position_table(encoding, length, model_dim)
        title = f"{encoding.value.replace('_', ' ')} positions"
    else:
        opened: Any = arguments.open_model(model)
        table, title = plots.positions_of(opened.model, length)
    write_picture(lambda: plots.position_encodings(table, title=title), out)


@plot_command.command("model")
def plot_model(bundle: Bundle, out: Out, force: Force = False) -> None:
    """Draw the layers of a model with their output shapes and numbers of parameters."""
    check_picture(out, force)
    check_bundle(bundle)
    opened: Any = arguments.open_model(bundle)
    write_picture(lambda: plots.model_layers(opened.model), out)


def _are_numbers(values: Any) -> bool:
    """Return whether a value from a file is a list of numbers, or null where one is missing."""
    numbers = (int, float, type(None))
    return isinstance(values, list) and all(isinstance(value, numbers) for value in values)


def check_picture(out: Path, force: bool, pages: bool = False) -> bool:
    """Check and lock an output, and return whether it is an HTML page, which `pages` allows."""
    suffixes = (*PICTURE_SUFFIXES, PAGE_SUFFIX) if pages else PICTURE_SUFFIXES
    if out.suffix.lower() not in suffixes:
        raise ValueError(f"--out: expected a file that ends in {', '.join(suffixes)}, got {out}.")
    if out.is_dir():
        raise ValueError(f"--out: expected a file, got the folder {out}; name a file in it.")
    lock_output(out, "--out")
    if os.path.lexists(out) and not force:
        raise ValueError(
            f"--out: expected a new file, got {out}, which exists; give another name, or --force "
            "to replace it."
        )
    return out.suffix.lower() == PAGE_SUFFIX


def write_picture(draw: Callable[[], Any], out: Path) -> None:
    """Write a figure; print warnings of matplotlib and of this library as notes."""
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always", UserWarning)
        figure = draw()
        with atomic_write(out) as new:
            figure.savefig(new, dpi=120)
    notes = [str(warning.message) for warning in recorded if warning.category is UserWarning]
    for note in dict.fromkeys(notes):
        typer.echo(f"note: {note}", err=True)
