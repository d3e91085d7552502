"""Distillation with real teachers: the fixture's bundle, and its export."""

import json

import pytest
from number_files import write_number_files
from sacrebleu.metrics import BLEU

from tfk_transformer import datasets, load
from tfk_transformer.text.results import Hypothesis, Translation
from tfk_transformer.training import distillation
from tfk_transformer.training.distillation import TeacherPairs, distill

BEAM = 3
SHALLOW = {"encoder_layers": 1, "decoder_layers": 1}  # the options of a student


@pytest.fixture
def data(tmp_path):
    return datasets.load(write_number_files(tmp_path, range(150, 250)))


@pytest.fixture
def parts_of_forty(monkeypatch):
    monkeypatch.setattr(distillation, "PAIRS_PER_PART", 40)


def written(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.txt")}


@pytest.mark.long  # searches 100 texts twice, and opens an exported file
def test_choice_is_closest_to_target(translator, exported, data, tmp_path, parts_of_forty):
    lines = []
    pairs = TeacherPairs(
        [translator, load(exported / "translate.onnx")], data, tmp_path / "pairs", BEAM
    )
    pairs.write(lines.append)
    original, actual = list(data.pairs("train")), list(datasets.load(pairs.spec).pairs("train"))
    assert [pair[:2] for pair in actual[:100]] == [pair[:2] for pair in original]
    assert [pair.source for pair in actual[100:]] == [pair.source for pair in original]
    bleu = BLEU(effective_order=True)
    for pair, (_, chosen, _) in zip(original, actual[100:], strict=True):
        hypotheses = [
            h.text for h in translator.translate([pair.source], beam_size=3, n_best=3)[0].hypotheses
        ]
        best = max(bleu.sentence_score(text, [pair.target]).score for text in hypotheses)
        assert chosen in hypotheses
        assert bleu.sentence_score(chosen, [pair.target]).score == best
    same = sum(
        pair.target == chosen for pair, (_, chosen, _) in zip(original, actual[100:], strict=True)
    )
    assert 0 < same < 100  # the teacher knows the numbers below 200, so that there are both
    assert lines[-1] == f"teachers: 100 of 100 pairs, {same} of them as in the data"
    assert sorted(path.name for path in (tmp_path / "pairs").iterdir()) == [
        "about.json",
        "source.train.txt",
        "target.train.txt",
    ]


class Candidates:
    """A teacher whose hypotheses are the same for all sources."""

    def translate(self, texts, n_best, **settings):
        hypotheses = [Hypothesis(text, -1.0) for text in ("错的句子", "一只狗在公园里奔跑。")]
        return [Translation(text, hypotheses) for text in texts]


def test_chinese_choice_is_closest_to_target(tmp_path):
    data = datasets.load([("a dog", "一只狗在雪地里奔跑。")])
    TeacherPairs([Candidates()], data, tmp_path / "pairs", BEAM).write(lambda line: None)
    lines = written(tmp_path / "pairs")["target.train.txt"].splitlines()
    assert lines == ["一只狗在雪地里奔跑。", "一只狗在公园里奔跑。"]


def test_student_does_not_learn_what_is_left_out(tmp_path):
    data = datasets.load([(f"dog {number}", "一只狗") for number in range(50)])
    pairs = TeacherPairs([Candidates()], data, tmp_path / "pairs", BEAM)
    pairs.write(lambda line: None)
    student = datasets.load(pairs.spec)
    learned, left_out = (
        {pair.source for pair in student.pairs(split)} for split in ("train", "validation")
    )
    assert left_out == {pair.source for pair in data.pairs("validation")}
    assert len(learned) == 40


def stop(line):
    raise KeyboardInterrupt


def test_stopped_translation_resumes(translator, data, tmp_path, parts_of_forty):
    folder = tmp_path / "pairs"
    with pytest.raises(KeyboardInterrupt):
        TeacherPairs([translator], data, folder, BEAM).write(stop)
    part = folder / "part-00000.json"
    first, printed = json.loads(part.read_text()), []
    part.write_text(json.dumps(["kept", *first[1:]]))  # shows that it is not translated again
    TeacherPairs([translator], data, folder, BEAM, resume=True).write(printed.append)
    lines = written(folder)["target.train.txt"].splitlines()
    assert lines[100:140] == ["kept", *first[1:]]
    assert printed[:2] == [
        "teachers: 80 pairs are translated",
        "teachers: 100 pairs are translated",
    ]


def test_changed_runs_are_not_mixed(translator, exported, data, tmp_path, parts_of_forty):
    folder = tmp_path / "pairs"
    with pytest.raises(KeyboardInterrupt):
        TeacherPairs([translator], data, folder, BEAM).write(stop)
    with pytest.raises(
        ValueError,
        match=(
            r"^out: expected a new folder, got .*pairs of an earlier distillation. Resume it, "
            r"remove the folder, or"
        ),
    ):
        TeacherPairs([translator], data, folder, BEAM)
    (tmp_path / "fewer").mkdir()
    fewer = datasets.load(write_number_files(tmp_path / "fewer", range(150, 249)))
    others = {
        "beam_size": ([translator], data, 2),
        "translations": ([translator] * 2, data, BEAM),
        "pairs": ([translator], fewer, BEAM),
    }

    def check_others():
        for name, (teachers, pairs, beam_size) in others.items():
            with pytest.raises(
                ValueError,
                match=(
                    r"^resume: expected the distillation that .* was started with, got one whose "
                    rf".*{name}.* differ\."
                ),
            ):
                TeacherPairs(teachers, pairs, folder, beam_size, resume=True).write()

    check_others()
    # The exported file is the same teacher.
    TeacherPairs([load(exported / "translate.onnx")], data, folder, BEAM, resume=True).write(
        lambda line: None
    )
    check_others()  # also when all is translated


@pytest.mark.parametrize("bad", ["one " * 99, "a\0b"])
def test_bad_source_keeps_its_target(translator, tmp_path, bad):
    (tmp_path / "en").write_text(f"seven\n{bad}\nforty-two\n")
    (tmp_path / "de").write_text("sieben\neins\nzweiundvierzig\n")
    data = datasets.load(f"files:{tmp_path / 'en'},{tmp_path / 'de'}")
    lines = []
    TeacherPairs([translator], data, tmp_path / "pairs", BEAM).write(lines.append)
    assert (
        written(tmp_path / "pairs")["target.train.txt"]
        == "sieben\neins\nzweiundvierzig\nsieben\nzweiundvierzig\n"
    )
    assert lines[-1] == "teachers: 2 of 3 pairs, 2 of them as in the data"


def test_student_trains_and_resumes(translator, recipe, tmp_path):
    numbers = write_number_files(tmp_path, range(40))
    sizes = {"epochs": 1, "vocab_size": 50, "options": SHALLOW, "validation_data": None}
    small = recipe.replace(data=numbers, **sizes)
    student = distill([translator], small, tmp_path / "student", beam_size=2, say=lambda line: None)
    assert student.model.config.decoder_layers == 1
    assert (tmp_path / "student.distilled" / "target.train.txt").read_text().count("\n") == 80
    assert (
        f"folder:{tmp_path / 'student.distilled'}:source-target"
        in (tmp_path / "student" / "recipe.toml").read_text()
    )
    out, lines = tmp_path / "student", []
    with pytest.raises(ValueError, match="whose beam_size, translations differ"):
        distill([translator], small, out, resume=True)
    with pytest.raises(ValueError, match="^resume: expected the recipe that .* had seed=0"):
        distill([translator], small.replace(seed=1), out, beam_size=2, resume=True)
    (tmp_path / "student.distilled" / "part-00000.json").touch()  # of a killed process
    again = distill([translator], small, out, beam_size=2, resume=True, say=lines.append)
    assert again.model.config.decoder_layers == 1
    assert lines == [f"{out} is finished: nothing to do"]
    assert not list((tmp_path / "student.distilled").glob("part-*"))


# Traces a search, and the step of two trainings.
@pytest.mark.long
def test_stopped_student_resumes(translator, recipe, tmp_path):
    lines, numbers = [], write_number_files(tmp_path, range(40))
    sizes = {"epochs": 3, "vocab_size": 50, "options": SHALLOW, "validation_data": None}
    small = recipe.replace(data=numbers, **sizes)

    def stop(line):
        if line.startswith("epoch 2/"):
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        distill([translator], small, tmp_path / "student", beam_size=2, say=stop)
    distill([translator], small, tmp_path / "student", beam_size=2, resume=True, say=lines.append)
    assert [line for line in lines if line.startswith(("resumed", "teachers"))] == [
        "resumed after epoch 2"
    ]
