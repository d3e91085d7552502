"""Distil teachers into a student: translate the training sources, and train on the result."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tfk_transformer import datasets
from tfk_transformer.distillation.teacher_pairs import TeacherPairs, TeacherSearch
from tfk_transformer.evaluation import SupportsTranslate
from tfk_transformer.fine_tuning.start import started
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.training.checkpoints import checked_work_folder, work_folder_of
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.trainer import train


def distill(
    teachers: Sequence[SupportsTranslate],
    recipe: Recipe,
    out: str | Path,
    *,
    beam_size: int = 5,
    batch_size: int = 64,
    resume: bool = False,
    say: Callable[[str], None] = print,
    bar: bool = True,
) -> Translator:
    """Train a student on its data and on what teachers make of it: sequence-level distillation
    (arXiv:1606.07947).

    For each training pair, the student learns two targets: the pair's own, and of all hypotheses of
    the teachers' beam searches the one that is most like it by sentence BLEU.

    The folder `OUT.distilled` next to `out` contains these pairs. It stays, so that other students
    can be trained on them.

    Args:
        teachers: translators in any runtime, for example from `tfk_transformer.load`.
            `translate.onnx` is the fastest, and leaves TensorFlow free to divide the processors for
            the training.
        recipe: the recipe of the student. Its data is what the teachers translate.
        out: folder of the student's bundle; it must not exist.
        beam_size: of the teachers' search; each gives as many hypotheses.
        batch_size: sentences that a teacher translates at once.
        resume: whether to continue an unfinished distillation of the same data, teachers and
            recipe.
        say: takes lines about the translations, the data, the model and each epoch.
        bar: whether a terminal shows a progress bar of the training.

    Returns:
        The student, whose bundle is `out`.

    Raises:
        ValueError: for bad data, an existing folder, an architecture that does not translate, or
            another unfinished distillation.
        KeyboardInterrupt: if a signal asked to stop; `resume` continues.
    """
    out = Path(out)
    begun = resume and work_folder_of(out).exists()  # the training, after all translations
    start = started(recipe, work_folder_of(out), begun)
    recipe = start.adopt(recipe) if start else recipe
    if recipe.architecture == "encoder":
        raise ValueError(
            "architecture: expected 'encoder_decoder' or 'decoder', since a classifier learns "
            "labels, got 'encoder'."
        )
    data = datasets.load(recipe.data)
    pairs = TeacherPairs(
        teachers, data, distilled_folder_of(out), TeacherSearch(beam_size, batch_size), resume
    )
    validation = recipe.validation_data or (recipe.data if "validation" in data.splits else None)
    recipe = recipe.replace(data=pairs.spec, validation_data=validation)
    checked_work_folder(recipe, out, begun)  # what `train` would refuse after them
    pairs.write(say)
    student = train(recipe, out, begun, say=say, bar=bar)
    assert isinstance(student, Translator)
    return student


def distilled_folder_of(out: Path) -> Path:
    """Return the path of the folder of the pairs from which the student `out` learns."""
    return out.with_name(out.name + ".distilled")
