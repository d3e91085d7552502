"""Plain documents translated by a trained model, with every runtime."""

import pytest

from tfk_transformer.datasets.numbers import spell

NUMBERS = [spell(number, "en") for number in range(0, 60, 7)]
TEXT = "  {}. {}!\n\n{}?  {}. {}.\n\n\n{}. {}.\n".format(*(number.capitalize() for number in NUMBERS[:7]))


@pytest.fixture(scope="module", params=["bundle", "saved_model", "translate.onnx"])
def runtime(request, translator, exported):
    from tfk_transformer.export.runtime.opening import load

    return translator if request.param == "bundle" else load(exported / request.param)


def check_places(document, found):
    """Sentences are where the result puts them, and everything between them is that of the source."""
    source_end = target_end = 0
    for sentence in found.sentences:
        assert document[sentence.source_start : sentence.source_end] == sentence.source
        assert found.text[sentence.target_start : sentence.target_end] == sentence.target
        assert document[source_end : sentence.source_start] == found.text[target_end : sentence.target_start]
        source_end, target_end = sentence.source_end, sentence.target_end
    assert document[source_end:] == found.text[target_end:]


def test_sentences_are_translated_as_translate_does(runtime):
    found = runtime.translate_document(TEXT, beam_size=2)
    check_places(TEXT, found)
    assert len(found.sentences) == 7
    wanted = runtime.translate([sentence.source for sentence in found.sentences], beam_size=2)
    assert [sentence.target for sentence in found.sentences] == [translation.text for translation in wanted]
    assert [sentence.score for sentence in found.sentences] == pytest.approx([translation.score for translation in wanted], abs=1e-4)


def test_a_sentence_that_is_too_long_is_translated_in_parts(runtime):
    long = " ".join(["seven"] * 50) + ", " + " ".join(["one"] * 50)
    document = f"Nine. {long}. Two."
    found = runtime.translate_document(document, beam_size=1)
    check_places(document, found)
    assert [sentence.source for sentence in found.sentences] == ["Nine.", f"{long}.", "Two."]
    assert all(sentence.target.strip() for sentence in found.sentences)
    assert "sieben" in found.sentences[1].target and "eins" in found.sentences[1].target


def test_placeholders_and_numbers_are_kept_once(translator):
    document = "Seven {name} and %(count)d. Nine 42, see https://example.org/a.b?c=1. ${x} %s"
    found = translator.translate_document(document, beam_size=1)
    check_places(document, found)
    for part in ("{name}", "%(count)d", "42", "https://example.org/a.b?c=1", "${x} %s"):
        assert found.text.count(part) == 1


def test_lines_are_paragraphs_where_it_is_wanted(translator):
    lines = "\n".join(NUMBERS)
    found = translator.translate_document(lines, lines=True, beam_size=1)
    assert found.text.split("\n") == [translation.text for translation in translator.translate(NUMBERS, beam_size=1)]


@pytest.mark.parametrize("document", ["", " \n\n ", "…", "***", "42"])
def test_what_has_no_words_stays_as_it_is(translator, document):
    assert translator.translate_document(document).text == document


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("one", "latex"), "format: expected one of text, markdown, html, got 'latex'."),
        ((["one"],), "text: expected a string, got list."),
        (("a\0b",), r"text: expected text, got the character U\+0000"),
    ],
)
def test_invalid_arguments_are_named(translator, arguments, message):
    with pytest.raises(ValueError, match=message):
        translator.translate_document(*arguments)


def test_lines_belong_to_plain_text(translator):
    with pytest.raises(ValueError, match="lines: expected format 'text', got 'html'"):
        translator.translate_document("one", "html", lines=True)


def test_an_unknown_setting_is_named(translator):
    with pytest.raises(ValueError, match="beam_sise"):
        translator.translate_document("one", beam_sise=2)
