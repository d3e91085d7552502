"""Codes of languages."""

import pytest

from tfk_transformer.sentences.languages import language_code, language_or_english


@pytest.mark.parametrize(
    ("language", "code"), [("de", "de"), ("pt-BR", "pt"), ("zh_Hant", "zh"), ("EN", "en")]
)
def test_scripts_and_regions_are_ignored(language, code):
    assert language_code(language) == language_or_english(language) == code


def test_unknown_languages_are_refused():
    with pytest.raises(ValueError, match="^--language: expected an ISO 639 code .*, got 'xx'; "):
        language_code("xx", "--language")


@pytest.mark.parametrize("language", [None, "xx", "und"])
def test_servers_read_unknown_languages_as_english(language):
    assert language_or_english(language) == "en"
