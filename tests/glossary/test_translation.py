"""Translation with a glossary: the terms are there, other texts stay as they are, and all runtimes
agree.
"""

import shutil

import numpy as np
import pytest

from tfk_transformer import Glossary, TextError
from tfk_transformer.export.runtime.opening import load

TEXTS = ["forty-two", "one hundred seven", "seven", "", "ninety-nine"]
TERMS = Glossary(
    {
        "seven": "acht",
        "hundred": "einhundert",
        "forty-two": "neun zehn",
        "ninety-nine": "neunundneunzig",
    }
)


@pytest.fixture(scope="module")
def translations(translator):
    return translator.translate(TEXTS, glossary=TERMS, beam_size=2)


def test_translations_have_terms(translator, translations):
    plain = translator.translate(TEXTS, beam_size=2)
    assert [translation.source for translation in translations] == TEXTS
    assert "neun zehn" in translations[0].text.casefold()
    assert "einhundert" in translations[1].text
    assert "acht" in translations[1].text
    assert translations[1].text.index("einhundert") != translations[1].text.index("acht")
    assert "acht" in translations[2].text
    assert translations[3:] == plain[3:]  # a blank text, and one whose term is there anyway


def test_term_goes_to_the_best_place(translator, translations):
    """No other place gives a translation of the whole with a higher score."""
    places = ["acht", "sieben acht"]
    others = translator.translate(["seven"] * 2, prefixes=places, beam_size=2)
    scored = translator.score_tokens(["seven"] * 2, [other.text for other in others])
    scores = [one.log_probability / ((5 + len(one.tokens)) / 6) ** 0.6 for one in scored]
    assert translations[2].text == others[int(np.argmax(scores))].text


@pytest.mark.parametrize("name", ["translate.onnx", "saved_model"])
def test_runtimes_agree_on_terms(exported, translations, name):
    again = load(exported / name).translate(TEXTS, glossary=TERMS, beam_size=2)
    assert [one.text for one in again] == [one.text for one in translations]
    np.testing.assert_allclose(
        [one.score for one in again], [one.score for one in translations], atol=1e-4
    )


def test_prefix_and_details_are_kept(translator):
    (one,) = translator.translate(
        ["seven"], glossary={"seven": "acht"}, prefixes=["neun"], token_scores=True, beam_size=2
    )
    assert one.text.startswith("neun")
    assert "acht" in one.text.removeprefix("neun")
    assert len(one.hypotheses[0].tokens) == len(one.hypotheses[0].token_log_probs) > 0


def test_long_text_spares_the_others(translator):
    options = {"glossary": {"seven": "acht"}, "beam_size": 2, "split_sentences": False}
    with pytest.raises(TextError, match="expected at most 32 tokens") as caught:
        translator.translate(["seven", "seven " * 40], **options)
    assert "acht" in caught.value.results[0].text


def test_n_best_with_terms_is_refused(translator):
    with pytest.raises(ValueError, match="n_best: expected 1 with a glossary, got 2"):
        translator.translate(["seven"], glossary=TERMS, n_best=2)


def test_unspellable_terms_are_refused(translator):
    with pytest.raises(
        ValueError,
        match="glossary: expected terms that the model's vocabulary can spell, got 八; remove them",
    ):
        translator.translate(["seven"], glossary={"seven": "acht", "eight": "八"})


def test_glossary_needs_score_file(exported, tmp_path):
    shutil.copy(exported / "translate.onnx", tmp_path)
    with pytest.raises(ValueError, match="score.onnx"):
        load(tmp_path / "translate.onnx").translate(["seven"], glossary=TERMS)
