"""Documents made by chance: markup, lists, tables, long paragraphs, placeholders, and the
punctuation of several languages.
"""

import random
from typing import NamedTuple

from tfk_transformer.datasets.numbers import spell

ENDS = {
    "en": ". ",
    "de": "! ",
    "fr": " ! ",
    "es": "? ",
    "hi": "। ",
    "zh": "。",
    "ja": "！",
    "ar": "؟ ",
    "el": "; ",
    "ru": ". ",
}
PLACEHOLDERS = (
    "{name}",
    "{0}",
    "%s",
    "%(count)d",
    "${user}",
    "https://example.org/a.b?c=1&amp;d",
    "{{ item }}",
    "%1$s",
)
TAGS = {"html": ("b", "i", "span", "a"), "markdown": ("**", "*", "~~", "u", "link")}
OPENING = {
    "a": '<a href="x.html?a=1&amp;b=2">',
    "span": "<span class='k'>",
    "link": "[",
    "u": "<u>",
}
CLOSING = {"link": '](http://example.org/x "a title")', "u": "</u>"}


class Made(NamedTuple):
    """A document, and what is in it."""

    format: str
    language: str
    text: str
    sentences: int
    placeholders: tuple[str, ...]


class Maker:
    """Makes a document from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.format = ("html", "markdown", "text")[seed % 3]
        self.language = self.random.choice(sorted(ENDS))
        self.sentences = 0
        self.placeholders: list[str] = []

    def made(self) -> Made:
        blocks = [self._block() for _ in range(self.random.randint(2, 5))]
        if self.format == "html":
            head = (
                f"<!DOCTYPE html>\n<html><head><title>{self._sentence(0)}</title><style>b "
                f"{{}}</style></head>\n"
            )
            text = f"{head}<body>\n{''.join(blocks)}</body></html>\n"
        else:
            text = "\n".join(blocks)
        return Made(self.format, self.language, text, self.sentences, tuple(self.placeholders))

    def _block(self) -> str:
        kind = self.random.choice(("paragraph", "long", "list", "heading", "table", "code"))
        if self.format == "text" or kind in ("paragraph", "long"):
            text = self._paragraph(25 if kind == "long" else 3)
            return f"<p>{text}</p>\n" if self.format == "html" else f"{text}\n"
        return getattr(self, f"_{kind}")()

    def _list(self) -> str:
        items = [self._paragraph(2) for _ in range(3)]
        if self.format == "html":
            return f"<ul>\n{''.join(f'<li>{item}</li>' for item in items)}</ul>\n"
        return "".join(f"- {item}\n" for item in items)

    def _heading(self) -> str:
        text = self._sentence(1).strip()
        return f"<h2>{text}</h2>\n" if self.format == "html" else f"## {text}\n"

    def _table(self) -> str:
        cells = [self._sentence(1).strip() for _ in range(4)]
        if self.format == "html":
            return "<table><tbody><tr>{}</tr></tbody></table>\n".format(
                "".join(f"<td>{cell}</td>" for cell in cells)
            )
        return "| {} | {} |\n|---|:-:|\n| {} | {} |\n".format(*cells)

    def _code(self) -> str:
        code = "x = {name}. One two %s three.\n"
        return (
            f"<pre><code>{code}</code></pre>\n"
            if self.format == "html"
            else f"```python\n{code}```\n"
        )

    def _paragraph(self, longest: int) -> str:
        return "".join(self._sentence(3) for _ in range(self.random.randint(1, longest))).rstrip()

    def _sentence(self, markup: int) -> str:
        """Return a sentence with up to this many elements and points."""
        self.sentences += 1
        words = " ".join(
            spell(self.random.randrange(200), "en").replace("-", " ")
            for _ in range(self.random.randint(1, 3))
        ).split()
        words[0] = words[0].capitalize()
        if self.format != "text":
            for _ in range(self.random.randint(0, markup)):
                self._wrap(words)
        for _ in range(self.random.randint(0, 2) if markup else 0):
            words.insert(self.random.randrange(len(words)), self._point())
        return " ".join(words) + ENDS[self.language]

    def _wrap(self, words: list[str]) -> None:
        """Put an element around some words that have none."""
        start = self.random.randrange(len(words))
        end = self.random.randint(start + 1, len(words))
        if all(word.isalpha() for word in words[start:end]):
            text = " ".join(words)  # a link has no link in it, and no ~~ has another
            tag = self.random.choice(
                [
                    tag
                    for tag in TAGS[self.format]
                    if CLOSING.get(tag, tag) not in text or tag in ("b", "i")
                ]
            )
            default = (f"<{tag}>", f"</{tag}>") if self.format == "html" else (tag, tag)
            words[start] = OPENING.get(tag, default[0]) + words[start]
            words[end - 1] += CLOSING.get(tag, default[1])

    def _point(self) -> str:
        point = self.random.choice(PLACEHOLDERS)
        if self.format != "html":
            point = point.replace("&amp;", "&")
        elif self.random.random() < 0.3:
            point = "<code>a.b(c). D</code>"
        if self.format == "markdown" and self.random.random() < 0.3:
            point = "`a.b(c). D`"
        self.placeholders.append(point)
        return point
