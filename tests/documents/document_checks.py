"""What must be true of every translated document."""

from collections import Counter

import html5lib
import numpy as np
from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin

from tfk_transformer.formats.documents.translation import translating
from tfk_transformer.text.results import Hypothesis
from tfk_transformer.text.road import drive


def translate(document, language, run):
    """Translate a document by a function: texts, whether they need attention -> translations."""
    translation = translating(document, language)
    return drive(translation, lambda sentences: run(sentences.texts, sentences.attention))


def in_capitals(texts, attention):
    """Translate each text to capitals. Each word attends to itself."""
    pieces = [[*text.split(), "</s>"] for text in texts]
    return [
        Hypothesis(
            text.upper(),
            0.0,
            [*text.upper().split(), "</s>"],
            attention=np.eye(len(words)),
            source_tokens=words,
        )
        for text, words in zip(texts, pieces, strict=True)
    ]


def check(made, result, is_cut=False):
    """Check a translation of a document of `made_documents`.

    Args:
        made: the document.
        result: its translation.
        is_cut: whether sentences were too long. Markdown's emphasis over such a cut keeps its
            characters, and may lose its effect.
    """
    assert len(result.sentences) == made.sentences
    check_places(made.text, result)
    for placeholder in set(made.placeholders):
        assert result.text.count(placeholder) == made.text.count(placeholder), placeholder
    if made.format == "html":
        # Raises an error where a tag is not closed, or not well nested.
        html5lib.HTMLParser(strict=True).parse(result.text)
        assert elements(result.text) == elements(made.text)
    elif is_cut:
        assert [result.text.count(mark) for mark in ("*", "~~", "](", "<u>", "</u>", "`")] == [
            made.text.count(mark) for mark in ("*", "~~", "](", "<u>", "</u>", "`")
        ]
    elif made.format == "markdown":
        assert tokens(result.text) == tokens(made.text)


def check_places(document, result):
    """Sentences are where the result puts them, and everything between them is that of the source,
    or a blank instead of nothing.
    """
    source_end = target_end = 0
    for sentence in result.sentences:
        assert document[sentence.source_start : sentence.source_end] == sentence.source
        assert result.text[sentence.target_start : sentence.target_end] == sentence.target
        gap = document[source_end : sentence.source_start]
        assert result.text[target_end : sentence.target_start] in (gap, gap or " ")
        source_end, target_end = sentence.source_end, sentence.target_end
    assert document[source_end:] == result.text[target_end:]


def elements(document):
    """The elements of an HTML document with their attributes, counted."""
    tree = html5lib.parse(document, namespaceHTMLElements=False)
    return Counter((element.tag, tuple(sorted(element.attrib.items()))) for element in tree.iter())


def addresses(document):
    """The addresses of the links and images of a Markdown document, and its tags, counted."""
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    md.use(footnote_plugin)  # else a footnote of one word is the address of its marks
    return Counter(
        inner.content or inner.attrs.get("href") or inner.attrs.get("src")
        for token in md.parse(document)
        for inner in [token, *(token.children or [])]
        if inner.type in ("html_inline", "html_block") or {"href", "src"} & inner.attrs.keys()
    )


def tokens(document):
    """The blocks and inline elements of a Markdown document, counted; of code also the content."""
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    blocks = [token for token in md.parse(document) if token.type != "inline"]
    inline = [
        inner
        for token in md.parse(document)
        for inner in token.children or []
        if inner.type not in ("text", "softbreak", "text_special")
    ]
    return Counter(
        (token.type, token.tag, str(token.attrs), token.content) for token in blocks + inline
    )
