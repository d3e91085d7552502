"""Codes of languages."""

import pytest

from tfk_transformer.text.languages import (
    LANGUAGES,
    LONG_CODES,
    Languages,
    is_language,
    language_code,
    language_or_english,
)


@pytest.mark.parametrize(
    ("language", "code"),
    [("de", "de"), ("pt-BR", "pt"), ("zh_Hant", "zh"), ("EN", "en"), ("deu_Latn", "de")],
)
def test_scripts_and_regions_are_ignored(language, code):
    assert language_code(language) == language_or_english(language) == code


def test_unknown_languages_are_refused():
    with pytest.raises(ValueError, match="^--language: expected an ISO 639 code .*, got 'xx'; "):
        language_code("xx", "--language")


@pytest.mark.parametrize("language", [None, "xx", "und"])
def test_servers_read_unknown_languages_as_english(language):
    assert language_or_english(language) == "en"


def test_long_codes_have_short_ones():
    assert set(LONG_CODES.values()) <= LANGUAGES
    assert not LONG_CODES.keys() & LANGUAGES


@pytest.mark.parametrize("code", ["source", "src", "mul", "ROMANCE", "deu_eng", "de+en", "", None])
def test_other_names_are_not_languages(code):
    assert not is_language(code)


@pytest.mark.parametrize("code", ["de", "en_IN", "zho_Hans", "zh-Hant-TW", "es_419", "ast_Latn"])
def test_codes_with_script_are_languages(code):
    assert is_language(code)


@pytest.mark.parametrize("value", ["<script>", "en\n", "", " ", "\x1b[31m", 7, ["en"], None])
def test_strange_languages_are_unknown(value):
    assert Languages.of({"source_language": value, "target_language": "de"}) == (None, "de")
