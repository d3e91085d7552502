"""`tfk-transformer distill`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.apps.cli.arguments import (
    MODEL_HELP,
    OUTPUT,
    Json,
    Quiet,
    open_translator,
    print_bundle,
    printer,
)
from tfk_transformer.apps.cli.model_commands.recipe_flags import (
    check_data,
    read_recipe,
    with_recipe,
)
from tfk_transformer.atomic_write import lock
from tfk_transformer.runtime_environment import load_backend, use_onednn

DISTILLATION = "Distillation"  # title of a group of options in the help
EXAMPLES = """
tfk-transformer distill numbers --recipe student.toml --out student
# Learn the best hypothesis of two teachers.
tfk-transformer distill numbers numbers-2 --recipe student.toml -o student
"""


@with_recipe
def command(
    teachers: Annotated[
        list[Path],
        typer.Argument(
            metavar="TEACHER",
            help=f"{MODEL_HELP} The student learns the best hypothesis of all teachers.",
        ),
    ],
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The student's TOML file. Options on the command line override its values.",
            rich_help_panel=DISTILLATION,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="The folder for the student's bundle. It must not exist.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help=(
                "Continue an interrupted distillation. Without one, begin; after its end, do "
                "nothing."
            ),
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    beam_size: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of hypotheses per teacher and sentence.",
            rich_help_panel=DISTILLATION,
        ),
    ] = 5,
    json_output: Json = False,
    quiet: Quiet = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Train a small student on the translations of teachers, and on the original pairs.

    For each training sentence, the student learns the hypothesis that is closest to the
    translation in the data (sequence-level distillation, arXiv:1606.07947). The folder
    OUT.distilled contains these pairs.
    """
    student_recipe = read_recipe(recipe, overrides)
    if out is None:
        raise ValueError("--out: expected a folder for the bundle, got none; add --out DIR.")
    say = printer(quiet, json_output)
    with lock(out):
        check_data(student_recipe, out, resume, None)
        use_onednn()  # a teacher may load TensorFlow
        models = [open_translator(teacher) for teacher in teachers]
        load_backend()
        from tfk_transformer.training.distillation import distill

        try:
            distill(
                models,
                student_recipe,
                out,
                beam_size=beam_size,
                resume=resume,
                say=say,
                bar=not (quiet or json_output),
            )
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    print_bundle(out, json_output, say)
