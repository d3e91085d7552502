"""Glossaries and the terms that they find."""

import pytest

from tfk_transformer.text.glossary import Glossary

TERMS = Glossary(
    {
        "Hund": "hound",
        "Hund des Nachbarn": "neighbour's dog",
        "E-Mail": "message",
        "狗": "hound",
        "Bank": "bench",
    }
)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Ein Hund schläft.", ["hound"]),
        ("Der Hund des Nachbarn bellt, der andere Hund nicht.", ["neighbour's dog", "hound"]),
        ("Hunde und Hundehütten", []),  # whole words only
        ("Ein hund", []),
        # At the start, the case of the first letter may differ.
        ("hund und Bank", ["hound", "bench"]),
        ("„hund und Hund“", ["hound"]),  # but only of the text's first word or mark
        ("Eine E-Mail: E-Mail.", ["message", "message"]),
        ("黑狗在跑", ["hound"]),
        ("", []),
    ],
)
def test_terms_match_whole_words(text, terms):
    assert TERMS.found_in(text) == terms


def test_file_has_one_term_per_line(tmp_path):
    (tmp_path / "terms.tsv").write_text(
        "\ufeffHund\thound\n\n Bank \t bench \nHund\thound\n", encoding="utf-8"
    )
    assert Glossary.read(tmp_path / "terms.tsv").terms == {"Hund": "hound", "Bank": "bench"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Hund hound\n", "a tab and its translation in .*terms.tsv:1, got 'Hund hound'"),
        (b"a\tb\n\tc\n", "a tab and its translation in .*terms.tsv:2, got '\tc'"),
        (b"a\tb\tc\n", "a tab and its translation in .*terms.tsv:1"),
        (b"a\tb\na\tc\n", "one translation of 'a', got 'b' and, in .*terms.tsv:2, 'c'"),
    ],
)
def test_malformed_lines_are_refused(tmp_path, content, message):
    (tmp_path / "terms.tsv").write_bytes(content)
    with pytest.raises(ValueError, match=f"glossary: expected .*{message}"):
        Glossary.read(tmp_path / "terms.tsv")


def test_file_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "terms.tsv").write_bytes(b"a\t\xff\n")
    with pytest.raises(ValueError, match="terms.tsv: expected UTF-8, got byte 0xff at 2"):
        Glossary.read(tmp_path / "terms.tsv")


def test_blank_terms_are_refused():
    with pytest.raises(
        ValueError, match="expected a term and its translation, got a blank one for 'a'"
    ):
        Glossary({"a": " "})
