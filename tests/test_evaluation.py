import numpy as np
import onnxruntime
import pytest
import sacrebleu

from tfk_transformer.datasets import Pair
from tfk_transformer.evaluation import evaluate
from tfk_transformer.export.runtime.onnx_readers import OnnxTranslator
from tfk_transformer.results import Hypothesis, Translation


class Dictionary:
    """A translator that looks texts up, and notes how many it was given at a time."""

    def __init__(self, translations):
        self.translations = translations
        self.batches = []

    def translate(self, texts, shout=False):
        self.batches.append(len(texts))
        found = [self.translations.get(text, text) for text in texts]
        return [
            Translation(text, [Hypothesis(f.upper() if shout else f, -0.5)])
            for text, f in zip(texts, found, strict=True)
        ]


def pairs(*sides):
    return [
        Pair(source, target, f"memory:{number}") for number, (source, target) in enumerate(sides, 1)
    ]


COPIED = pairs(
    *[
        [text, text]
        for text in (
            "the cat sat on the mat",
            "a dog lay in the sun",
            "two birds sang a short song",
        )
    ]
)


def test_evaluate_perfect_translation():
    found, outputs = evaluate(Dictionary({}), COPIED)
    assert outputs == [pair.target for pair in COPIED]
    np.testing.assert_allclose([found.bleu, found.chrf, found.exact_match], [100.0, 100.0, 100.0])
    assert found.sentences == 3


def test_evaluate_passes_settings():
    found, outputs = evaluate(Dictionary({}), COPIED, shout=True)
    assert outputs == [
        "THE CAT SAT ON THE MAT",
        "A DOG LAY IN THE SUN",
        "TWO BIRDS SANG A SHORT SONG",
    ]
    assert (found.bleu, found.chrf, found.exact_match) == (0.0, 0.0, 0.0)


def test_bleu_matches_hand_value():
    # n-grams in common with the reference: 5/5, 3/4, 2/3, 1/2; brevity penalty exp(1 - 6/5).
    found, _ = evaluate(
        Dictionary({"eins": "the cat sat on mat"}), pairs(["eins", "the cat sat on the mat"])
    )
    assert found.bleu == pytest.approx(100 * (3 / 4 * 2 / 3 * 1 / 2) ** 0.25 * np.exp(-0.2))


def test_chrf_matches_hand_value():
    # Letters 2/2 and 2/3, pairs of letters 1/1 and 1/2: precision 1, recall 7/12, F2 = 5 * 7/12 /
    # (4 + 7/12).
    found, _ = evaluate(Dictionary({"eins": "ab"}), pairs(["eins", "abc"]))
    assert found.chrf == pytest.approx(100 * 35 / 55)


def test_exact_match_whole_sentences():
    wrong = Dictionary({"a dog lay in the sun": "a dog lay in the sun ."})
    found, outputs = evaluate(wrong, iter(COPIED))
    assert outputs[1] == "a dog lay in the sun ."
    assert found.exact_match == pytest.approx(200 / 3)


def test_signatures_match_sacrebleu():
    found, _ = evaluate(Dictionary({}), COPIED)
    assert (
        found.bleu_signature
        == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    )
    assert (
        found.chrf_signature
        == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"
    )


def test_speed_excludes_warm_up_batch():
    translator = Dictionary({})
    found, _ = evaluate(translator, COPIED * 50)
    assert translator.batches == [64, 150]
    assert found.seconds > 0
    assert found.sentences_per_second == pytest.approx(150 / found.seconds)


@pytest.mark.parametrize(
    "settings", [{"beam_size": 1}, {"beam_size": 2}, {"beam_size": 2, "batch_size": 3}]
)
def test_timing_opens_no_files(exported, settings, monkeypatch):
    sessions, opened = [], []

    class Counted(onnxruntime.InferenceSession):
        def __init__(self, *args, **kwargs):
            sessions.append(args)
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Counted)
    translator = OnnxTranslator(exported / "translate.onnx", threads=2)

    class Watched:
        def translate(self, texts, **settings):
            found = translator.translate(texts, **settings)
            opened.append(len(sessions))
            return found

    evaluate(Watched(), pairs(*[["seven", "sieben"]] * 65), **settings)
    assert opened == [2, 2]  # for one text alone, and for these


def test_no_pairs_are_an_error():
    with pytest.raises(ValueError, match="^data: expected pairs to evaluate on, got none.$"):
        evaluate(Dictionary({}), iter([]))
