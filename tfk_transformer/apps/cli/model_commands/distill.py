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
    option,
)
from tfk_transformer.apps.cli.model_commands.train import (
    check_data,
    print_bundle,
    printer,
    read_recipe,
    required_out,
    with_recipe,
)
from tfk_transformer.atomic_write import lock
from tfk_transformer.runtime_environment import load_backend, use_onednn

DISTILLATION = "Distillation"  # title of a group of options in the help
TEACHERS = f"{MODEL_HELP} The student learns the best hypothesis of all teachers."
EXAMPLES = """
tfk-transformer distill numbers --recipe student.toml --out student
# Learn the best hypothesis of two teachers.
tfk-transformer distill numbers numbers-2 --recipe student.toml -o student
"""


@with_recipe
def command(
    teachers: Annotated[list[Path], typer.Argument(metavar="TEACHER", help=TEACHERS)],
    recipe: Annotated[Path | None, option(DISTILLATION, metavar="FILE")] = None,
    out: Annotated[Path | None, option(OUTPUT, "--out", "-o", metavar="DIR")] = None,
    resume: Annotated[bool, option(OUTPUT, "--resume")] = False,
    beam_size: Annotated[int, option(DISTILLATION, metavar="N", min=1)] = 5,
    json_output: Json = False,
    quiet: Quiet = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Train a small student on the translations of teachers, and on the original pairs.

    For each training sentence, the student learns the hypothesis that is closest to the
    translation in the data (sequence-level distillation, arXiv:1606.07947). The folder
    OUT.distilled contains these pairs.

    Args:
        recipe: The student's TOML file. Options on the command line override its values.
        out: The folder for the student's bundle. It must not exist.
        resume: Continue an interrupted distillation. Without one, begin; after its end, do nothing.
        beam_size: Number of hypotheses per teacher and sentence.
    """
    student_recipe = read_recipe(recipe, overrides)
    out = required_out(out)
    say = printer(quiet, json_output)
    with lock(out):
        check_data(student_recipe, out, resume, None)
        use_onednn()  # a teacher may load TensorFlow
        models = [open_translator(teacher) for teacher in teachers]
        load_backend()
        from tfk_transformer.training.distillation import distill

        bar = not (quiet or json_output)
        distill(models, student_recipe, out, beam_size=beam_size, resume=resume, say=say, bar=bar)
    print_bundle(out, json_output, say)
