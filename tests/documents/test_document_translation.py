"""Plain documents translated by a trained model, with every runtime."""

import pytest
from document_checks import check, check_places
from made_documents import Maker

from tfk_transformer.datasets.numbers import spell
from tfk_transformer.formats.registry import DOCUMENT_FORMATS

FORMATS = ", ".join(DOCUMENT_FORMATS)
NUMBERS = [spell(number, "en") for number in range(0, 60, 7)]
TEXT = "  {}. {}!\n\n{}?  {}. {}.\n\n\n{}. {}.\n".format(
    *(number.capitalize() for number in NUMBERS[:7])
)


@pytest.fixture(scope="module", params=["bundle", "saved_model", "translate.onnx"])
def runtime(request, translator, exported):
    from tfk_transformer.export.runtime.opening import load

    return translator if request.param == "bundle" else load(exported / request.param)


def test_sentences_equal_translate(runtime):
    actual = runtime.translate_document(TEXT, beam_size=2)
    check_places(TEXT, actual)
    assert len(actual.sentences) == 7
    expected = runtime.translate([sentence.source for sentence in actual.sentences], beam_size=2)
    assert [sentence.target for sentence in actual.sentences] == [
        translation.text for translation in expected
    ]
    assert [sentence.score for sentence in actual.sentences] == pytest.approx(
        [translation.score for translation in expected], abs=1e-4
    )


def test_long_sentence_goes_in_parts(runtime):
    long = " ".join(["seven"] * 50) + ", " + " ".join(["one"] * 50)
    document = f"Nine. {long}. Two."
    actual = runtime.translate_document(document, beam_size=1)
    check_places(document, actual)
    assert [sentence.source for sentence in actual.sentences] == ["Nine.", f"{long}.", "Two."]
    assert all(sentence.target.strip() for sentence in actual.sentences)
    (expected,) = runtime.translate([f"{long}."], beam_size=1)
    assert actual.sentences[1].target == expected.text
    assert len(expected.sentences) > 2


def test_placeholders_are_kept_once(translator):
    document = "Seven {name} and %(count)d. Nine 42, see https://example.org/a.b?c=1. ${x} %s"
    actual = translator.translate_document(document, beam_size=1)
    check_places(document, actual)
    for part in ("{name}", "%(count)d", "42", "https://example.org/a.b?c=1", "${x} %s"):
        assert actual.text.count(part) == 1


def test_lines_can_be_paragraphs(translator):
    lines = "\n".join(NUMBERS)
    actual = translator.translate_document(lines, lines=True, beam_size=1)
    assert actual.text.split("\n") == [
        translation.text for translation in translator.translate(NUMBERS, beam_size=1)
    ]


def test_random_documents_translate(translator):
    """Its attention says which words belong together; tests/documents/test_document_markup.py has
    more documents.
    """
    for seed in range(9):
        made = Maker(seed).made()
        check(
            made,
            translator.translate_document(
                made.text, made.format, language=made.language, beam_size=1
            ),
        )


def test_runtimes_place_markup_alike(translator, runtime):
    made = Maker(4).made()
    assert made.format == "markdown"
    expected = translator.translate_document(
        made.text, made.format, language=made.language, beam_size=1
    )
    actual = runtime.translate_document(made.text, made.format, language=made.language, beam_size=1)
    assert actual.text == expected.text


@pytest.mark.parametrize("layer", [0, 1, -1, -2])
def test_attention_layer_can_be_set(translator, layer):
    actual = translator.translate_document("One *hundred* two", "markdown", attention_layer=layer)
    assert actual.text.count("*") == 2


def test_missing_layer_is_named(translator):
    with pytest.raises(ValueError, match="attention_layer: expected a number from -2 to 1, got 2"):
        translator.translate_document("One *hundred* two", "markdown", attention_layer=2)


@pytest.mark.parametrize("document", ["", " \n\n ", "…", "***", "42"])
def test_wordless_text_is_unchanged(translator, document):
    assert translator.translate_document(document).text == document


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("one", "latex"), f"format: expected one of {FORMATS}, got 'latex'."),
        ((["one"],), "text: expected a string, got list."),
        (("a\0b",), r"text: expected text, got the character U\+0000"),
    ],
)
def test_invalid_arguments_are_named(translator, arguments, message):
    with pytest.raises(ValueError, match=message):
        translator.translate_document(*arguments)


def test_lines_need_plain_text(translator):
    with pytest.raises(ValueError, match="lines: expected format 'text', got 'html'"):
        translator.translate_document("one", "html", lines=True)


def test_unknown_setting_is_named(translator):
    with pytest.raises(ValueError, match="beam_sise"):
        translator.translate_document("one", beam_sise=2)
