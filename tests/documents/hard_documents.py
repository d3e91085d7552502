"""Documents of fragments that are hard to keep, and translators: one that changes nothing, and one
that does its worst.
"""

import random
import re

import numpy as np

from tfk_transformer.text.results import Hypothesis

WORDS = (
    "one two three forty-two don't 3.5 naïve 中文词 日本語 ไทย हिन्दी AT&T x_y_z C++ e.g. 🙂".split()
)
INLINE = {
    "markdown": (
        "*{}*",
        "_{}_",
        "**{}**",
        "__{}__",
        "***{}***",
        "~~{}~~",
        "[{}](x.html 'a title')",
        "[{}][key]",
        "[key][]",
        "[key]",
        "![{}](image.png)",
        "[![{}](a.png)](b.html)",
        "`code {}`",
        "``a ` b``",
        "`unmatched",
        "<b>{}</b>",
        "<kbd>{}</kbd>",
        "<span title='a > b'>{}</span>",
        "<!-- {} -->",
        "<https://example.org/a_b_c>",
        "https://example.org/a_b_c?d=1&e=2",
        "\\*{}\\*",
        "&copy; {}",
        "&lt;script&gt;",
        "$x_{{1}} * y$",
        "{{name}}",
        "{}[^1]",
        "un**{}**ed",
        "`{}`s",
        "(`{}`)",
        "{}  \n",
        "{}\n",
    ),
    "html": (
        "<b>{}</b>",
        "<i> {} </i>",
        "<a href='x?a=1&amp;b=2' title=\"one\">{}</a>",
        "<span class=k>{}</span>",
        "<span translate=no>{}</span>",
        "<code>{}</code>",
        "<kbd>{}</kbd>s",
        "<ruby>{}<rp>(</rp><rt>a</rt><rp>)</rp></ruby>",
        "<img src=x alt='{}'>",
        "<br>",
        "<wbr>",
        "<!-- {} -->",
        "<b>{}",
        "{}</i>",
        "&copy; {}",
        "&lt;script&gt;{}&lt;/script&gt;",
        "a < b & c",
        "5&nbsp;km",
        "{{name}}",
        "un<b>{}</b>ed",
        "</>",
        "<script>{}</script>",
        "<style>b {{}}</style>",
        "<svg><text>{}</text></svg>",
    ),
}
BLOCKS = {
    "markdown": (
        "{}\n",
        "# {}\n",
        "{}\n===\n",
        "- {}\n- {}\n",
        "1. {}\n2. {}\n",
        "- [ ] {}\n- [x] {}\n",
        "> {}\n",
        "> [!NOTE]\n> {}\n",
        "- {}\n\n  {}\n",
        "| {} | {} |\n|---|--:|\n| {} | {} |\n",
        "```python\n{}\n```\n",
        "    {}\n",
        "<div>\n{}\n</div>\n",
        "***\n",
        "$$\n{}\n$$\n",
        "!!! note\n    {}\n",
        ":::{{note}}\n{}\n:::\n",
        "term\n: {}\n",
    ),
    "html": (
        "<p>{}</p>\n",
        "<h1>{}</h1>\n",
        "<ul><li>{}<li>{}</ul>\n",
        "<table><tr><td>{}<td>{}</table>\n",
        "<div class=a>{}<div>{}</div></div>\n",
        "<p>{}<p>{}\n",
        "<pre>{}</pre>\n",
        "<script>if (a < b) {{ {} }}</script>\n",
        "<textarea>{}</textarea>\n",
        "<p translate=no>{}</p>\n",
        "<dl><dt>{}<dd>{}</dl>\n",
        "{}\n",
    ),
}
ENDS = {"markdown": "\n[key]: http://example.org/key 'Key'\n\n[^1]: A note.\n", "html": ""}
# Added to the words of a translation.
MARKUP = (
    "* ** _ __ ~~ ` `` [ ] ]( [a](b) ![ <b> </b> <script>alert(1)</script> <!-- --> &amp; &lt; \\ "
    "| # ## > - + 1. 2) === --- ``` $ {{ }} {name} ::: !!! [^1] [key] :a: <a http://a.b/c_d <img "
    "src=x> \" ' ( ) {#id} == ^ ~ % <http://a.evil> <a@b.evil> [a](http://b.evil) "
    "![a](http://c.evil) [a](javascript:alert(1)) <javascript:alert(1)> [evil]: [evil] "
    "<img/src=x>".split()
)


class HardMaker:
    """Makes a document from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.format = ("markdown", "html")[seed % 2]

    def document(self):
        blocks = [self.block() for _ in range(self.random.randint(1, 6))]
        return "\n".join(blocks) + ENDS[self.format]

    def block(self):
        block = self.random.choice(BLOCKS[self.format])
        return block.format(*(self.text() for _ in range(4)))

    def text(self):
        parts = [self.inline(2) for _ in range(self.random.randint(1, 6))]
        return "".join(part + self.random.choice((" ", " ", " ", ", ", "", ". ")) for part in parts)

    def inline(self, depth):
        if not depth or self.random.random() < 0.5:
            return " ".join(self.random.choices(WORDS, k=self.random.randint(1, 3)))
        return self.random.choice(INLINE[self.format]).format(self.inline(depth - 1))


def unchanged(texts, attention):
    """Return texts as their translations; each piece attends to itself."""
    return [_unchanged(text) for text in texts]


def _unchanged(text):
    pieces = [
        ("\u2581" if index == 0 else "") + piece
        for word in text.split()
        for index, piece in enumerate(re.findall(r"\w+|[^\w\s]", word))
    ]
    pieces.append("</s>")
    return Hypothesis(text, 0.0, pieces, attention=np.eye(len(pieces)), source_tokens=pieces)


def adversary(seed):
    """Return a translator that reverses, doubles, drops and replaces words, with attention by
    chance.
    """
    chance = random.Random(seed)

    def run(texts, attention):
        return [one(text) for text in texts]

    def one(text):
        source = text.split()
        target = chance.choice((source, source[::-1], source * 2, source[::2], source[:1], [])) or [
            "-"
        ]
        for _ in range(chance.randint(0, 3)):
            target = [*target]
            target.insert(chance.randint(0, len(target)), chance.choice(MARKUP))
        separator = chance.choice((" ", " ", ""))
        weights = [
            [chance.random() for _ in range(len(source) + 1)] for _ in range(len(target) + 1)
        ]
        return Hypothesis(
            separator.join(target),
            0.0,
            [*target, "</s>"],
            attention=np.array(weights),
            source_tokens=[*source, "</s>"],
        )

    return run
