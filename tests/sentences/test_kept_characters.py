"""Characters that a vocabulary lacks are kept out of the search, and put back."""

import string

import pytest

from tfk_transformer.text.kept_characters import take_out

CHARACTERS = set(string.printable + "äöüé今天我们去")


@pytest.mark.parametrize(
    ("text", "readable", "translation", "result"),
    [
        ("😀 one two", "one two", "eins zwei", "😀 eins zwei"),
        ("one two 😀", "one two", "eins zwei", "eins zwei 😀"),
        ("one😀 two", "one two", "eins zwei", "eins😀 zwei"),
        ("one 😀 two three four", "one two three four", "a b c d e f g h", "a b 😀 c d e f g h"),
        ("I love 😀.", "I love.", "Ich liebe.", "Ich liebe 😀."),
        ("“😀” one", "one", "eins", "“😀” eins"),
        ("(😀 one)", "(one)", "(eins)", "(😀 eins)"),
        ("one 😀 🇩🇪 two", "one two", "eins zwei", "eins 😀 🇩🇪 zwei"),
        ("one 👨‍👩‍👧 two", "one two", "eins zwei", "eins 👨‍👩‍👧 zwei"),
        ("one 👍🏽", "one", "eins", "eins 👍🏽"),
        ("I❤️NY now", "I NY now", "Ich NY jetzt", "Ich❤️NY jetzt"),
        ("this is Москва today", "this is today", "das ist heute", "das ist Москва heute"),
        ("- 😀 one", "- one", "- eins", "- 😀 eins"),
        ("A 😀 & B", "A & B", "A & B", "A 😀 & B"),
        ("one 😀 two", "one two", "eins", "eins 😀"),
        ("我们😀今天去", "我们今天去", "今天我们去", "今天😀我们去"),
    ],
)
def test_units_return_to_their_positions(text, readable, translation, result):
    taken = take_out(text, CHARACTERS)
    assert taken.text == readable
    assert taken.put_back(translation) == result


@pytest.mark.parametrize("text", ["plain text", "e\u0301cole", "don\u00adau", "tab\there", ""])
def test_represented_texts_stay_whole(text):
    assert take_out(text, CHARACTERS) == (text, [])


def test_words_with_such_letters_stay_whole():
    taken = take_out("Łukasz and Zażółć", CHARACTERS)
    assert taken.text == "and"
    assert [unit.text for unit in taken.units] == ["Łukasz", "Zażółć"]
    assert taken.kept == 12


def test_all_characters_are_represented_without_a_set():
    assert take_out("😀 Привет", None) == ("😀 Привет", [])


def test_empty_translations_keep_the_units():
    assert take_out("one 😀 two", CHARACTERS).put_back("") == "😀"


@pytest.mark.parametrize(
    ("text", "readable", "kept"),
    [
        ("Forty-two. Seven.", "forty-two. seven.", []),
        ("FORTY-TWO", "forty-two", []),
        ("Ärger und Örtchen", "ärger und", ["Örtchen"]),
        ("ŁUKASZ sees Forty", "sees forty", ["ŁUKASZ"]),
        ("İstanbul", "", ["İstanbul"]),
        ("straße", "", ["straße"]),
    ],
)
def test_letters_are_read_in_the_case_that_is_known(text, readable, kept):
    taken = take_out(text, set(string.ascii_lowercase + "ä-."))
    assert taken.text == readable
    assert [unit.text for unit in taken.units] == kept


def test_known_letters_keep_their_case():
    assert take_out("Aa Łx", set("Aax")).text == "Aa"
