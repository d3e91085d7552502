"""Distillation: a student learns from its data and from the translations of teachers."""

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tfk_transformer import datasets
from tfk_transformer.atomic_write import lock, replace_text
from tfk_transformer.config.search_settings import own_defaults
from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES, read_json, read_json_object
from tfk_transformer.datasets import Pair, Report, Source
from tfk_transformer.evaluation import SupportsTranslate, bleu_metric, try_translate_sentences
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.outcome import Refused
from tfk_transformer.training.checkpoints import check_work_folder, is_finished, work_folder_of
from tfk_transformer.training.fine_tuning import load_start
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.trainer import train

PAIRS_PER_PART = 1000  # pairs that are lost together if the process is killed
ABOUT_FILE = "about.json"
PART = "part-{:05d}.json"
SIDES = ("source", "target")  # languages of data that does not name them


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
    if recipe.classifies:
        raise ValueError(
            "architecture: expected 'encoder_decoder' or 'decoder', since a classifier learns "
            "labels, got 'encoder'."
        )
    teacher = teachers[0] if teachers else None
    if isinstance(teacher, BaseTranslator) and not (recipe.search or start):
        search = own_defaults(teacher.runtime.rules, teacher.max_length)
        for name in ("min_length", "max_length"):
            if search.get(name, 0) > recipe.max_length:
                del search[name]
        recipe = recipe.replace(search=search)
    data = datasets.load(recipe.data)
    data = data.undivided() if recipe.validation_data else data
    folder = out.with_name(out.name + ".distilled")
    with lock(out):
        pairs = TeacherPairs(teachers, data, folder, beam_size, batch_size, resume)
        has_validation = "validation" in data.splits and not data.note
        validation = recipe.validation_data or (recipe.data if has_validation else None)
        recipe = recipe.replace(data=pairs.spec, validation_data=validation)
        if not (resume and is_finished(recipe, out)):
            check_work_folder(recipe, out, resume)  # before the translations, not after them
        pairs.write(say)
        student = train(recipe, out, resume, say=say, bar=bar)
    assert isinstance(student, Translator)
    return student


class TeacherPairs:
    """The folder of the original pairs of a training split, followed by the pairs of the teachers.

    Pairs are translated in parts, each a file that is written atomically, so that a resumed process
    continues with the first unfinished part. Two text files then replace them.
    """

    def __init__(
        self,
        teachers: Sequence[SupportsTranslate],
        data: Source,
        folder: Path,
        beam_size: int,
        batch_size: int = 64,
        resume: bool = False,
    ):
        if not teachers:
            raise ValueError("teachers: expected at least one translator, got none.")
        self.teachers = teachers
        self.data = data
        self.folder = folder
        self.beam_size = beam_size
        self.batch_size = batch_size
        languages = data.source_language or SIDES[0], data.target_language or SIDES[1]
        self.spec = f"folder:{folder}:{'-'.join(languages)}"
        self._files = [folder / f"{language}.train.txt" for language in languages]
        self._validation = [folder / f"{language}.validation.txt" for language in languages]
        if folder.exists() and not resume:
            raise ValueError(
                f"out: expected a new folder, got {folder} of an earlier distillation. Resume it, "
                f"remove the folder, or train on its pairs with the data {self.spec}."
            )

    def write(self, say: Callable[[str], None] = print) -> None:
        """Write the folder, or the missing files in it."""
        report = Report()
        pairs = list(self.data.pairs("train", report))
        self._begin(pairs)
        if self.data.note:  # the student must not learn the pairs that are left out
            say(self.data.note)
            _write_texts(self._validation, list(self.data.pairs("validation")))
        # As recommended for single sentences.
        targets = [pair.target for pair in pairs]
        self._bleu = bleu_metric(targets, self.data.target_language, effective_order=True)
        if all(file.is_file() for file in self._files):
            for part in self.folder.glob(PART.replace("{:05d}", "*")):  # of a killed process
                part.unlink()
            return
        starts = range(0, len(pairs), PAIRS_PER_PART)
        parts = [self.folder / PART.format(number) for number in range(len(starts))]
        for start, part in zip(starts, parts, strict=True):
            batch = pairs[start : start + PAIRS_PER_PART]
            if not part.is_file():
                hypotheses = self._best_hypotheses(batch)
                replace_text(part, json.dumps(hypotheses, ensure_ascii=False))
                say(f"teachers: {start + len(batch):,} pairs are translated")
        for line in report.lines():
            say(f"train: {line}")
        self._join(pairs, parts, say)

    def _begin(self, pairs: Sequence[Pair]) -> None:
        """Create the folder, or check that an existing one was made from the same pairs."""
        if not pairs:
            raise ValueError(f"data: expected pairs to translate, got none in {self.data.name}.")
        texts = json.dumps([pair[:2] for pair in pairs]).encode()
        about = {
            "pairs": hashlib.sha256(texts).hexdigest(),
            "beam_size": self.beam_size,
            "translations": self._hypotheses(pairs[:2]),  # differ between teachers
        }
        file = self.folder / ABOUT_FILE
        if not file.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_text(file, json.dumps(about, ensure_ascii=False, indent=2) + "\n")
        elif (earlier := read_json_object(file)) != about:
            changed = ", ".join(name for name in about if earlier.get(name) != about[name])
            raise ValueError(
                f"resume: expected the distillation that {self.folder} was started with, got "
                f"one whose {changed} differ."
            )

    def _hypotheses(self, pairs: Sequence[Pair]) -> list[list[str]]:
        """Return the hypotheses of all teachers that can process its source, for each pair."""
        hypotheses: list[list[str]] = [[] for _ in pairs]
        for teacher in self.teachers:
            outcomes = try_translate_sentences(
                teacher,
                [pair.source for pair in pairs],
                batch_size=self.batch_size,
                beam_size=self.beam_size,
                n_best=self.beam_size,
            )
            for texts, outcome in zip(hypotheses, outcomes, strict=True):
                if not isinstance(outcome, Refused):
                    texts += [h.text for h in outcome.hypotheses if h.text]
        return hypotheses

    def _best_hypotheses(self, pairs: Sequence[Pair]) -> list[str | None]:
        """Return for each pair the hypothesis, if any, that is most similar to its target by BLEU.

        The paper calls this "interpolation" (section 3.3).
        """

        def best(pair: Pair, texts: list[str]) -> str | None:
            scores = {text: self._bleu.sentence_score(text, [pair.target]).score for text in texts}
            return max(scores, key=scores.__getitem__, default=None)

        return list(map(best, pairs, self._hypotheses(pairs)))

    def _join(
        self, original: Sequence[Pair], parts: Sequence[Path], say: Callable[[str], None]
    ) -> None:
        """Replace the parts by the two files."""
        targets = list(itertools.chain.from_iterable(map(_read_targets, parts)))
        both = list(zip(original, targets, strict=True))
        distilled = [(pair.source, target) for pair, target in both if target is not None]
        same = sum(pair.target == target for pair, target in both)
        say(
            f"teachers: {len(distilled):,} of {len(original):,} pairs, {same:,} of them as in the "
            "data"
        )
        _write_texts(self._files, [*original, *distilled])
        for part in parts:
            part.unlink()


def _write_texts(files: Sequence[Path], pairs: Sequence[tuple[str, ...]]) -> None:
    for side, file in enumerate(files):
        # Texts of some data sets have several lines.
        texts = [pair[side].replace("\n", " ") for pair in pairs]
        replace_text(file, "".join(f"{text}\n" for text in texts))


def _read_targets(part: Path) -> list[str | None]:
    targets = read_json(part, MAX_VOCABULARY_BYTES)
    if not isinstance(targets, list) or not all(isinstance(text, str | None) for text in targets):
        raise ValueError(f"resume: expected texts in {part}, got other values; remove it.")
    return targets
