"""HTML as items, its structure, and its attributes."""

import html

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfk_transformer.formats.documents.items import ItemType, split_at_breaks
from tfk_transformer.formats.reading.html_attributes import edit_attributes
from tfk_transformer.formats.reading.html_parser import HtmlParser
from tfk_transformer.formats.reading.html_reader import html_structure, read
from tfk_transformer.text.results import DocumentSentence, DocumentTranslation
from tfk_transformer.text.road import drive

FRAGMENTS = (
    ["<p>", "</p>", "<b>", "</b>", "<i title='<b>'>", "</i>", "<a href=x>", "</a>", "<br/>"]
    + ["<ul>", "<li>", "</ul>", "<table>", "<tr>", "<td>", "</table>", "<li translate=no>"]
    + ["<code>", "</code>", "<div class=notranslate>", "</div>", "<ruby>", "<rt>", "</ruby>"]
    + ["<pre>\n", "</pre>", "<svg>", "<title>", "</svg>", "<textarea>", "</textarea>", "</>"]
    + ["<script>", "</script>", "<!--", "-->", "<![CDATA[", "<?php ", ">", "<", "</", "&", "'"]
    + ["&amp;", "&notit;", "&#x1F600;", "&nbsp;", "\r\n", "\r", "\n", " ", "seven", "a & b", '"']
)


def parts(document):
    """The texts between breaks; points are in brackets."""
    return [
        "".join(
            item.text if item.type is ItemType.TEXT else f"[{document[item.start : item.end]}]"
            for item in group
        )
        for group in split_at_breaks(read(document).items)
    ]


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        ('<ul><li translate="no">seven<li>nine</ul>', ["nine"]),
        ('<table><tr><td class="notranslate">seven<td>nine</table>', ["nine"]),
        ('<dl><dt translate="no">seven<dd>nine</dl>', ["nine"]),
        ('<p translate="NO">seven<p>nine', ["nine"]),
        ("<p>six <code>seven<p>nine", ["six [<code>seven]", "[nine]"]),
    ],
)
def test_end_tags_may_be_left_out(document, texts):
    assert parts(document) == texts


@pytest.mark.parametrize(
    "annotation", ["<rp>(</rp><rt>kan</rt><rp>)</rp>", "<rp>(<rt>kan<rp>)", "<rt>kan</rt>"]
)
def test_ruby_annotations_are_unchanged(annotation):
    document = f"<ruby>seven{annotation}</ruby>"
    texts = [item.text for item in read(document).items if item.type is ItemType.TEXT]
    assert texts == ["seven"]
    assert {item.text for item in read(document).items if item.type is ItemType.POINT} == {""}


def test_empty_end_tags_are_kept():
    assert parts("Seven. Eight.</>") == ["Seven. Eight.[</>]"]
    assert parts("Seven</> eight") == ["Seven[</>] eight"]


@pytest.mark.parametrize(
    "tag", ['<b title="<script>alert(1)</script>', "<a href='<p>nine</p>", "<b <p", "<!-- <p>nine"]
)
def test_unclosed_tags_stay_inert(tag):
    texts = [item.text for item in read(f"<p>seven {tag}").items if item.text]
    assert "".join(texts) == "seven "


@pytest.mark.parametrize(
    "name", ["script", "style", "pre", "xmp", "noscript", "textarea", "plaintext", "template"]
)
def test_raw_text_is_unchanged(name):
    assert parts(f"<p>six</p><{name}>seven <b>&amp;</{name}>") == ["six"]


def test_nested_unchanged_elements_end_once():
    document = "<p>six <code>a<code>b</code>c</code> <kbd>d</kbd><var>e</var> seven"
    assert parts(document) == [
        "six [<code>a<code>b</code>c</code>] [<kbd>d</kbd>][<var>e</var>] seven"
    ]


def test_character_references_are_items():
    items = read("a&amp;b &copy;2 &notit; AT&T").items
    assert [item.text for item in items if item.end - item.start != len(item.text)] == [
        "&",
        "©",
        "¬i",
    ]


def test_template_code_is_unchanged():
    assert parts("<p>{% if six > 5 %}seven{% endif %} {# nine #} {{ a }}</p>") == [
        "seven",
        " [{# nine #}] [{{ a }}]",
    ]
    assert parts('{{/* six\nseven */}}\nEight {{< img src="x" >}}') == [
        '\nEight [{{< img src="x" >}}]'
    ]


def test_code_on_its_own_line_is_a_break():
    document = "{% block a %}\nSeven\n  {% endblock %}\nNine has\n  {{ count }}\n  stars"
    assert [part.strip() for part in parts(document)] == [
        "Seven",
        "Nine has\n  [{{ count }}]\n  stars",
    ]


def test_closed_tags_of_xml_are_empty():
    start = "<?xml version='1.0'?>"
    assert parts(f"{start}<p>six <a id='x'/>seven</p><script src='x'/><p>nine") == [
        f"[{start}]",
        "six [<a id='x'/>]seven",
        "nine",
    ]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12))
@settings(max_examples=300, deadline=None)
def test_each_character_has_one_token(pieces):
    document = "".join(pieces)
    parser = HtmlParser(document)
    end = 0
    for token in parser.tokens:
        assert token.start == end < token.end
        end = token.end
        if token.type == "Text" and token.unchanged is None:
            assert html.unescape(document[token.start : token.end]) == token.data
    if "CDATA" in document:
        return
    read = "".join(token.data for token in parser.tokens if token.type == "Text")
    tree = html5lib.parse(document, namespaceHTMLElements=False, scripting=True)
    texts = [element.tail for element in tree.iter()]
    texts += [
        element.text
        for element in tree.iter()
        if isinstance(element.tag, str) and element.tag != "<!DOCTYPE>"
    ]
    shown = "".join(filter(None, texts))
    assert sorted("".join(shown.split())) == sorted("".join(read.replace("\r", "").split()))


def test_structure_has_no_words():
    document = "<p>six <b class=a>seven</b><!-- c --></p><pre>x <i>y</i></pre><code>z</code>"
    expected = [
        *("<html>", "<head>", "</head>", "<body>"),
        *("<p>", 'inline <b class="a">', "inline <!-- c -->", "</p>"),
        *("<pre>x <i>y</i></pre>", "inline <code>z</code>", "</body>", "</html>"),
    ]
    assert html_structure(document) == expected
    assert html_structure(document.replace("six", "<b>").replace("seven", "")) != expected
    other_words = document.replace("six", "8 &lt;b&gt;").replace("seven", "nine")
    assert html_structure(other_words) == expected


@pytest.mark.parametrize(
    ("changed", "document"),
    [
        ("<p>six<script>a</script>", "<p>six"),
        ("<p>six<script>a</script>", "<p>six<script>b</script>"),
        ("<a href=x>six</a>", "<a href=y>six</a>"),
        ("<p>six<p>seven", "<p>six seven"),
        ("<b>six", "<i>six"),
        ('<p>six <b title="<script>a</script>', '<p>six <b title="<script>a</script>">'),
        ("<ruby>six<rt>a</ruby>", "<ruby>six<rt>b</ruby>"),
        ("<ul><li>six</ul><p>seven", "<p>seven<ul><li>six</ul>"),
    ],
)
def test_structure_tells_documents_apart(changed, document):
    assert html_structure(changed) != html_structure(document)


def test_deep_documents_are_read():
    document = f"{'<div><em>' * 1200}seven{'</em></div>' * 1200}"
    assert parts(document)[0].count("<em>") == 1
    assert html_structure(document).count("inline <em>") == 1200


@pytest.mark.parametrize(
    ("document", "limit"),
    [("".join(f"<p><i id={n}>one" for n in range(70)), 64), ("<div>one" * 3001, 3000)],
)
def test_html_with_too_many_open_elements_is_refused(document, limit):
    with pytest.raises(ValueError, match=f"got more than {limit} elements without an end, up to"):
        read(document)


def test_failures_of_the_parser_are_named():
    message = r"text: expected HTML, got markup that html5lib cannot parse, up to line 2; correct"
    with pytest.raises(ValueError, match=message):
        read("\n<table><svg><html>")


def in_capitals(texts):
    return [text.upper() for text in texts]


@pytest.mark.parametrize(
    ("tag", "translation"),
    [
        ("<img alt=seven src=a>", '<img alt="SEVEN" src=a>'),
        ("<img src='alt=a' ALT = 'it&#39;s'>", "<img src='alt=a' ALT = 'IT&#39;S'>"),
        ('<a title="six\r\nseven &quot;x&quot;">', '<a title="SIX SEVEN &quot;X&quot;">'),
        ("<input placeholder='a < b'>", "<input placeholder='A &lt; B'>"),
        ("<svg aria-label=six><g aria-label=six>", '<svg aria-label="SIX"><g aria-label=six>'),
        ("<picture><img alt=six></picture>", '<picture><img alt="SIX"></picture>'),
        ("<meta name=Description content=six>", '<meta name=Description content="SIX">'),
        ('<textarea placeholder="six">', '<textarea placeholder="SIX">'),
    ],
)
def test_attributes_are_translated(tag, translation):
    assert drive(edit_attributes(tag), in_capitals).text == translation


@pytest.mark.parametrize(
    "tag",
    [
        '<img alt="">',
        '<img alt="42">',
        "<a href=six class=six data-title=six>",
        "<img translate=no alt=six>",
        "<div class=notranslate><img alt=six></div>",
        "<meta name=viewport content=six>",
        '<link title="six">',
        '<a title="{{ six }}">',
        "<pre><a title=six></pre>",
        '<html lang="de">',
        "<img alt='six",
    ],
)
def test_other_attributes_are_unchanged(tag):
    assert drive(edit_attributes(tag), in_capitals).text == tag


def test_page_language_is_set():
    document = "<html lang=de xml:lang='de' title=six><p lang=fr>"
    editing = edit_attributes(document, attributes=False, target_language="pt")
    assert drive(editing, in_capitals).text == (
        "<html lang=\"pt\" xml:lang='pt' title=six><p lang=fr>"
    )


def test_positions_are_those_of_the_source():
    source = "<p>six</p><img alt='a' src=a><p>seven <img alt=b> eight</p><img alt=c>"
    editing = edit_attributes(source)
    changed = drive(editing, lambda texts: [f"long {text}" for text in texts])
    start = changed.text.index("seven")
    end = changed.text.index(" eight") + len(" eight")
    text = changed.text[start:end]
    sentences = [
        DocumentSentence(3, 6, 3, 6, "six", "six", 0.0),
        DocumentSentence(start, end, start, end, text, text, 0.0),
    ]
    restored = changed.restore(DocumentTranslation(changed.text, sentences))
    assert [sentence.source for sentence in restored.sentences] == [
        "six",
        "seven <img alt=b> eight",
    ]
    assert restored.sentences[1].target == text
