"""Texts of several sentences, long sentences and unknown characters."""

from pathlib import Path

import numpy as np
import pytest

from tfk_transformer.inference.text_translation import translate_readable, translate_texts
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.outcome import TextError, refuse_long_texts
from tfk_transformer.text.results import Hypothesis, Translation

MAX_LENGTH = 5
SAVED_BUNDLE = Path(__file__).parents[1] / "saved_files" / "bundle"


class UpperCase:
    """A translator to upper case. A sentence may have 5 words; the score is the words' number."""

    def __init__(self):
        self.calls = []

    def __call__(self, sentences, prefixes):
        self.calls.append(list(sentences))
        scores = [
            np.nan if len(sentence.split()) + len(prefix.split()) > MAX_LENGTH else -len(prefix)
            for sentence, prefix in zip(sentences, prefixes, strict=True)
        ]
        results = [
            Translation(
                sentence,
                [
                    Hypothesis(prefix + sentence.upper(), float(-len(sentence.split()))),
                    Hypothesis(prefix + sentence.title(), -9.0),
                ],
            )
            for sentence, prefix in zip(sentences, prefixes, strict=True)
        ]
        refuse_long_texts(sentences, results, scores, MAX_LENGTH)
        return results


def translated(texts, prefixes=None, translate=None):
    prefixes = prefixes or [""] * len(texts)
    return translate_texts(translate or UpperCase(), texts, prefixes, "en", MAX_LENGTH)


def test_sentences_are_joined_with_their_whitespace():
    (result,) = translated([" One dog. Two cats!\n\nThree birds?"])
    assert result.text == " ONE DOG. TWO CATS!\n\nTHREE BIRDS?"
    assert result.score == -6
    assert [sentence.source for sentence in result.sentences] == [
        "One dog.",
        "Two cats!",
        "Three birds?",
    ]
    assert [hypothesis.text for hypothesis in result.hypotheses][1:] == [
        " One Dog. Two Cats!\n\nThree Birds?"
    ]


def test_sentences_of_all_texts_share_a_call():
    translate = UpperCase()
    translated(["One. Two.", "Three."], translate=translate)
    assert translate.calls == [["One.", "Two.", "Three."]]


def test_single_sentences_keep_their_result():
    (result,) = translated(["One dog."])
    assert result == UpperCase()(["One dog."], [""])[0]


def test_prefixes_begin_the_first_sentence():
    (result,) = translated(["One dog. Two cats."], ["> "])
    assert result.text == "> ONE DOG. TWO CATS."


def test_long_sentences_are_translated_in_parts():
    text = "one two three four, five six seven eight nine ten eleven"
    (result,) = translated([text])
    assert result.text == text.upper()
    assert all(len(part.source.split()) <= MAX_LENGTH for part in result.sentences)


def test_endless_sentences_are_cut_before_they_are_run():
    translate = UpperCase()
    (result,) = translated(["a" * 1000], translate=translate)
    assert result.text == "A" * 1000
    assert max(len(sentence) for call in translate.calls for sentence in call) <= 80


def test_texts_that_cannot_be_cut_are_refused():
    prefix = "a b c d e f "
    with pytest.raises(TextError, match=r"^texts: .* got more in 1: number 2 \('One") as caught:
        translated(["Two. Three.", "One dog.", "Four."], ["", prefix, ""])
    assert caught.value.results.keys() == {0, 2}
    assert caught.value.results[0].text == "TWO. THREE."


def test_settings_are_checked_without_texts():
    translate = UpperCase()
    assert translated([], translate=translate) == [] and translate.calls == [[]]


def sentences_with(characters, sentences, translate):
    return translate_readable(translate, sentences, [""] * len(sentences), characters, MAX_LENGTH)


def test_marks_alone_stay_unchanged():
    translate = UpperCase()
    results = sentences_with(None, ["-", "one", "...", "«»"], translate)
    assert [result.text for result in results] == ["-", "ONE", "...", "«»"]
    assert [result.score for result in results] == [0, -1, 0, 0]
    assert translate.calls == [["one"]]


def test_unknown_characters_are_put_back_and_counted():
    translate = UpperCase()
    results = sentences_with(set("onetwo "), ["😀 one two", "🎉🎉", "two"], translate)
    assert [result.text for result in results] == ["😀 ONE TWO", "🎉🎉", "TWO"]
    assert [result.kept_characters for result in results] == [1, 2, 0]
    assert [result.source for result in results] == ["😀 one two", "🎉🎉", "two"]
    assert translate.calls == [["one two", "two"]]


def test_refused_sentences_have_their_own_numbers():
    with pytest.raises(TextError, match=r"got more in 1: number 3 \('a b c d e f") as caught:
        sentences_with(None, ["-", "one", "a b c d e f", "two"], UpperCase())
    assert {i: result.text for i, result in caught.value.results.items()} == {
        0: "-",
        1: "ONE",
        3: "TWO",
    }


def test_glossary_terms_stay_in_the_search():
    translate = UpperCase()
    results = translate_readable(
        translate, ["Привет one €"], [""], set("one "), MAX_LENGTH, exempt=set("Привет")
    )
    assert translate.calls == [["Привет one"]]
    assert results[0].text == "ПРИВЕТ ONE €"


def test_forced_beginnings_stay_in_front():
    results = translate_readable(UpperCase(), ["😀 one"], ["> "], set("one "), MAX_LENGTH)
    assert results[0].text == "> 😀 ONE"


@pytest.mark.parametrize(("source_language", "count"), [("de", 1), (None, 2)])
def test_sentences_end_as_in_the_model_language(source_language, count):
    translator = Translator.load(SAVED_BUNDLE)
    translator.model.config = translator.model.config.replace(source_language=source_language)
    sentences = translator.translate(["seven bzw. Nine"])[0].sentences
    assert len(sentences) == (count if count > 1 else 0)  # a single sentence is the text itself
    assert len(translator.translate_document("seven bzw. Nine").sentences) == count
    streamed = [
        "".join(translator.stream("seven bzw. Nine", language=language))
        for language in (None, source_language or "en")
    ]
    assert streamed[0] == streamed[1]
