"""Distill teachers into a student: translate the training sources, and train on the result."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfk_transformer import datasets
from tfk_transformer.atomic_write import lock
from tfk_transformer.config.search_settings import own_defaults
from tfk_transformer.evaluation import SupportsTranslate
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.pipelines.recipe import Recipe
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.training.checkpoints import check_work_folder, is_finished, work_folder_of
from tfk_transformer.training.distillation.teacher_pairs import TeacherPairs, TeacherSearch
from tfk_transformer.training.fine_tuning.start import load_start
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
    """Train a student on its data and on translations of teachers.

    This is sequence-level distillation (arXiv:1606.07947). For each training pair, the student
    learns two targets: the original one, and the hypothesis of the teachers' beam searches that is
    most similar to it by sentence BLEU.

    The folder `OUT.distilled` next to `out` contains these pairs. It is not deleted, so that other
    students can be trained on them.

    Args:
        teachers: translators in any runtime, for example from `tfk_transformer.load`.
            `translate.onnx` is the fastest, and lets TensorFlow divide the processors for training.
        recipe: the recipe of the student. The teachers translate its data. Without search settings
            of its own, the student has the first teacher's.
        out: folder of the student's bundle; it must not exist.
        beam_size: the beam size of the teachers, and the number of hypotheses of each teacher.
        batch_size: number of sentences that a teacher translates at once.
        resume: whether to continue an unfinished distillation of the same data, teachers and
            recipe; see `train`.
        say: called with each line about the translations, the data, the model and the epochs.
        bar: whether to show a progress bar of the training on a terminal.

    Returns:
        The student, whose bundle is `out`.

    Raises:
        ValueError: for bad data, an existing folder, an architecture that does not translate, an
            earlier distillation of other data, or a run that writes `out`.
        KeyboardInterrupt: if a signal asked to stop; `resume` continues.
    """
    out = Path(out)
    start = load_start(recipe, work_folder_of(out), resume)
    recipe = start.adopt(recipe) if start else recipe
    if recipe.architecture == "encoder":
        raise ValueError(
            "architecture: expected 'encoder_decoder' or 'decoder', since a classifier learns "
            "labels, got 'encoder'."
        )
    if not (recipe.search or start):
        recipe = recipe.replace(search=_teacher_search(teachers[0], recipe.max_length))
    data = datasets.load(recipe.data)
    folder = out.with_name(out.name + ".distilled")
    search = TeacherSearch(beam_size, batch_size)
    with lock(out):
        pairs = TeacherPairs(teachers, data, folder, search, resume)
        has_validation = "validation" in data.splits
        validation = recipe.validation_data or (recipe.data if has_validation else None)
        recipe = recipe.replace(data=pairs.spec, validation_data=validation)
        if not (resume and is_finished(recipe, out)):
            check_work_folder(recipe, out, resume)  # before the translations, not after them
        pairs.write(say)
        student = train(recipe, out, resume, say=say, bar=bar)
    assert isinstance(student, Translator)
    return student


def _teacher_search(teacher: SupportsTranslate, max_length: int) -> dict[str, Any]:
    """Return a teacher's own defaults of search settings, except lengths above `max_length`."""
    if not isinstance(teacher, BaseTranslator):
        return {}
    search = own_defaults(teacher.runtime.rules, teacher.max_length)
    lengths = {name: search[name] for name in ("min_length", "max_length") if name in search}
    too_long = {name for name, length in lengths.items() if length > max_length}
    return {name: value for name, value in search.items() if name not in too_long}
