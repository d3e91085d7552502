"""Training pairs whose targets are teachers' translations (sequence-level distillation,
arXiv:1606.07947).
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sacrebleu.metrics import BLEU

from tfk_transformer.atomic_write import written_whole
from tfk_transformer.datasets import Pair, Report, Source
from tfk_transformer.evaluation import SupportsTranslate
from tfk_transformer.inference.results import Translation
from tfk_transformer.inference.text_errors import TextError

# Pairs that are translated together, and lost together if the process is killed.
PAIRS_PER_PART = 1000
ABOUT, PART = "about.json", "part-{:05d}.json"
SIDES = ("source", "target")  # names of the languages of a source that does not tell them


class TeacherSearch(NamedTuple):
    """How teachers translate."""

    beam_size: int
    batch_size: int = 64


class TeacherPairs:
    """The folder of the original pairs of a training split, followed by those of the teachers.

    Pairs are translated in parts. Each part is a file that is written in one step, so that a killed
    process continues with the part that it had not finished. When all parts are there, they are
    replaced by two files of text, the data of the student.

    Args:
        teachers: the translators, in any runtime.
        data: the pairs to translate.
        folder: the folder to write.
        search: how to translate.
        resume: whether to use the parts that are there.

    Raises:
        ValueError: if there is no teacher, if the folder exists and `resume` is False, or if it was
            made of other pairs, by other teachers or another search.
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
        self._bleu = BLEU(effective_order=True)  # of a sentence
        languages = data.source_language or SIDES[0], data.target_language or SIDES[1]
        self.spec = f"folder:{folder}:{'-'.join(languages)}"
        self._files = [folder / f"{language}.train.txt" for language in languages]
        if folder.exists() and not resume:
            raise ValueError(
                f"out: expected no {folder}, which an earlier distillation left. Resume it, remove "
                "the folder, or train on its pairs "
                f"with the data {self.spec}."
            )

    def write(self, say: Callable[[str], None] = print) -> None:
        """Write the folder, or what is missing in it.

        Args:
            say: takes lines about the dropped pairs, the progress and the teachers' translations.
        """
        report = Report()
        pairs = list(self.data.pairs("train", report))
        self._begin(pairs)
        if all(file.is_file() for file in self._files):
            return
        parts = {
            self.folder / PART.format(first // PAIRS_PER_PART): pairs[
                first : first + PAIRS_PER_PART
            ]
            for first in range(0, len(pairs), PAIRS_PER_PART)
        }
        done = 0
        for part, some in parts.items():
            done += len(some)
            if not part.is_file():
                with written_whole(part) as new:
                    new.write_text(
                        json.dumps(self._chosen(some), ensure_ascii=False), encoding="utf-8"
                    )
                say(f"teachers: {done:,} pairs are translated")
        for line in report.lines():
            say(f"train: {line}")
        self._join(pairs, list(parts), say)

    def _begin(self, pairs: Sequence[Pair]) -> None:
        """Make the folder; or check that what is in it was made of the same pairs in the same
        way.
        """
        if not pairs:
            raise ValueError(f"data: expected pairs to translate, got none in {self.data.name}.")
        texts = json.dumps([pair[:2] for pair in pairs]).encode()
        about = {
            "pairs": hashlib.sha256(texts).hexdigest(),
            "beam_size": self.search.beam_size,
            "translations": self._candidates(pairs[:2]),  # by which teachers are told apart
        }
        file = self.folder / ABOUT
        if not file.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            with written_whole(file) as new:
                new.write_text(
                    json.dumps(about, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
                )
        elif (earlier := json.loads(file.read_text(encoding="utf-8"))) != about:
            changed = ", ".join(name for name in about if earlier.get(name) != about[name])
            raise ValueError(
                f"resume: expected the distillation that {self.folder} was started with, got "
                f"another ({changed} differ)."
            )

    def _candidates(self, pairs: Sequence[Pair]) -> list[list[str]]:
        """Return the hypotheses of all teachers for each pair; none for a source that is too long
        for them.
        """
        found: list[list[str]] = [[] for _ in pairs]
        for teacher in self.teachers:
            for place, translation in self._translations(
                teacher, dict(enumerate(pair.source for pair in pairs))
            ).items():
                found[place] += [
                    hypothesis.text for hypothesis in translation.hypotheses if hypothesis.text
                ]
        return found

    def _translations(
        self, teacher: SupportsTranslate, sources: Mapping[int, str]
    ) -> dict[int, Translation]:
        """Return the translations of those sources that a teacher can read, by number."""
        numbers, beam = list(sources), self.search.beam_size
        try:
            found = teacher.translate(
                list(sources.values()),
                batch_size=self.search.batch_size,
                beam_size=beam,
                n_best=beam,
            )
            return dict(zip(numbers, found, strict=True))
        except TextError as error:
            if error.results or len(error.reasons) == len(sources):
                return {numbers[place]: translation for place, translation in error.results.items()}
            # The teacher refused all for the sake of some.
            readable = {
                number: text
                for place, (number, text) in enumerate(sources.items())
                if place not in error.reasons
            }
        return self._translations(teacher, readable)

    def _chosen(self, pairs: Sequence[Pair]) -> list[str | None]:
        """Return, for each pair, the hypothesis that is most like its target by BLEU
        ("interpolation", section 3.3); None without any.
        """

        def best(pair: Pair, texts: list[str]) -> str | None:
            return max(
                texts,
                key=lambda text: self._bleu.sentence_score(text, [pair.target]).score,
                default=None,
            )

        return list(map(best, pairs, self._candidates(pairs)))

    def _join(
        self, original: Sequence[Pair], parts: Sequence[Path], say: Callable[[str], None]
    ) -> None:
        """Replace the parts by the two files."""
        chosen = [text for part in parts for text in json.loads(part.read_text(encoding="utf-8"))]
        taught = [
            (pair.source, text)
            for pair, text in zip(original, chosen, strict=True)
            if text is not None
        ]
        same = sum(pair.target == text for pair, text in zip(original, chosen, strict=True))
        say(
            f"teachers: {len(taught):,} of {len(original):,} pairs, {same:,} of them as in the data"
        )
        for side, file in enumerate(self._files):
            with written_whole(file) as new:
                new.write_text(
                    "".join(f"{_line(pair[side])}\n" for pair in [*original, *taught]),
                    encoding="utf-8",
                )
        for part in parts:
            part.unlink()


def _line(text: str) -> str:
    """Return a text as one line: texts of TensorFlow Datasets may have several."""
    return text.replace("\n", " ")
