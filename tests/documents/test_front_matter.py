"""Values of front matter that are translated."""

import pytest

from tfk_transformer.formats.reading.front_matter import edit_front_matter
from tfk_transformer.inference.conveyor import document_road
from tfk_transformer.text.results import (
    DocumentSentence,
    DocumentTranslation,
    Hypothesis,
    Translation,
)
from tfk_transformer.text.road import drive

KEYS = ("title", "description")


def translated(fields, translation, fence="---"):
    """Return the fields of front matter with a translation of each text."""
    document = f"{fence}\n{fields}\n{fence}\nbody\n"
    editing = edit_front_matter(document, KEYS)
    result = drive(editing, lambda texts: [translation or text for text in texts]).text
    return result.removeprefix(f"{fence}\n").removesuffix(f"\n{fence}\nbody\n")


@pytest.mark.parametrize(
    ("field", "translation", "expected"),
    [
        ("title: one", "zwei", "title: zwei"),
        ("title: one # a comment", "zwei", "title: zwei # a comment"),
        ("title: one", "zwei: drei", 'title: "zwei: drei"'),
        ("title: one", "- zwei", 'title: "- zwei"'),
        ("title: one", "Yes", 'title: "Yes"'),
        ("title: 3 ones", "drei", "title: drei"),
        ("title: one", '"zwei" #3', 'title: "\\"zwei\\" #3"'),
        ("title: 'it''s'", "das ist's", "title: 'das ist''s'"),
        ('title: "one \\"two\\""', 'a "b"', 'title: "a \\"b\\""'),
        ("description: >-\n  one\n  two\nx: y", "zwei", 'description: "zwei"\nx: y'),
    ],
)
def test_yaml_stays_valid(field, translation, expected):
    assert translated(field, translation) == expected


@pytest.mark.parametrize(
    ("field", "translation", "expected"),
    [
        ('title = "one"', 'a "b"', 'title = "a \\"b\\""'),
        ("title = 'one'", "zwei", "title = 'zwei'"),
        ("title = 'one'", "it's", 'title = "it\'s"'),
        ('x = 1\n[params]\ntitle = "one"', "zwei", 'x = 1\n[params]\ntitle = "one"'),
    ],
)
def test_toml_stays_valid(field, translation, expected):
    assert translated(field, translation, "+++") == expected


@pytest.mark.parametrize(
    "field",
    [
        "layout: one",
        "a:\n  title: one",
        "title: 2024",
        "title: True",
        "title: [one, two]",
        "title: |\n  one\n  two",
        "title: &anchor one",
        'title: "{{ x }}"',
        'title: "\\x41"',
        "title: one\n  two",
        "description:",
    ],
)
def test_other_values_are_unchanged(field):
    assert translated(field, "zwei") == field


def test_copied_values_keep_their_form():
    fields = "title: 1 one\ndescription: 'a'\n"
    assert translated(fields, None) == fields


def test_positions_are_those_of_the_source():
    document = "---\ntitle: one\n---\ntwo\n"
    changed = drive(edit_front_matter(document, KEYS), lambda texts: ["zwei drei"])
    start = changed.text.index("two")
    sentence = DocumentSentence(start, start + 3, start, start + 3, "two", "two", 0.0, False)
    restored = changed.restore(DocumentTranslation(changed.text, [sentence]))
    first = restored.sentences[0]
    assert document[first.source_start : first.source_end] == "two"


def in_capitals(sentences):
    return [Translation(text, [Hypothesis(text.upper(), 0.0)]) for text in sentences.texts]


@pytest.mark.parametrize("format", ["markdown", "mdx", "html"])
@pytest.mark.parametrize(("keys", "title"), [((), "one"), (("title",), "ONE"), (("x",), "one")])
def test_front_matter_is_an_option(format, keys, title):
    document = "---\nlayout: a\ntitle: one\n---\ntwo\n"
    road = document_road(document, format, "en", 100, front_matter=keys)
    assert drive(road, in_capitals).text == f"---\nlayout: a\ntitle: {title}\n---\nTWO\n"


def test_front_matter_with_attributes():
    document = '---\ntitle: one\n---\n<img alt="two">three'
    road = document_road(document, "html", "en", 100, attributes=True, front_matter=["title"])
    translation = drive(road, in_capitals)
    assert translation.text == '---\ntitle: ONE\n---\n<img alt="TWO">THREE'
    (sentence,) = translation.sentences
    assert document[sentence.source_start : sentence.source_end] == "three"


def test_keys_of_front_matter_are_a_sequence():
    message = "front_matter: expected a sequence of keys, got 'title'; give \\['title'\\]."
    road = document_road("one", "markdown", "en", 100, front_matter="title")
    with pytest.raises(ValueError, match=message):
        drive(road, in_capitals)


def test_plain_text_has_no_front_matter():
    road = document_road("one", "text", "en", 100, front_matter=["title"])
    with pytest.raises(
        ValueError, match="front_matter: expected format 'markdown', 'mdx' or 'html'"
    ):
        drive(road, in_capitals)
