import numpy as np
import onnxruntime
import pytest
import sacrebleu

from tfk_transformer import evaluation
from tfk_transformer.datasets import Pair
from tfk_transformer.evaluation import evaluate
from tfk_transformer.export.runtime import sessions as onnx_sessions
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
from tfk_transformer.text.languages import Languages
from tfk_transformer.text.results import Hypothesis, Translation


class Dictionary:
    """A translator that looks texts up, and notes how many it was given at a time."""

    def __init__(self, translations):
        self.translations = translations
        self.batches = []

    def translate(self, texts, shout=False):
        self.batches.append(len(texts))
        actual = [self.translations.get(text, text) for text in texts]
        return [
            Translation(text, [Hypothesis(f.upper() if shout else f, -0.5)])
            for text, f in zip(texts, actual, strict=True)
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
    actual, outputs = evaluate(Dictionary({}), COPIED)
    assert outputs == [pair.target for pair in COPIED]
    np.testing.assert_allclose(
        [actual.bleu, actual.chrf, actual.exact_match], [100.0, 100.0, 100.0]
    )
    assert actual.sentences == 3


def test_evaluate_passes_settings():
    actual, outputs = evaluate(Dictionary({}), COPIED, shout=True)
    assert outputs == [
        "THE CAT SAT ON THE MAT",
        "A DOG LAY IN THE SUN",
        "TWO BIRDS SANG A SHORT SONG",
    ]
    assert (actual.bleu, actual.chrf, actual.exact_match) == (0.0, 0.0, 0.0)


def test_bleu_matches_hand_value():
    # n-grams in common with the reference: 5/5, 3/4, 2/3, 1/2; brevity penalty exp(1 - 6/5).
    actual, _ = evaluate(
        Dictionary({"eins": "the cat sat on mat"}), pairs(["eins", "the cat sat on the mat"])
    )
    assert actual.bleu == pytest.approx(100 * (3 / 4 * 2 / 3 * 1 / 2) ** 0.25 * np.exp(-0.2))


def test_chrf_matches_hand_value():
    # Letters 2/2 and 2/3, pairs of letters 1/1 and 1/2: precision 1, recall 7/12, F2 = 5 * 7/12 /
    # (4 + 7/12).
    actual, _ = evaluate(Dictionary({"eins": "ab"}), pairs(["eins", "abc"]))
    assert actual.chrf == pytest.approx(100 * 35 / 55)


def test_exact_match_whole_sentences():
    wrong = Dictionary({"a dog lay in the sun": "a dog lay in the sun ."})
    actual, outputs = evaluate(wrong, iter(COPIED))
    assert outputs[1] == "a dog lay in the sun ."
    assert actual.exact_match == pytest.approx(200 / 3)


def test_error_rates_take_nearest_reference():
    pronunciations = {"read": "R IY D", "lead": "L IY T", "colonel": "K OW L AH N"}
    references = [
        ("read", "R EH D"),
        ("lead", "L EH D"),
        ("read", "R IY D"),
        ("lead", "L IY D"),
        ("colonel", "K ER N AH L"),
    ]
    actual, _ = evaluate(Dictionary(pronunciations), references, pronunciations=True)
    # read: none. lead: one of three. colonel: OW for ER, L for N, N for L, of five.
    assert actual.word_error_rate == pytest.approx(100 * 2 / 3)
    assert actual.phone_error_rate == pytest.approx(100 * 4 / 11)


def test_error_rates_only_on_demand():
    actual, _ = evaluate(Dictionary({}), COPIED)
    assert actual.word_error_rate is None
    assert actual.phone_error_rate is None


@pytest.mark.parametrize(
    "tokens, others, expected",
    [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("abcd", "bcda", 2)],
)
def test_edit_distance_matches_hand_values(tokens, others, expected):
    assert evaluation.edit_distance(tokens, others) == expected


def test_signatures_match_sacrebleu():
    actual, _ = evaluate(Dictionary({}), COPIED)
    assert (
        actual.bleu_signature
        == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    )
    assert (
        actual.chrf_signature
        == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"
    )


def test_speed_excludes_warm_up_batch():
    translator = Dictionary({})
    actual, _ = evaluate(translator, COPIED * 50)
    assert translator.batches == [64, 150]
    assert actual.seconds > 0
    assert actual.sentences_per_second == pytest.approx(150 / actual.seconds)


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
    monkeypatch.setattr(onnx_sessions, "LIGHT_FILE", 0)  # larger files have more sessions
    translator = OnnxTranslator(exported / "translate.onnx", threads=2)

    class Watched:
        def translate(self, texts, **settings):
            actual = translator.translate(texts, **settings)
            opened.append(len(sessions))
            return actual

    evaluate(Watched(), pairs(*[["seven", "sieben"]] * 65), **settings)
    assert opened == [2, 2]  # for one text alone, and for these


CHINESE = [
    "一只棕色的狗在雪地里奔跑。",
    "两个孩子在公园里踢足球。",
    "她昨天买了一本关于历史的书。",
    "火车将在下午3点25分到达北京。",
    "科学家发现了一种新的鸟类。",
    "这家餐厅的鱼非常好吃，但是有点贵。",
    "我们明天去海边，如果天气好的话。",
    "他每天早上喝一杯咖啡，然后去上班。",
    "这座桥建于1937年，长2737米。",
    "请把窗户关上，外面很冷。",
]
JAPANESE = ["茶色い犬が雪の中を走っています。", "二人の子供が公園でサッカーをしています。"]
THAI = ["สุนัขสีน้ำตาลกำลังวิ่งอยู่ในหิมะ", "เด็กสองคนกำลังเล่นฟุตบอลในสวนสาธารณะ"]


def evaluated(targets, **options):
    """Evaluate translations that lack the second character of each target."""
    wrong = [target[:1] + target[2:] for target in targets]
    translator = Dictionary(dict(zip(map(str, range(len(targets))), wrong, strict=True)))
    return evaluate(translator, [(str(i), target) for i, target in enumerate(targets)], **options)


@pytest.mark.parametrize("language", ["zh", "zh_CN", "zho_Hans", "", "trg"])
def test_chinese_bleu_matches_sacrebleu(language):
    result, outputs = evaluated(CHINESE, target_language=language)
    expected = sacrebleu.corpus_bleu(outputs, [CHINESE], tokenize="zh").score
    assert 50 < expected < 99
    assert result.bleu == expected
    assert "|tok:zh|" in result.bleu_signature


def test_bleu_orders_chinese_translations():
    good, _ = evaluated(CHINESE)
    bad, _ = evaluate(Dictionary({}), [("错" * len(text), text) for text in CHINESE])
    perfect, _ = evaluate(Dictionary({}), [(text, text) for text in CHINESE])
    assert bad.bleu < good.bleu < perfect.bleu == pytest.approx(100)


@pytest.mark.parametrize(
    ("texts", "language"), [(THAI, "th"), (THAI, ""), (JAPANESE, "ja"), (JAPANESE, "jpn_Jpan")]
)
def test_scripts_without_blanks_have_bleu(texts, language):
    result, outputs = evaluated(texts, target_language=language)
    assert result.bleu > 50
    assert "|tok:13a|" not in result.bleu_signature


@pytest.mark.parametrize("installed", [True, False])
def test_japanese_without_mecab_is_char(installed, monkeypatch):
    names = []
    monkeypatch.setattr(evaluation, "BLEU", lambda tokenize: names.append(tokenize))
    monkeypatch.setattr(evaluation.importlib.util, "find_spec", lambda module: installed or None)
    evaluation.bleu_metric(JAPANESE)
    evaluation.bleu_metric([], "ko")
    assert names == (["ja-mecab", "ko-mecab"] if installed else ["char", "13a"])


def test_few_foreign_characters_keep_13a():
    texts = ["The sign says 北京 and nothing else.", "A second sentence, without any."]
    result, _ = evaluated(texts)
    assert "|tok:13a|" in result.bleu_signature


def test_bleu_tokenizer_is_an_option():
    result, outputs = evaluated(CHINESE, bleu_tokenizer="char")
    expected = sacrebleu.corpus_bleu(outputs, [CHINESE], tokenize="char")
    assert result.bleu == expected.score
    assert "|tok:char|" in result.bleu_signature


def test_model_names_language():
    translator = Dictionary({})
    translator.languages = Languages(target="tha_Thai")
    result, _ = evaluate(translator, [("sawatdi", "sawatdi")])
    assert "|tok:char|" in result.bleu_signature


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ("mecab", "expected none, zh, .*, got 'mecab'. Did you mean"),
        ("ko-mecab", r"expected an installed tokenizer, got .*; pip install 'sacrebleu\[ko\]'.$"),
        ("flores200", "expected the model of 'flores200' in .*; download it with: python -c "),
    ],
)
def test_missing_tokenizers_are_refused(tokenizer, message, monkeypatch, tmp_path):
    monkeypatch.setattr(evaluation, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(evaluation.importlib.util, "find_spec", lambda module: None)
    with pytest.raises(ValueError, match="^bleu_tokenizer: " + message):
        evaluated(CHINESE, bleu_tokenizer=tokenizer)


def test_pairs_are_read_as_sentences(exported):
    text = "seven. nine. seven."
    translator = OnnxTranslator(exported / "translate.onnx", threads=2)
    _, outputs = evaluate(translator, [(text, "sieben")], beam_size=1)
    expected = translator.translate([text], beam_size=1, split_sentences=False)
    assert outputs == [expected[0].text]


def test_no_pairs_are_an_error():
    with pytest.raises(ValueError, match="^data: expected pairs to evaluate on, got none.$"):
        evaluate(Dictionary({}), iter([]))
