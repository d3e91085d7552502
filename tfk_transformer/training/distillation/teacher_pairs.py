"""Training pairs whose targets are translations of teachers.

This is sequence-level distillation (arXiv:1606.07947).
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tfk_transformer.atomic_write import replace_text
from tfk_transformer.datasets import Pair, Report, Source
from tfk_transformer.evaluation import SupportsTranslate, bleu_metric, translate_sentences
from tfk_transformer.text.outcome import TextError
from tfk_transformer.text.results import Translation

PAIRS_PER_PART = 1000  # pairs that are lost together if the process is killed
ABOUT_FILE = "about.json"
PART = "part-{:05d}.json"
SIDES = ("source", "target")  # languages of data that does not name them


class TeacherSearch(NamedTuple):
    """Search settings of the teachers."""

    beam_size: int
    batch_size: int = 64


class TeacherPairs:
    """The folder of the original pairs of a training split, followed by the pairs of the teachers.

    Pairs are translated in parts. Each part is a file that is written atomically, so that a resumed
    process continues with the first unfinished part. When all parts exist, two text files replace
    them: the data of the student.

    Args:
        teachers: the translators, in any runtime.
        data: the pairs to translate.
        folder: the folder to write.
        search: the search settings of the teachers.
        resume: whether to use existing parts.

    Raises:
        ValueError: if there are no teachers, if the folder exists and `resume` is False, or if it
            was made from other pairs, by other teachers or with another search.
    """

    def __init__(
        self,
        teachers: Sequence[SupportsTranslate],
        data: Source,
        folder: Path,
        search: TeacherSearch,
        resume: bool = False,
    ):
        if not teachers:
            raise ValueError("teachers: expected at least one translator, got none.")
        self.teachers = teachers
        self.data = data
        self.folder = folder
        self.search = search
        languages = data.source_language or SIDES[0], data.target_language or SIDES[1]
        self.spec = f"folder:{folder}:{'-'.join(languages)}"
        self._files = [folder / f"{language}.train.txt" for language in languages]
        if folder.exists() and not resume:
            raise ValueError(
                f"out: expected a new folder, got {folder} of an earlier distillation. Resume it, "
                f"remove the folder, or train on its pairs with the data {self.spec}."
            )

    def write(self, say: Callable[[str], None] = print) -> None:
        """Write the folder, or the missing files in it.

        Args:
            say: called with each line about dropped pairs, the progress and the translations.
        """
        report = Report()
        pairs = list(self.data.pairs("train", report))
        self._begin(pairs)
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
        """Create the folder, or check that an existing one was made from the same pairs.

        Raises:
            ValueError: if there are no pairs, or if pairs, teachers or search differ.
        """
        if not pairs:
            raise ValueError(f"data: expected pairs to translate, got none in {self.data.name}.")
        texts = json.dumps([pair[:2] for pair in pairs]).encode()
        about = {
            "pairs": hashlib.sha256(texts).hexdigest(),
            "beam_size": self.search.beam_size,
            "translations": self._hypotheses(pairs[:2]),  # differ between teachers
        }
        file = self.folder / ABOUT_FILE
        if not file.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_text(file, json.dumps(about, ensure_ascii=False, indent=2) + "\n")
        elif (earlier := json.loads(file.read_text(encoding="utf-8"))) != about:
            changed = ", ".join(name for name in about if earlier.get(name) != about[name])
            raise ValueError(
                f"resume: expected the distillation that {self.folder} was started with, got "
                f"one whose {changed} differ."
            )

    def _hypotheses(self, pairs: Sequence[Pair]) -> list[list[str]]:
        """Return the hypotheses of all teachers for each pair.

        A source that a teacher cannot process has no hypotheses of this teacher.
        """
        sources = {number: pair.source for number, pair in enumerate(pairs)}
        hypotheses: list[list[str]] = [[] for _ in pairs]
        for teacher in self.teachers:
            for number, translation in self._translate(teacher, sources).items():
                hypotheses[number] += [h.text for h in translation.hypotheses if h.text]
        return hypotheses

    def _translate(
        self, teacher: SupportsTranslate, sources: Mapping[int, str]
    ) -> dict[int, Translation]:
        """Return the translations of the sources that a teacher can process, by number."""
        numbers = list(sources)
        try:
            translations = translate_sentences(
                teacher,
                list(sources.values()),
                batch_size=self.search.batch_size,
                beam_size=self.search.beam_size,
                n_best=self.search.beam_size,
            )
            return dict(zip(numbers, translations, strict=True))
        except TextError as error:
            if error.results or len(error.reasons) == len(sources):
                return {numbers[index]: result for index, result in error.results.items()}
            # The teacher translated nothing, since it cannot process some texts.
            readable = {
                number: sources[number]
                for index, number in enumerate(numbers)
                if index not in error.reasons
            }
        return self._translate(teacher, readable)

    def _best_hypotheses(self, pairs: Sequence[Pair]) -> list[str | None]:
        """Return, for each pair, the hypothesis that is most similar to its target by BLEU.

        The paper calls this "interpolation" (section 3.3). The result is None for a pair without
        hypotheses.
        """
        return [
            max(
                texts,
                key=lambda text: self._bleu.sentence_score(text, [pair.target]).score,
                default=None,
            )
            for pair, texts in zip(pairs, self._hypotheses(pairs), strict=True)
        ]

    def _join(
        self, original: Sequence[Pair], parts: Sequence[Path], say: Callable[[str], None]
    ) -> None:
        """Replace the parts by the two files."""
        results = (json.loads(part.read_text(encoding="utf-8")) for part in parts)
        targets: list[str | None] = list(itertools.chain.from_iterable(results))
        distilled = [
            (pair.source, target)
            for pair, target in zip(original, targets, strict=True)
            if target is not None
        ]
        same = sum(pair.target == target for pair, target in zip(original, targets, strict=True))
        say(
            f"teachers: {len(distilled):,} of {len(original):,} pairs, {same:,} of them as in the "
            "data"
        )
        for side, file in enumerate(self._files):
            # Texts of TensorFlow Datasets may have several lines.
            texts = [pair[side].replace("\n", " ") for pair in [*original, *distilled]]
            replace_text(file, "".join(f"{text}\n" for text in texts))
        for part in parts:
            part.unlink()
