"""Markup that is written where the source has it, and read again."""

import itertools

import numpy as np
import pytest
from document_checks import addresses, check_places, elements, translate
from hard_documents import HardMaker, adversary, unchanged

from tfk_transformer.formats.registry import read
from tfk_transformer.text.results import Hypothesis
from tfk_transformer.text.words import word_spans

# The seeds of documents. More of them are in the long tests.
SEEDS = [
    pytest.param(seeds, id=f"{seeds[0]}-{seeds[-1]}", marks=marks)
    for seeds, marks in ((range(60), ()), (range(60, 800), pytest.mark.long))
]


def copied(document, format="markdown"):
    return translate(read(document, format), "en", unchanged).text


def constant(text):
    """Return a translator of all texts to one, without attention."""
    return lambda texts, attention: [Hypothesis(text, 0.0) for _ in texts]


def aligned(target):
    """Return a translator of all texts to some words; each attends to the same number's word."""

    def run(texts, attention):
        return [one([text[slice(*span)] for span in word_spans(text)]) for text in texts]

    def one(source):
        weights = np.eye(len(target) + 1, len(source) + 1)
        return Hypothesis(
            "".join(target),
            0.0,
            [*target, "</s>"],
            attention=weights,
            source_tokens=[*source, "</s>"],
        )

    return run


def ordered(structure):
    """Return a structure with neighboring inline elements in sorted order."""
    groups = itertools.groupby(structure, lambda string: string.startswith("inline "))
    return [
        string for is_inline, group in groups for string in (sorted(group) if is_inline else group)
    ]


@pytest.mark.parametrize(
    "document",
    [
        "Use `a`, `b`, and `c`.",
        "one (e.g., [two](x.html)) three",
        "see `a`, then (`b`) or [`c`](x.html)!",
        "one `a` — `b` two",
        "one: `a`: two",
    ],
)
def test_blanks_next_to_code_are_kept(document):
    assert copied(document) == document


@pytest.mark.parametrize(
    "document",
    [
        "the `jit`-ed function",
        "Flax `Module`s and `jax.vmap`'s argument",
        "one un**happy** two",
        "_**N**eural **N**etworks for JA**X**_",
        "a [CommonMark](x.html)-compliant parser",
        "one `__init__` two __three__ four `a`_ five",
        "运行`命令`吧，**中文**词",
    ],
)
def test_markup_inside_words_is_kept(document):
    assert copied(document) == document


@pytest.mark.parametrize(
    ("document", "format"),
    [
        ("<p>one <strong> two </strong> three<a href=x> ¶ </a></p>", "html"),
        ("<p>one <b>two</b>\n  <i> three</i>\n four</p>", "html"),
        ("> one\n> two **three**\n> four", "markdown"),
        ("one\ntwo  three", "text"),
        ("| a | b |\n|---|---|\n| `x` | one \\| two \\| three\\|four (`y`) |", "markdown"),
        ("| a | b |\n|---|---|\n| c | one\\\\| two \\* `y` |", "markdown"),
    ],
)
def test_blanks_of_copied_words_are_kept(document, format):
    assert copied(document, format) == document


@pytest.mark.parametrize(
    ("document", "format"),
    [
        ("<p>&copy; one 5&nbsp;km AT&T a < b &lt; c > d &quot;e&quot; &#39;f&#39;</p>", "html"),
        ("<p>&copy; <b>one</b> 5&nbsp;km AT&T, a < b &amp; c</p>", "html"),
        ("one &mdash; two \\* three\\_four **five** &lt; six", "markdown"),
    ],
)
def test_copied_characters_keep_form(document, format):
    assert copied(document, format) == document


@pytest.mark.parametrize("text", ["&lt;", "&#60;", "\\*", "a\\_b"])
def test_markdown_characters_stay(text):
    """The characters of a translation are not read as a character reference or an escape."""
    result = translate(read("word", "markdown"), "en", constant(text))
    items = read(result.text, "markdown").items
    assert "".join(item.text for item in items) == text


def test_html_references_are_escaped():
    result = translate(read("<p>AT&T or AT&amp;T</p>", "html"), "en", constant("AT&lt; or &T"))
    assert result.text == "<p>AT&amp;lt; or &amp;T</p>"


def test_escapes_only_where_needed():
    document = "One [0.8.0] a_b | c < d.\n\nTwo *three* four.\n"
    assert copied(document) == document

    def run(texts, attention):
        return [Hypothesis(text.replace("One", "*One*"), 0.0) for text in texts]

    result = translate(read("One a_b.\n\nTwo a_b.\n", "markdown"), "en", run)
    assert result.text.startswith("\\*One\\* a")
    assert result.text.endswith("\n\nTwo a_b.\n")
    assert [sentence.keeps_source for sentence in result.sentences] == [False, False]


@pytest.mark.parametrize(
    ("document", "translation", "written"),
    [
        ("# one", "C #", "# C \\#"),
        ("# one", "C {#id}", "# C \\{#id\\}"),
        ("- one", "[x] zwei", "- \\[x\\] zwei"),
        ("> one", "[!NOTE] zwei", "> \\[!NOTE\\] zwei"),
        ("one", "<b> zwei", "&lt;b\\> zwei"),
        ("one", "R&D &lt;", "R&D &amp;lt;"),
    ],
)
def test_text_does_not_become_syntax(document, translation, written):
    result = translate(read(document, "markdown"), "en", constant(translation))
    assert result.text == written


@pytest.mark.parametrize(
    "translation",
    ["<http://evil.example>", "<x@evil.example>", "[a](javascript:b)", "![a](b)", "[a]: b", "<b>"],
)
def test_translations_add_no_live_markup(translation):
    result = translate(read("one <http://a.b> two", "markdown"), "en", constant(translation))
    assert addresses(result.text) == {"http://a.b": 1}


@pytest.mark.parametrize("document", ["~~seven~~ ~~ten~~", "_seven_ _ten_"])
def test_touching_delimiters_keep_source(document):
    """One word cannot have both elements: its markup would read as another element."""
    result = translate(read(f"{document}\n\nnine\n", "markdown"), "en", constant("siebzehn"))
    assert result.text == f"{document}\n\nsiebzehn\n"
    assert [sentence.keeps_source for sentence in result.sentences] == [True, False]


def test_emphasis_gets_a_blank_if_needed():
    """Emphasis that ends with a punctuation mark does not end directly before a letter."""
    result = translate(read("**Note:** later", "markdown"), "en", aligned(["注意", "：", "后"]))
    assert result.text == "**注意：** 后"


@pytest.mark.parametrize("document", ["see httpx.HTTPError now", "Python 3.X Job"])
def test_names_with_periods_stay_whole(document):
    assert copied(document, "text") == document


@pytest.mark.parametrize("tag", ["b", "div"])
def test_nested_elements_are_kept(tag):
    document = f"<{tag}>" * 1200 + "one two" + f"</{tag}>" * 1200
    assert copied(document, "html") == document


def test_nested_markdown_is_kept():
    document = "**one " * 300 + "two" + " three**" * 300
    assert copied(document).split() == document.split()


@pytest.mark.parametrize("step", [0, 20])
def test_reading_again_is_linear(step):
    """A document is read once more if nothing is wrong, and in parts if something is."""
    blocks = [
        f"One *two* {'seven' if step and n % step == 0 else 'eight'} nine.\n" for n in range(400)
    ]
    document = read("\n".join(blocks), "markdown")
    lengths = []

    def structure(text):
        lengths.append(len(text))
        return document.structure(text)

    def run(texts, attention):
        return unchanged([text.replace("seven", "[x](y)") for text in texts], attention)

    result = translate(document._replace(structure=structure), "en", run)
    assert result.text.count("\\[x\\](y)") == (20 if step else 0)
    assert not any(sentence.keeps_source for sentence in result.sentences)
    assert sum(lengths) < (25 if step else 2.1) * len(document.text)


@pytest.mark.parametrize("seeds", SEEDS)
def test_hard_documents_keep_structure(seeds):
    kept = total = 0
    for seed in seeds:
        maker = HardMaker(seed)
        text = maker.document()
        document = read(text, maker.format)
        result = translate(document, "en", adversary(seed))
        structure = document.structure(result.text)
        assert ordered(structure) == ordered(document.structure(text)), (seed, text)
        if maker.format == "html":
            assert elements(result.text) == elements(text), (seed, text)
        else:
            assert addresses(result.text) <= addresses(text), (seed, text)
        check_places(text, result)
        kept += sum(sentence.keeps_source for sentence in result.sentences)
        total += len(result.sentences)
    assert kept < total / 20


@pytest.mark.parametrize("seeds", SEEDS)
def test_hard_documents_come_back(seeds):
    """A translator that changes nothing changes nothing, line breaks and blanks included."""
    for seed in seeds:
        maker = HardMaker(seed)
        text = maker.document()
        assert copied(text, maker.format) == text, seed
