"""Texts of several sentences, long sentences and unknown characters."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tfk_transformer.inference.conveyor import document_road, text_road, translate_sentences
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.outcome import Refused, too_long
from tfk_transformer.text.results import Hypothesis, Translation
from tfk_transformer.text.road import Sentences, drive

MAX_LENGTH = 5
SAVED_BUNDLE = Path(__file__).parents[1] / "saved_files" / "bundle"


class UpperCase:
    """A search for upper case. A sentence may have 5 words; the score is the words' number."""

    def __init__(self, characters=None, terms=()):
        self.calls = []
        self.runtime = SimpleNamespace(characters=characters)
        self.terms = frozenset(terms)

    def translate(self, sentences):
        self.calls.append(list(sentences.texts))
        return [
            too_long(sentence, MAX_LENGTH)
            if len(sentence.split()) + len(prefix.split()) > MAX_LENGTH
            else Translation(
                sentence,
                [
                    Hypothesis(prefix + sentence.upper(), float(-len(sentence.split()))),
                    Hypothesis(prefix + sentence.title(), -9.0),
                ],
            )
            for sentence, prefix in zip(sentences.texts, sentences.prefixes, strict=True)
        ]


def translated(texts, prefixes=None, search=None):
    prefixes = prefixes or [""] * len(texts)
    return drive(text_road(texts, prefixes, "en", MAX_LENGTH), (search or UpperCase()).translate)


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
    search = UpperCase()
    translated(["One. Two.", "Three."], search=search)
    assert search.calls == [["One.", "Two.", "Three."]]


def test_single_sentences_keep_their_result():
    (result,) = translated(["One dog."])
    assert [result] == UpperCase().translate(Sentences(["One dog."], [""]))


def test_prefixes_begin_the_first_sentence():
    (result,) = translated(["One dog. Two cats."], ["> "])
    assert result.text == "> ONE DOG. TWO CATS."


def test_long_sentences_are_translated_in_parts():
    text = "one two three four, five six seven eight nine ten eleven"
    (result,) = translated([text])
    assert result.text == text.upper()
    assert all(len(part.source.split()) <= MAX_LENGTH for part in result.sentences)


def test_endless_sentences_are_cut_before_they_are_run():
    search = UpperCase()
    (result,) = translated(["a" * 1000], search=search)
    assert result.text == "A" * 1000
    assert max(len(sentence) for call in search.calls for sentence in call) <= 80


def test_documents_cut_endless_sentences_before_they_are_run():
    search = UpperCase()
    road = document_road("a" * 1000, "text", "en", MAX_LENGTH)
    assert drive(road, search.translate).text == "A" * 1000
    assert max(len(sentence) for call in search.calls for sentence in call) <= 80


def test_texts_that_cannot_be_cut_are_refused():
    prefix = "a b c d e f "
    first, refused, last = translated(["Two. Three.", "One dog.", "Four."], ["", prefix, ""])
    assert refused == too_long("One dog.", MAX_LENGTH)
    assert (first.text, last.text) == ("TWO. THREE.", "FOUR.")


def test_no_texts_need_no_search():
    search = UpperCase()
    assert translated([], search=search) == []
    assert search.calls == []


def outcomes_of(search, texts, prefixes=None):
    return translate_sentences(search, Sentences(texts, prefixes or [""] * len(texts)))


def test_marks_alone_stay_unchanged():
    search = UpperCase()
    results = outcomes_of(search, ["-", "one", "...", "«»"])
    assert [result.text for result in results] == ["-", "ONE", "...", "«»"]
    assert [result.score for result in results] == [0, -1, 0, 0]
    assert search.calls == [["one"]]


def test_unknown_characters_are_put_back_and_counted():
    search = UpperCase(set("onetwo "))
    results = outcomes_of(search, ["😀 one two", "🎉🎉", "two"])
    assert [result.text for result in results] == ["😀 ONE TWO", "🎉🎉", "TWO"]
    assert [result.kept_characters for result in results] == [1, 2, 0]
    assert [result.source for result in results] == ["😀 one two", "🎉🎉", "two"]
    assert search.calls == [["one two", "two"]]


def test_a_refused_sentence_leaves_the_others():
    outcomes = outcomes_of(UpperCase(), ["-", "one", "a b c d e f", "two"])
    assert isinstance(outcomes[2], Refused)
    assert [outcomes[index].text for index in (0, 1, 3)] == ["-", "ONE", "TWO"]


def test_glossary_terms_stay_in_the_search():
    search = UpperCase(set("one "), terms="Привет")
    (result,) = outcomes_of(search, ["Привет one €"])
    assert search.calls == [["Привет one"]]
    assert result.text == "ПРИВЕТ ONE €"


def test_forced_beginnings_stay_in_front():
    (result,) = outcomes_of(UpperCase(set("one ")), ["😀 one"], ["> "])
    assert result.text == "> 😀 ONE"


@pytest.fixture(scope="module")
def saved_translator():
    return Translator.load(SAVED_BUNDLE)


def test_settings_are_checked_without_texts(saved_translator):
    assert saved_translator.translate([]) == []
    with pytest.raises(ValueError, match="^beam_size: expected"):
        saved_translator.translate([], beam_size=0)


@pytest.mark.parametrize(("source_language", "count"), [("de", 1), (None, 2)])
def test_sentences_end_as_in_the_model_language(
    saved_translator, monkeypatch, source_language, count
):
    translator = saved_translator
    config = translator.model.config.replace(source_language=source_language)
    monkeypatch.setattr(translator.model, "config", config)
    sentences = translator.translate(["seven bzw. Nine"], beam_size=1)[0].sentences
    assert len(sentences) == (count if count > 1 else 0)  # a single sentence is the text itself
    document = translator.translate_document("seven bzw. Nine", beam_size=1)
    assert len(document.sentences) == count
    streamed = [
        "".join(translator.stream("seven bzw. Nine", language=language))
        for language in (None, source_language or "en")
    ]
    assert streamed[0] == streamed[1]
