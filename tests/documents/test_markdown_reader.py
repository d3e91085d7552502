"""Markdown documents: their text, the markup that stays unchanged, and escapes."""

import random

import pytest
from document_checks import in_capitals, translate

from tfk_transformer.formats.documents.items import ItemType
from tfk_transformer.formats.reading.markdown_reader import (
    escape_markdown,
    markdown_structure,
)
from tfk_transformer.formats.registry import read

SHOWN = {ItemType.TEXT: "{}", ItemType.BREAK: "¶", ItemType.POINT: "⟦{}⟧"}
DEFINITIONS = "\n\n[key]: https://example.org\n\n[^1]: note\n"


def text_of(document):
    """Return the text of a document, with the characters of points and elements in ⟦⟧ and ‹›."""
    shown = ""
    for item in read(document, "markdown").items:
        raw = document[item.start : item.end]
        shown += SHOWN.get(item.type, "‹{}›").format(
            item.text if item.type is ItemType.TEXT else raw
        )
    return shown.strip("¶").replace("¶¶", "¶")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("one `two **three** four", "one `two ‹**›three‹**› four"),
        ("``one'' two", "``one'' two"),
        ("`` ` one **two**", "`` ` one ‹**›two‹**›"),
        ("`one` ` **two**", "⟦`one`⟧ ` ‹**›two‹**›"),
    ],
)
def test_unmatched_backticks_are_text(document, text):
    assert text_of(document) == text


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("***one***", "‹*›‹**›one‹**›‹*›"),
        ("**one *two***", "‹**›one ‹*›two‹*›‹**›"),
        ("****one****", "‹**›‹**›one‹**›‹**›"),
        ("**one *two** three", "*‹*›one ‹*›two‹*›‹*› three"),
        ("~~one~~ ~~~two~~~", "‹~~›one‹~~› ~‹~~›two~‹~~›"),
        ("[one **two**](x) __three__", "‹[›one ‹**›two‹**›‹](x)› ‹__›three‹__›"),
        ("\\*one\\* &amp; *two*", "*one* & ‹*›two‹*›"),
    ],
)
def test_delimiters_have_positions(document, text):
    assert text_of(document) == text


def test_task_list_boxes_are_kept():
    assert text_of("- [ ] one\n- [x] two\n- [X]  three [ ]\n") == "one¶two¶three [ ]"


def test_alert_markers_are_kept():
    assert text_of("> [!NOTE]\n> one\n> two\n") == "one\ntwo"
    assert text_of("> [!tip]- Title\n> one\n") == "one"
    assert text_of("> [!tip | inline end]\n> one\n") == "one"


def test_number_signs_without_a_blank_are_kept():
    assert text_of("##one\n\n##\u00a0two #3\n\n#seven nine") == "one¶two ⟦#3⟧¶⟦#seven⟧ nine"


def test_icons_are_kept():
    assert text_of("__:a-b: one__ 9:30: two _:c:_") == "‹__›⟦:a-b:⟧ one‹__› 9:30: two ‹_›⟦:c:⟧‹_›"


def test_footnotes_are_kept():
    document = "one[^1] two[^a-b].\n\n[^1]: three\n\n    four\n[^a-b]: five\n"
    assert text_of(document) == "one⟦[^1]⟧ two⟦[^a-b]⟧.¶three¶four¶five"


@pytest.mark.parametrize(
    ("link", "explicit"),
    [
        ("[key]", "][key]"),
        ("[key][]", "][key]"),
        ("[*key*\nname]", "][*key* name]"),
        ("[one `name`][]", "][one `name`]"),
        ("[one][key]", ""),
        ("[one](two)", ""),
        ("[key]{.one}", "][key]{.one}"),
    ],
)
def test_label_keys_can_be_explicit(link, explicit):
    document = f"{link}{DEFINITIONS}\n[*key* name]: x\n"
    items = read(document, "markdown").items
    opening = next(item for item in items if item.type is ItemType.OPEN)
    closing = [item for item in items if item.type is ItemType.CLOSE and item.pair == opening.pair]
    assert [item.explicit for item in closing] == [explicit]
    assert document[opening.start : closing[0].end] == link


def test_unknown_reference_is_a_link():
    assert text_of("[one][a.b.C] [two three][]") == "‹[›one‹][a.b.C]› ‹[›two three‹][]›"
    assert text_of("[a.b.C][] [`d`][]") == "⟦[a.b.C][]⟧ ⟦[`d`][]⟧"
    assert text_of("[one] [two] three[0]") == "[one] [two] three[0]"


def test_reference_after_a_line_break():
    document = "see [one]\n[key] and [a]\n[b]" + DEFINITIONS
    assert text_of(document).startswith("see ‹[›one‹]\n[key]› and [a]\n[b]")


@pytest.mark.parametrize(
    "line",
    [
        "::: info",
        ":::{note} A title",
        "::: package.Name",
        "/// info | A title",
        "//// tab | Python",
        "{% hint style='info' %}",
        "{{< figure src=x.png >}}",
        '{{< a >}} {{% b "c" %}}',
        "{{< img\nsrc=x.png\n>}}",
        "{: .class }",
        "{#id}",
        "(a-target/b)=",
        "*[HTML]: Hyper Text",
        "[TOC]",
        '--8<-- "file.md"',
        "<<< @/file.js",
        "+++",
    ],
)
def test_syntax_lines_are_not_text(line):
    assert text_of(f"one\n{line}\ntwo") == "one¶two"
    assert text_of(f"- one\n\n  {line}\n\n  two".replace("\nsrc", "\n  src")).startswith("one¶")


@pytest.mark.parametrize(
    "document",
    [
        "---\ntitle: one\n---\n\ntwo",
        "+++\ntitle = 'one'\n\ndraft = true\n+++\n\ntwo",
        '{\n"title": "one"\n}\n\ntwo',
        "\ufeff---\ntitle: one\n---\n\ntwo",
        "---\r\ntitle: one\r\n---\r\n\r\ntwo",
    ],
)
def test_front_matter_is_not_text(document):
    assert text_of(document) == "two"


def test_definition_after_byte_order_mark_is_not_known_to_passages():
    document = read("\ufeff[x]: /u\n\n[y]: /v\n\ntext", "markdown")
    structure = document.structure("[x] and [y]")
    links = [string for string in structure if "link_open" in string]
    assert len(links) == 1
    assert "/v" in links[0]


@pytest.mark.parametrize(
    "document",
    [
        "$$\none\n$$\n\ntwo",
        "\\begin{align}\none\n\\end{align}\n\ntwo",
        "```python\none\n```\ntwo",
        "```{code-block} python\none\n```\ntwo",
        ":::{math}\none\n:::\ntwo",
        ":::{note}\n> :::{code}\n> one\n> :::\n> two",
        "{{< code-toggle >}}\na: one\n\nb: one\n{{< /code-toggle >}}\ntwo",
        "<div>\none\n</div>\n\ntwo",
        "% one\n\ntwo",
    ],
)
def test_blocks_of_code_are_not_text(document):
    assert text_of(document) == "two"


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ('!!! note "Title"\n\n    one\n\n    - two\n\nthree', "one¶two¶three"),
        ("??? tip\n    one", "one"),
        ('=== "Tab"\n\n    one\n\n    ```\n    code\n    ```\n', "one"),
        (":::{note}\n:class: x\none\n:::\ntwo", "one¶two"),
        ("```{tip}\n---\nclass: x\n---\none\n```\ntwo", "one¶two"),
        ("- one\n\n  ```{note}\n  two\n  ```\n- three", "one¶two¶three"),
        ("/// tip | Title\n    type: x\n\none\n///", "one"),
        ("one\n: two\n\n    three\n", "one¶two¶three"),
        ("<!-- option -->\n\n:   !!! note\n\n        one\n", "one"),
        ("<!-- a:b -->\n\n:   <!-- a:c -->\n    one: two\n", "one: two"),
        (":name: one\n  two", "one\ntwo"),
    ],
)
def test_content_of_blocks_is_text(document, text):
    assert text_of(document) == text


@pytest.mark.parametrize(
    "mark",
    [
        "$x_1 * y_2$",
        "$$a*b*$$",
        "{ref}`one <two>`",
        '{{< ref "one_two_" >}}',
        "{{ one['*'] }}",
        "{% if *a* %}",
        "++ctrl+a++",
        ":material-check:",
        ":+1:",
        "<kbd>nine</kbd>",
        "<span translate=no>one <b>two</b></span>",
        '<a class="notranslate">one</a>',
        "`code`{l=python}",
        "![one](two){width=3}",
    ],
)
def test_unchanged_inline_text_is_a_point(mark):
    assert text_of(f"one {mark} two") == f"one ⟦{mark}⟧ two"


def test_html_blocks_end_sentences():
    document = "| <ul><li>one</li><li>two</li></ul> |\n|---|\n| three<br>four <name> <pre>x</pre> |"
    texts = [text.strip() for text in text_of(document).split("¶")]
    assert [text for text in texts if text] == ["one", "two", "three", "four ⟦<name>⟧"]


def test_attributes_are_kept():
    assert text_of("# one *two* {#id .a}") == "one ‹*›two‹*›"
    assert text_of("[one](x){ .a target=_blank } two") == "‹[›one‹](x){ .a target=_blank }› two"


@pytest.mark.parametrize(
    "text",
    [
        "it costs $5 or $6",
        "$HOME and `$PATH`",
        "at 12:30:45 o'clock",
        "a[0][1",
        "a {name} b",
        "5 % of it",
        "%(count)d and %s",
        "2^d and a_b",
    ],
)
def test_ordinary_text_is_not_markup(text):
    assert (
        "".join(item.text for item in read(text, "markdown").items).replace("Code", "`$PATH`")
        == text
    )


def test_script_link_is_a_link():
    assert text_of("[one](javascript:two)") == "‹[›one‹](javascript:two)›"


FRAGMENTS = (
    "* ** _ __ ~~ ~ ` `` [ ] ( ) ![ ](x) < > <b> </b> <!-- --> & &amp; | || \\ # ## - + = === 1. "
    "2) : :: ::: !!! ??? $ $$ {#id} {.x} {{x}} {{< {% [^1] [^1]: [x]: [key] [key][key] :smile: "
    "++k++ --- *** ___ +++ ^^^ / /// % (t)= [TOC] *[H]: <script> ``` ~~~ {ref}`x` a b word , . !"
).split(" ")
CONTEXTS = (
    "{}",
    "# {} {{#id}}",
    "- [ ] {}",
    "1. {}\n2. x",
    "> [!NOTE]\n> {}",
    "| a | b |\n|---|---|\n| {} | c |",
    "a **{}** b",
    "*{}*",
    "[{}](u)",
    "[key]{}",
    "[key][]{}",
    "{}[key]",
    "{}![i](u)",
    "x `c`{}",
    "term\n: {}",
    "[^1]: {}",
    "a\n{}\nb",
    "{}\n===",
    "!!! note\n    {}",
    "x{}y",
)


def test_references_stand_for_what_no_backslash_escapes():
    assert escape_markdown("<b> &lt; \\&") == "&lt;b\\> &amp;lt; \\\\&"


def test_escaped_text_is_not_markup():
    made = random.Random(0)
    expected = {
        context: markdown_structure(context.format("word") + DEFINITIONS) for context in CONTEXTS
    }
    for _ in range(2000):
        context = made.choice(CONTEXTS)
        pieces = (made.choice([*FRAGMENTS, " ", "\n", "\n\n"]) for _ in range(made.randint(1, 6)))
        text = "".join(pieces).strip()
        before, following = context.split("{}")
        if text:
            written = before + escape_markdown(text, following) + following
            written = written.replace("{{", "{").replace("}}", "}") if "#id" in context else written
            assert markdown_structure(written + DEFINITIONS) == expected[context], (context, text)


def test_structure_has_no_words():
    document = "# one *two* `c` {#id}\n\n- [three](x)\n\n| a | b |\n|---|---|\n| c | d |\n"
    structure = markdown_structure(document)
    for word in ("one", "two", "three"):
        document = document.replace(word, "other words")
    assert markdown_structure(document) == structure
    assert "inline code_inline c" in structure


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("one\n\ntwo", "one\ntwo"),
        ("one", "# one"),
        ("one `a`", "one `b`"),
        ("[one](a)", "[one](b)"),
        ('[one](a "b")', '[one](a "c")'),
        ("one  \ntwo", "one\ntwo"),
        ("one", "one\n\n[a]: b"),
        ("| a | b |\n|---|---|\n| c | d |", "| a | b |\n|---|---|\n| c | d | e |"),
        ("<b class=x>one</b>", "<b class=y>one</b>"),
        ("one[^1]", "one[^2]"),
        ("[one][a.b]", "[one][a.c]"),
    ],
)
def test_structure_shows_changes(before, after):
    assert markdown_structure(before) != markdown_structure(after)


def test_changed_label_keeps_its_key():
    document = "see [the key] and [7][] or [b *c*][]\n\n[the key]: u\n[7]: v\n[b *c*]: w\n"
    written = translate(read(document, "markdown"), "en", in_capitals).text
    assert written.split("\n")[0] == "SEE [THE KEY][the key] AND [7][] OR [B *C*][b *c*]"


def test_passages_use_all_definitions():
    """A passage is read alone, and has links whose definitions are in other passages."""
    document = "one\n\n[key]: https://example.org\n"
    structure = read(document, "markdown").structure
    assert structure("[two][key]") == structure("[three][key]")
    assert structure("[key]") != structure("[other]")
    assert structure(document) != structure("one\n")
