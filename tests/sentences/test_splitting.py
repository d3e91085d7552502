"""Sentences of texts, with the whitespace between them."""

import pytest

from tfk_transformer.text.splitting import (
    WINDOW,
    SplitText,
    cut_in_two,
    sentence_spans,
    split_text,
)

PARAGRAPH = '  Dr. Smith left.  He slept!\n\n"Really?" she asked.\r\nYes: 3.5 km\u2028'


def test_sentences_end_at_marks_and_lines():
    split = split_text(PARAGRAPH, "en")
    assert split.sentences == [
        "Dr. Smith left.",
        "He slept!",
        '"Really?" she asked.',
        "Yes: 3.5 km",
    ]
    assert split.gaps == ["  ", "  ", "\n\n", "\r\n", "\u2028"]


@pytest.mark.parametrize(
    "text", [PARAGRAPH, "", " \n", "one", "今天。明天。", "a\n\n\nb.\tc", "\nx\n"]
)
def test_join_restores_the_whitespace(text):
    split = split_text(text, "en")
    assert split.join(split.sentences) == text


def test_join_separates_translations_that_need_a_blank():
    split = split_text("今天下雨。明天晴。", "zh")
    assert split.join(["It rains today.", "Sun tomorrow."]) == "It rains today. Sun tomorrow."
    assert split.join(["今日は雨。", "明日は晴れ。"]) == "今日は雨。明日は晴れ。"


def test_abbreviations_depend_on_the_language():
    text = "Hunde, z. B. Dackel, bellen. Katzen nicht."
    assert len(split_text(text, "de").sentences) == 2


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("one two, three four", ["one two,", "three four"]),
        ("one, two three four five", ["one,", "two three four five"]),
        ("one two three four", ["one two", "three four"]),
        ("今天很好，我们去公园", ["今天很好，", "我们去公园"]),
        ("1,000,000", ["1,00", "0,000"]),
        ("abcd", ["ab", "cd"]),
    ],
)
def test_cuts_are_at_clauses_then_blanks(text, parts):
    split = SplitText([text], ["<", ">"])
    assert split.cut(0)
    assert split.sentences == parts
    assert split.join(split.sentences) == f"<{text}>"


def test_long_lines_have_the_same_sentences():
    sentences = [f"Dr. Smith has {'very ' * (n % 50)}old dogs." for n in range(300)]
    text = " ".join(sentences)
    assert len(text) > 3 * WINDOW
    assert split_text(text, "en").sentences == sentences


def test_endless_sentences_are_cut():
    text = "one " * WINDOW
    assert list(sentence_spans(text, "en")) == [
        (start, start + WINDOW) for start in range(0, len(text), WINDOW)
    ]


def test_single_characters_are_not_cut():
    split = SplitText(["a"], ["", ""])
    assert not split.cut(0)
    assert split.sentences == ["a"]
    assert cut_in_two("abcd", uncut={1, 2, 3}) is None
