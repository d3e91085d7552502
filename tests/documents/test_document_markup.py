"""Markup, placed by alignments that are known, and in documents made by chance."""

import re

import html5lib
import numpy as np
import pytest
from document_checks import check, check_places, translate
from made_documents import Maker

from tfk_transformer.formats.registry import read
from tfk_transformer.text.results import Hypothesis
from tfk_transformer.text.words import piece_spans, word_spans


def translated(document, format, order=None, shown=str, limit=None, language="en"):
    """Translate by turning the words of each sentence around; each word attends to the word that it
    was.

    Args:
        document: the document.
        format: its format.
        order: maps a number of words to their numbers in the translation. Default: as they are.
        shown: maps a source word to its translation.
        limit: the words that a text may have.
        language: of the document.
    """

    def run(texts, attention):
        return [
            one(text) if limit is None or len(word_spans(text)) <= limit else None for text in texts
        ]

    def one(text):
        source = [text[start:end] for start, end in word_spans(text)]
        chosen = list(order(len(source)) if order else range(len(source)))
        target = [shown(source[n]) for n in chosen]
        weights = np.zeros((len(chosen) + 1, len(source) + 1))
        weights[np.arange(len(chosen)), chosen] = 1
        return Hypothesis(
            " ".join(target),
            -1.0,
            [f"\u2581{word}" for word in target] + ["</s>"],
            attention=weights,
            source_tokens=[*source, "</s>"],
        )

    return translate(read(document, format), language, run)


def turned_order(count):
    return reversed(range(count))


def turned(document, format="html"):
    return translated(document, format, turned_order).text


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("one <b>two</b> three", "three <b>two</b> one"),
        ("one <b>two <i>three</i> four</b> five", "five <b>four <i>three</i> two</b> one"),
        ("<b>one</b> <i>two</i>", "<i>two</i> <b>one</b>"),
        ("<p><b>one two</b></p>", "<p><b>two one</b></p>"),
        ("one <code>a.b</code> two three", "three two <code>a.b</code> one"),
        ("one {name} two", "two {name} one"),
        ("one, <b>{name}</b> two", "two <b>{name}</b> , one"),
        ("say &lt;b&gt; &amp; go", "go &amp; &gt; b &lt; say"),
    ],
)
def test_html_follows_its_words(document, expected):
    assert turned(document) == expected


def test_element_spans_two_sentences():
    actual = translated("<p>one <b>two. Three</b> four.</p>", "html").text
    assert actual == "<p>one <b>two . Three</b> four .</p>"
    actual = turned("<p>one <b>two. Three</b> four.</p>")
    html5lib.HTMLParser(strict=True).parse(f"<!DOCTYPE html><title>x</title>{actual}")
    assert actual.count("<b>") == actual.count("</b>") == 1


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("one **two** three", "three **two** one"),
        ("one *two **three** four* five", "five *four **three** two* one"),
        ('a [link to](http://x.org "t") it', 'it [to link](http://x.org "t") a'),
        ("one `a*b` two", "two `a*b` one"),
        ("# one two #", "# two one #"),
        ("- one two\n- three four", "- two one\n- four three"),
        ("> one\n> two", "> two one"),
        (
            "| one two | three |\n|--|--|\n| four \\| five | **six** |",
            "| two one | three |\n|--|--|\n| five \\| four | **six** |",
        ),
        ("one  \ntwo three", "one  \nthree two"),
        ("---\ntitle: one two\n---\n\none two", "---\ntitle: one two\n---\n\ntwo one"),
        (
            "one two\n=======\n\n    one two\n\n[r]: http://x.org",
            "two one\n=======\n\n    one two\n\n[r]: http://x.org",
        ),
    ],
)
def test_markdown_follows_its_words(document, expected):
    assert turned(document, "markdown") == expected


@pytest.mark.parametrize(
    "shown",
    ["*", "_a_", "`a`", "<b>", "[a](b)", "\\", "&amp;", "~~a~~", "# a", "1. a", "- a", "a | b"],
)
def test_translation_text_is_escaped(shown):
    from markdown_it import MarkdownIt

    actual = translated("**word**\n\nword", "markdown", shown=lambda word: shown).text
    inline = [
        token
        for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(actual)
        if token.type == "inline"
    ]
    texts = ["".join(inner.content for inner in token.children) for token in inline]
    assert texts == [shown, shown]
    actual = translated("<b>word</b>", "html", shown=lambda word: shown).text
    assert "".join(html5lib.parseFragment(actual).itertext()) == shown


def test_unplaced_parts_go_to_the_end():
    def run(texts, attention):
        return [Hypothesis("eins zwei", 0.0) for _ in texts]

    html = translate(read("<p>one <b>two</b> <i>three</i> {x}.</p>", "html"), "en", run)
    assert html.text == "<p>eins zwei<b></b><i></i> {x}</p>"
    markdown = translate(read("one **two** *three* [a](b) four `x`", "markdown"), "en", run)
    assert markdown.text == "*eins* **zwei**[](b) `x`"


def test_blank_output_keeps_source():
    document = "One. **Two** three."
    actual = translate(
        read(document, "markdown"),
        "en",
        lambda texts, attention: [Hypothesis(" ", 0.0) for _ in texts],
    )
    assert actual.text == document


def test_changed_numbers_are_restored():
    def run(texts, attention):
        return [
            Hypothesis(text.replace("42", "zweiundvierzig").replace("7", "7"), 0.0)
            for text in texts
        ]

    actual = translate(read("The 42 and 7 are numbers", "text"), "en", run)
    assert actual.text == "The and are numbers 42 7"


@pytest.mark.parametrize(
    "document",
    [
        (
            "<script>if (a < b) { one. Two }</script><style>b</style><pre>one "
            "<b>two</b></pre><textarea>one</textarea>"
        ),
        '<p translate="no">one <p>',
        '<div class="a notranslate">one <div>two</div> three</div>',
        "<!-- one two --><?php one ?><!DOCTYPE html>",
        "```\none two\n```\n\n    one two\n\n<div>one two</div>\n",
    ],
)
def test_non_text_is_unchanged(document):
    format = "markdown" if "```" in document else "html"
    assert translated(document, format, shown=str.upper).text == document


def test_attributes_are_untouched():
    document = "<p title=\"one two\" data-x='three'>one <a href=x.html  target=_blank >two</A></p>"
    assert (
        turned(document)
        == "<p title=\"one two\" data-x='three'><a href=x.html  target=_blank >two</A> one</p>"
    )


@pytest.mark.parametrize(
    "document",
    [
        "<b>one</i> two</b>",
        "one <b>two <i>three</b> four</i>",
        "one</p> <b>two",
        "</b>one two",
        "<b><i>one</b></i>",
    ],
)
def test_bad_nesting_keeps_each_tag(document):

    assert sorted(re.findall("<[^>]*>", turned(document))) == sorted(
        re.findall("<[^>]*>", document)
    )


def test_crlf_line_ends_are_kept():
    document = "# one\r\n\r\n- two\r\n- three **four**\r\n"
    assert translated(document, "markdown").text == document


# The seeds of documents, which are also their ids. More of them are in the long tests.
SEEDS = [
    pytest.param(seeds, id=f"{seeds[0]}-{seeds[-1]}", marks=marks)
    for seeds, marks in ((range(60), ()), (range(60, 300), pytest.mark.long))
]


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_documents_are_sound(seeds):
    """Sentences in = sentences out, places, placeholders, and markup that is well-formed and
    complete. Half of the documents have shuffled words, which are the hardest.
    """
    for seed in seeds:
        made = Maker(seed).made()
        random = np.random.default_rng(seed)
        orders = (random.permutation, range, random.permutation, turned_order)
        order = orders[seed // 3 % 4]  # the format depends on seed % 3
        try:
            check(made, translated(made.text, made.format, order, language=made.language))
            check(
                made,
                translated(made.text, made.format, order, limit=4, language=made.language),
                is_cut=True,
            )
        except Exception as error:
            raise AssertionError((seed, made.text)) from error


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_attention_keeps_markup(seeds):
    """Attention and lengths by chance, one word included."""
    random = np.random.default_rng(seeds[0])

    def run(texts, attention):
        return [one(text) for text in texts]

    def one(text):
        source, target = text.split(), [f"w{n}" for n in range(random.integers(1, 8))]
        weights = random.random((len(target) + 1, len(source) + 1))
        return Hypothesis(
            " ".join(target),
            0.0,
            [*target, "</s>"],
            attention=weights,
            source_tokens=[*source, "</s>"],
        )

    for seed in seeds:
        made = Maker(seed).made()
        try:
            check(made, translate(read(made.text, made.format), made.language, run))
        except Exception as error:
            raise AssertionError((seed, made.text)) from error


def test_word_and_piece_spans():
    text = "Don't (ever) say 3.5, हिन्दी!"
    assert [text[start:end] for start, end in word_spans(text)] == [
        "Don't",
        "(",
        "ever",
        ")",
        "say",
        "3.5",
        ",",
        "हिन्दी",
        "!",
    ]
    assert word_spans("我们走吧。", [0, 2, 3]) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert piece_spans(["\u2581a", "bc", "<unk>", "\u2581d", ""], "abc \u2603 d") == [
        (0, 1),
        (1, 3),
        (3, 6),
        (6, 7),
        (7, 7),
    ]


def test_sentence_places_match():
    document = "<p>One. Two <b>three</b>.</p><p>Four</p>"
    check_places(document, translated(document, "html"))
