"""JSON and ARB: the strings are translated in place."""

import json

import pytest
from string_files import translated, translation

from tfk_transformer.formats.registry import read


def value(string, function=str.upper):
    """Return the translation of a string of JSON."""
    return json.loads(translated(json.dumps({"key": string}), "json", function))["key"]


def test_keys_and_layout_stay():
    text = '{"six" : ["seven", 1, null,\n\t{"a": "eight"}],"b":"" }\n\n'
    expected = '{"six" : ["SEVEN", 1, null,\n\t{"a": "EIGHT"}],"b":"" }\n\n'
    assert translated(text, "json") == expected


def test_escapes_stay():
    text = r'{"a": "caf\u00e9 5\/6 \"x\" \ud83d\ude42"}'
    assert translated(text, "json", lambda text: text) == text
    assert translated(text, "json") == r'{"a": "CAF\u00c9 5\/6 \"X\" \ud83d\ude42"}'
    assert translated('{"a": "café"}', "json") == '{"a": "CAFÉ"}'


@pytest.mark.parametrize(
    "point",
    [
        *("{{name}}", "{{ name }}", "{name}", "{0, number}", "$t(key)", "$t(a, {{b}})", "@:a.b"),
        *("@.lower:a", "@:(a.b)", "%{name}", ":name", "<0>", "https://example.org/a"),
    ],
)
def test_placeholders_are_kept(point):
    assert value(f"six {point} seven") == f"SIX {point} SEVEN"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (
            "{count, plural, =0 {none} one {# file of {name}} other {# files}}",
            "{count, plural, =0 {NONE} one {# FILE OF {name}} other {# FILES}}",
        ),
        (
            "You see {n,select,a{{x,plural,other{# six}}}other{nine}}.",
            "YOU SEE {n,select,a{{x,plural,other{# SIX}}}other{NINE}}.",
        ),
        ("car | cars", "CAR | CARS"),
        ("six\nseven\n", "SIX\nSEVEN\n"),
        ("<b>six</b> and <1>seven</1>", "<b>SIX</b> AND <1>SEVEN</1>"),
    ],
)
def test_messages_keep_their_syntax(source, target):
    assert value(source) == target


def test_tags_separate_words():
    texts = []
    source = "six <b>File</b><b>New</b> and <i>up</i>to"
    assert value(source, lambda text: texts.append(text) or text) == source
    assert texts == ["six File New and up to"]
    assert value("<b>文</b>件", lambda text: texts.append(text) or text) == "<b>文</b>件"
    assert texts[1:] == ["文件"]


def test_messages_that_cannot_be_parsed_are_kept():
    source = '{"a": "{count, plural, one {# six} other", "b": "seven"}'
    result = translation(source, "json")
    assert result.text == source.replace("seven", "SEVEN")
    assert [sentence.keeps_source for sentence in result.sentences] == [True, False]


def test_apostrophes_do_not_quote_placeholders():
    escape = read('{"a": "six"}', "json").escape
    assert (escape("l'", "{name}"), escape("l'", "")) == ("l’", "l'")


@pytest.mark.parametrize("target", ['"', "\\", "\n", "\x00", "a" * 5000])
def test_hard_characters_are_escaped(target):
    assert value("six", lambda text: f"x{target}") == f"x{target}".replace("\n", " ").replace(
        "\x00", " "
    )


@pytest.mark.parametrize("target", ["{", "a {b}", "@:b", "a | b", "%s", "<b>"])
def test_translations_with_other_markup_are_refused(target):
    assert value("six", lambda text: target) == "six"


def test_arb_keeps_what_describes_strings():
    text = '{"@@locale": "en", "a": "six", "@a": {"description": "x", "type": "text"}, "@@x": "y"}'
    expected = text.replace("six", "SIX")
    assert translated(text, "arb") == expected
    assert translated(text, "arb", target_language="pt-BR") == expected.replace('"en"', '"pt_BR"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "a": 2}', "got 'a' again in line 2, column 2; rename or remove one"),
        ('{"a": 1,}', r"got an error \(.*line 1 column 9"),
        ('{"a": "\n"}', r"got an error \(Invalid control character at: line 1 column 8"),
    ],
)
def test_broken_files_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        translated(text, "json")
