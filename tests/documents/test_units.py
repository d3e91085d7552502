"""Template tags, formulas, JSX and other code that Markdown and HTML do not know."""

import pytest
from document_checks import in_capitals, translate
from hard_documents import adversary, unchanged

from tfk_transformer.formats.documents.items import ItemType
from tfk_transformer.formats.reading.units import PATTERNS, mask
from tfk_transformer.formats.registry import read
from tfk_transformer.text.results import Hypothesis

MARKDOWN = {
    "destination of a Liquid tag": (
        "[forty-two]({% post_url a %}) seven",
        "[FORTY-TWO]({% post_url a %}) SEVEN",
    ),
    "destination of a variable": (
        "[forty-two]({{ site.url }}/a 'b') ![x]({{ y }}/z.png)",
        "[FORTY-TWO]({{ site.url }}/a 'b') ![x]({{ y }}/z.png)",
    ),
    "definition and autolink": (
        "one [two][b] <{{ site.url }}/x>\n\n[b]: {{ site.url | append: 'y' }}/a\n",
        "ONE [TWO][b] <{{ site.url }}/x>\n\n[b]: {{ site.url | append: 'y' }}/a\n",
    ),
    "address": (
        "see https://{{ host }}/a or {{ url }}/b.html.",
        "SEE https://{{ host }}/a OR {{ url }}/b.html.",
    ),
    "attribute": (
        'one <a href="{{ "x" | url }}">two</a> three',
        'ONE <a href="{{ "x" | url }}">TWO</a> THREE',
    ),
    "code between tags": (
        "one\n{% highlight c %}\nint seven = nine;\n\n{% endhighlight %}\ntwo",
        "ONE\n{% highlight c %}\nint seven = nine;\n\n{% endhighlight %}\nTWO",
    ),
    "code between tags in a sentence": (
        "one {% raw %}{{ two }} three{% endraw %} four",
        "ONE {% raw %}{{ two }} three{% endraw %} FOUR",
    ),
    "passages between raw": (
        "{% raw %}\n## one {{ x }}\n\n`{% y %}` two\n{% endraw %}",
        "{% raw %}\n## ONE {{ x }}\n\n`{% y %}` TWO\n{% endraw %}",
    ),
    "emphasis between tags": (
        "{% if x %}_one_ two{% endif %}**three**{{ y }}",
        "{% if x %}_ONE_ TWO{% endif %}**THREE**{{ y }}",
    ),
    "code between shortcodes": (
        "{{< mermaid >}}\none --> two\n{{< /mermaid >}}\n\nthree",
        "{{< mermaid >}}\none --> two\n{{< /mermaid >}}\n\nTHREE",
    ),
    "tag in a code span": ("`{% raw %}` one `{% endraw %}`", "`{% raw %}` ONE `{% endraw %}`"),
    "tag in a code block": (
        "```\n{% raw %}\n```\n\none\n\n~~~\n{% endraw %}\n~~~\n",
        "```\n{% raw %}\n```\n\nONE\n\n~~~\n{% endraw %}\n~~~\n",
    ),
    "tag after a backslash": (r"one \{% two %} three", r"ONE \{% two %} THREE"),
    "table": (
        "| {{ a | b }} | one |\n|---|---|\n| two | {% c | d %} |",
        "| {{ a | b }} | ONE |\n|---|---|\n| TWO | {% c | d %} |",
    ),
    "formulas in a sentence": (
        r"one \(x_1\), \\(x\\), $`x`$, $x_1$, $$x$$ and \[ x_1 \] two",
        r"ONE \(x_1\), \\(x\\), $`x`$, $x_1$, $$x$$ AND \[ x_1 \] TWO",
    ),
    "blocks of formulas": (
        "\\[\nx_1\n\\]\n\none\n\n\\\\[\nx\n\\\\]\n\n$$\nx\n\ny\n$$ (eq)\n",
        "\\[\nx_1\n\\]\n\nONE\n\n\\\\[\nx\n\\\\]\n\n$$\nx\n\ny\n$$ (eq)\n",
    ),
    "no formulas": (
        r"(from $50 to 40$) \(one\) \[two\] three",
        r"(FROM $50 TO 40$) \(ONE\) \[TWO\] THREE",
    ),
    "wiki links": (
        "one [[seven]] and [[seven|nine *ten*]] ![[a.png]]",
        "ONE [[seven]] AND [[seven|NINE *TEN*]] ![[a.png]]",
    ),
    "kramdown": (
        '{::options a="b" /}\n\none *two*{:.nine}\n{:.x}\n\n{::comment}\nthree\n{:/comment}\n',
        '{::options a="b" /}\n\nONE *TWO*{:.nine}\n{:.x}\n\n{::comment}\nthree\n{:/comment}\n',
    ),
    "mentions": (
        "one @seven @two:seven #seven a/seven#9 (#12) two@example.org",
        "ONE @seven @two:seven #seven a/seven#9 (#12) two@example.org",
    ),
    "keys": (
        'one ++ctrl+alt+"my key"++ two++ and "three" ++',
        'ONE ++ctrl+alt+"my key"++ TWO++ AND "THREE" ++',
    ),
    "snippets": (
        "one\n\n- two\n\n  --8<--\n  a.md\n\n  b.md\n  --8<--\n\nthree\n",
        "ONE\n\n- TWO\n\n  --8<--\n  a.md\n\n  b.md\n  --8<--\n\nTHREE\n",
    ),
    "directives": (
        "```{note}\n:class: x\none $x_1$\n```\n\n@two three\n\n```\nfour\n```\n",
        "```{note}\n:class: x\nONE $x_1$\n```\n\n@two THREE\n\n```\nfour\n```\n",
    ),
    "Vue": (
        'one <a @click="two" :href="x > y">three</a> {{ four }}',
        'ONE <a @click="two" :href="x > y">THREE</a> {{ four }}',
    ),
}
MDX = {
    "modules": (
        "import seven from './nine';\n\nexport const a = {\n  b: 1,\n\n  c: 2,\n};\n\none",
        "import seven from './nine';\n\nexport const a = {\n  b: 1,\n\n  c: 2,\n};\n\nONE",
    ),
    "a paragraph that begins as a module": ("one\nimport two", "ONE IMPORT TWO"),
    "components": (
        '<Tabs items={["seven"]}>\n    <Tab title="nine">\n    one **two**\n    </Tab>\n</Tabs>\n',
        '<Tabs items={["seven"]}>\n    <Tab title="nine">\n    ONE **TWO**\n    </Tab>\n</Tabs>\n',
    ),
    "component in a sentence": (
        'one <Icon name="two" /> three <b className={x}>four</b>',
        'ONE <Icon name="two" /> THREE <b className={x}>FOUR</b>',
    ),
    "expressions": (
        "one {props.two.map(x => `}${x}`)} three\n\n{/* four */}\n",
        "ONE {props.two.map(x => `}${x}`)} THREE\n\n{/* four */}\n",
    ),
    "destination": ("[one]({two}) three", "[ONE]({two}) THREE"),
    "block of HTML": ("<div>\n  one\n</div>\n", "<div>\n  ONE\n</div>\n"),
}
HTML = {
    "front matter": ("---\nlayout: news\n---\n<p>one</p>", "---\nlayout: news\n---\n<p>ONE</p>"),
    "loops": (
        '{{ range .A }}<a href="{{ .B "x" }}">one</a>{{ end }} {% if x %}<b>two</b>{% endif %}',
        '{{ range .A }}<a href="{{ .B "x" }}">ONE</a>{{ end }} {% if x %}<b>TWO</b>{% endif %}',
    ),
    "code between tags": (
        "<p>one {% schema %}two{% endschema %} three</p>",
        "<p>ONE {% schema %}two{% endschema %} THREE</p>",
    ),
    "formulas": (r"<p>one \(x_1\) two $$x$$</p>", r"<p>ONE \(x_1\) TWO $$x$$</p>"),
    "name of an element": (
        "<{{ tag }} class=a>one</{{ tag }}> <%= two %> three",
        "<{{ tag }} class=a>ONE</{{ tag }}> <%= two %> THREE",
    ),
    "attributes": (
        '<p {% if a > 1 %}class="b"{% endif %}>one</p>',
        '<p {% if a > 1 %}class="b"{% endif %}>ONE</p>',
    ),
}
CASES = [
    pytest.param(format, *case, id=f"{format}: {name}")
    for format, cases in (("markdown", MARKDOWN), ("mdx", MDX), ("html", HTML))
    for name, case in cases.items()
]


@pytest.mark.parametrize(("format", "document", "expected"), CASES)
def test_only_text_is_translated(format, document, expected):
    assert translate(read(document, format), "en", in_capitals).text == expected


@pytest.mark.parametrize(("format", "document", "expected"), CASES)
def test_every_sentence_is_translated(format, document, expected):
    sentences = translate(read(document, format), "en", in_capitals).sentences
    assert not any(sentence.keeps_source for sentence in sentences)


@pytest.mark.parametrize(("format", "document", "expected"), CASES)
def test_copied_document_comes_back(format, document, expected):
    assert translate(read(document, format), "en", unchanged).text.split() == document.split()


BARRIERS = [
    ("markdown", "a {% if x %}**b** c{% else %}d{% endif %} e", "a |**b** c|d| e"),
    ("markdown", "a {{< tip >}}b{{< /tip >}} {{< icon >}}", "a |b| {{< icon >}}"),
    ("markdown", "a {{#each x}}b {{y}}{{/each}} c", "a |b {{y}}| c"),
    ("html", "{{ with .A }}<b>a</b>{{ else }}b{{ end }} {{ .C }} c", "|<b>a</b>|b| {{ .C }} c"),
    ("mdx", "a <Tip>b</Tip> c <Icon /> d", "a |b| c <Icon /> d"),
]


@pytest.mark.parametrize(("format", "document", "expected"), BARRIERS)
def test_paired_tags_end_sentences(format, document, expected):
    breaks = [
        item
        for item in read(document, format).items
        if item.type is ItemType.BREAK and item.end > item.start
    ]
    shown = document
    for item in reversed(breaks):
        shown = f"{shown[: item.start]}|{shown[item.end :]}"
    assert shown == expected


@pytest.mark.parametrize(("format", "document"), [case[:2] for case in BARRIERS])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_crosses_paired_tags(format, document, seed):
    """The order of tags stays, whatever a model does."""
    source = read(document, format)
    breaks = [document[i.start : i.end] for i in source.items if i.type is ItemType.BREAK]
    actual = read(translate(source, "en", adversary(seed)).text, format)
    assert [
        actual.text[i.start : i.end] for i in actual.items if i.type is ItemType.BREAK
    ] == breaks


@pytest.mark.parametrize("dialect", PATTERNS)
@pytest.mark.parametrize(
    "text", ["a {{ b\n}} {c}", "{{😀}}", "<B>{x}</B>", "\U000f0001 \U00100001"]
)
def test_mask_keeps_positions(dialect, text):
    assert len(mask(text, dialect)) == len(text)


@pytest.mark.parametrize("format", ["markdown", "html", "mdx"])
def test_characters_for_private_use_stay(format):
    document = "one \U000f0001 two \U00100001"
    expected = "ONE \U000f0001 TWO \U00100001"
    assert translate(read(document, format), "en", in_capitals).text == expected


def test_target_of_a_link_is_part_of_the_structure():
    structure = read("", "markdown").structure
    assert structure("[a]({{ b }})") != structure("[a]({{ c }})")
    assert structure("{{ b }} a") != structure("{{ c }} a")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a {% x %}", r"a \{\% x %\}"),
        ("a {{ x }}", r"a \{\{ x \}\}"),
        ("a @name", r"a \@name"),
        ("a b/c#9", r"a b/c\#9"),
        ("a $x_1$", r"a \$x_1\$"),
        ("a [[x]]", r"a \[\[x\]\]"),
    ],
)
def test_units_of_a_translation_are_escaped(text, written):
    document = read("one\n", "markdown")
    result = translate(document, "en", lambda texts, _: [Hypothesis(text, 0.0) for _ in texts])
    assert result.text == f"{written}\n"
