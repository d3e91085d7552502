"""`tfk-transformer plot`: a command for each type of picture."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.apps.cli.arguments import (
    BeamSize,
    Model,
    Settings,
    check_bundle,
    check_settings,
    check_training_folder,
    open_model,
    open_translator,
    search_settings,
)
from tfk_transformer.apps.cli.picture_commands.picture_files import (
    Force,
    Out,
    check_picture,
    write_html,
    write_picture,
)
from tfk_transformer.config.small_files import read_json_object
from tfk_transformer.runtime_environment import load_backend

EXAMPLES = """
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

command = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@command.callback(
    help=(
        "Draw attention, alignments, training runs, schedules, positions and models. See "
        "docs/pictures.md."
    )
)
def _group() -> None:
    pass


class AttentionType(StrEnum):
    """The type of attention."""

    CROSS = "cross"
    ENCODER = "encoder"
    DECODER = "decoder"


class PositionTable(StrEnum):
    """A position encoding for which a table can be computed."""

    SINUSOIDAL = "sinusoidal"
    HALVES = "sinusoidal_halves"
    PAPER_HALVES = "sinusoidal_paper_halves"


Text = Annotated[str, typer.Argument(metavar="TEXT", help="A sentence.")]
TargetText = Annotated[
    str | None,
    typer.Option(
        "--translation",
        metavar="TEXT",
        help="Show the attention of this translation. Default: the model's best translation.",
    ),
]


@command.command("attention")
def plot_attention(
    model: Model,
    text: Text,
    out: Out,
    translation: TargetText = None,
    attention_type: Annotated[
        AttentionType | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help=(
                "Attention from the decoder to the source (cross), or inside encoder or decoder. "
                "Default: cross, if the model has it."
            ),
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(metavar="N", help="The layer, from 1; -1 is the last. Default: the last."),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The head, from 1; -1 is the last. Default: all, side by side."
        ),
    ] = None,
    mean: Annotated[
        bool,
        typer.Option("--mean", help="Show the mean of all heads, of one --layer or of all layers."),
    ] = False,
    beam_size: BeamSize = None,
    setting: Settings = None,
    force: Force = False,
) -> None:
    """Draw the attention between the tokens of a sentence and its translation.

    A picture (.png, .svg, .pdf) shows the heads of one layer. A page (.html) shows every layer and
    head, and needs no other files. SavedModels and ONNX files contain only the decoder's attention
    to the source; a bundle also contains the self-attention of encoder and decoder.
    """
    page = check_picture(out, force, pages=True)
    if page and (attention_type, layer, head, mean) != (None, None, None, False):
        raise ValueError(
            f"--out: expected a picture with --kind, --layer, --head or --mean, got {out}; a page "
            "always shows every layer and head."
        )
    settings = search_settings(setting, beam_size)
    check_settings(model, settings)
    from tfk_transformer.plots import attention_of

    attention = attention_of(open_translator(model), text, translation, **settings)
    if page:
        from tfk_transformer.plots import attention_page

        write_html(attention_page(attention), out)
    else:
        from tfk_transformer.plots import attention_figure

        write_picture(lambda: attention_figure(attention, attention_type, layer, head, mean), out)
    if attention.missing:
        typer.echo(f"note: {attention.missing}", err=True)


@command.command("alignment")
def plot_alignment(
    model: Model,
    text: Text,
    out: Out,
    beam_size: BeamSize = None,
    setting: Settings = None,
    force: Force = False,
) -> None:
    """Draw lines between the words of a sentence and the words of its translation, by the mean
    attention of all layers and heads.
    """
    check_picture(out, force)
    settings = search_settings(setting, beam_size)
    check_settings(model, settings)
    translations = open_translator(model).translate(
        [text], attention=True, split_sentences=False, **settings
    )
    from tfk_transformer import plots

    write_picture(lambda: plots.alignment(translations[0]), out)


@command.command("training")
def plot_training(
    bundles: Annotated[
        list[Path],
        typer.Argument(metavar="BUNDLE", help="The bundles of one or more training runs."),
    ],
    out: Out,
    force: Force = False,
) -> None:
    """Draw the losses of training runs by epoch, and BLEU where it was measured, in one picture."""
    check_picture(out, force)
    runs: dict[str, Any] = {}
    for bundle in bundles:
        check_training_folder(bundle)
        history = read_json_object(bundle / "history.json")
        if not history or not all(map(_are_numbers, history.values())):
            raise ValueError(
                f"bundle: expected a bundle that `train` wrote, got {bundle}, whose history.json "
                "does not have a list of numbers for each metric."
            )
        runs[bundle.name if bundle.name not in runs else str(bundle)] = history
    from tfk_transformer import plots

    write_picture(lambda: plots.training_curves(runs), out)


@command.command("schedule")
def plot_schedule(
    recipes: Annotated[list[Path], typer.Argument(metavar="RECIPE", help="TOML files.")],
    out: Out,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of training steps of the whole run. Default: epochs times epoch_steps if "
            "the recipe sets epoch_steps, or ten times the warm-up if the schedule has no end.",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Draw the learning rate of each training step."""
    check_picture(out, force)
    from tfk_transformer.training.recipe import Recipe

    by_name = {path.stem: Recipe.read(path) for path in recipes}
    lengths = {name: steps or _length(name, recipe) for name, recipe in by_name.items()}
    load_backend()
    from tfk_transformer import plots
    from tfk_transformer.training import compilation

    schedules = {
        name: compilation.schedule(recipe, lengths[name]) for name, recipe in by_name.items()
    }
    write_picture(lambda: plots.learning_rates(schedules, max(lengths.values())), out)


def _length(name: str, recipe: Any) -> int:
    """Return the number of training steps of a recipe."""
    if recipe.epoch_steps:
        return int(recipe.epochs * recipe.epoch_steps)
    if recipe.schedule == "inverse_sqrt":
        return int(10 * recipe.warmup_steps * recipe.accumulate)
    raise ValueError(
        f"--steps: expected the number of training steps, got none; the schedule "
        f"'{recipe.schedule}' of {name} depends on it, and the recipe does not set it: add "
        "--steps N."
    )


@command.command("positions")
def plot_positions(
    out: Out,
    model: Annotated[
        Path | None, typer.Argument(metavar="BUNDLE", help="The bundle whose positions are drawn.")
    ] = None,
    encoding: Annotated[
        PositionTable,
        typer.Option(
            "--kind", metavar="KIND", help=f"Without a bundle: {', '.join(PositionTable)}."
        ),
    ] = PositionTable.SINUSOIDAL,
    length: Annotated[int, typer.Option(metavar="N", min=1, help="The number of positions.")] = 100,
    model_dim: Annotated[
        int, typer.Option(metavar="N", min=1, help="Without a bundle: the width of the embeddings.")
    ] = 128,
    force: Force = False,
) -> None:
    """Draw the vectors that are added to the embeddings at each position."""
    check_picture(out, force)
    if model is not None:
        check_bundle(model)
    load_backend()
    from tfk_transformer import plots
    from tfk_transformer.layers.positions import position_table

    if model is None:
        table = position_table(encoding, length, model_dim)
        title = f"{encoding.value.replace('_', ' ')} positions"
    else:
        table, title = plots.positions_of(_model_of(model), length)
    write_picture(lambda: plots.position_encodings(table, title=title), out)


@command.command("model")
def plot_model(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle.")],
    out: Out,
    force: Force = False,
) -> None:
    """Draw the layers of a model with their output shapes and numbers of parameters."""
    check_picture(out, force)
    check_bundle(bundle)
    keras_model = _model_of(bundle)
    from tfk_transformer import plots

    write_picture(lambda: plots.model_layers(keras_model), out)


def _model_of(bundle: Path) -> Any:
    pipeline: Any = open_model(bundle)
    return pipeline.model


def _are_numbers(values: Any) -> bool:
    """Return whether a value from a file is a list of numbers, or null where one is missing."""
    return isinstance(values, list) and all(
        value is None or isinstance(value, int | float) for value in values
    )
