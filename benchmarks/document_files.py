"""Translate the documents of a folder without a model, and list what changes besides words.

python benchmarks/document_files.py FOLDER FORMAT [--model FILE] [--seconds 20] [--show 10]

Two translators that cannot be wrong run over every file: `same` returns each sentence, and its
result must equal the document byte for byte; `case` swaps the case of letters, and its result may
differ from the document in the case of letters only. Other parsers than the library's also find the
same links, images, code, formulas and tags in both: mistune (`pip install mistune`) those of
Markdown, and Python's html.parser the tags of HTML. With --model, they also compare each document
with its translation by a model.

The generator of a site is a parser too. --write writes the documents with swapped letters into a
copy of the site. When both are built, --site compares the pages:

    cp -r SITE OTHER
    python benchmarks/document_files.py SITE/docs markdown --write OTHER/docs
    mkdocs build -f SITE/mkdocs.yml -d BUILT; mkdocs build -f OTHER/mkdocs.yml -d OTHER-BUILT
    python benchmarks/document_files.py BUILT html --site OTHER-BUILT
"""

import html
import re
import signal
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html.parser import HTMLParser
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any

import mistune
import numpy as np

import tfk_transformer as tfk
from tfk_transformer.formats.documents.translation import translating
from tfk_transformer.formats.registry import DOCUMENT_FORMATS, read
from tfk_transformer.text.results import DocumentTranslation, Hypothesis
from tfk_transformer.text.road import Sentences, drive

# A link whose label is its key gets the key if its label changes: [ONE][one].
EXPLICIT_KEY = re.compile(r"\[([^\[\]]+)\]\[(?:\1)?\]")
# A line break and several blanks inside a sentence become one blank.
BLANKS = re.compile(r"[^\S\n]*\n[^\S\n]*(?:>[^\S\n]*)*(?=\S)|[^\S\n]+")


# Tags of templates, and of JSX with everything between their braces.
TEMPLATE_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
JSX_TAG = re.compile(
    r"</?[A-Z](?:[^<>{}]|\{(?:[^{}]|\{[^{}]*\})*\})*>|^(?:im|ex)port .*", re.MULTILINE
)
CODE_TAGS = re.compile(
    r"\{% *(highlight|comment)\b.*?%\}.*?\{% *end\1 *%\}"
    r"|\{% *raw *%\}(?:(?!\n\s*\n).)*?\{% *endraw *%\}|\A---\n.*?\n---$",
    re.DOTALL | re.MULTILINE,
)
ABBREVIATION = re.compile(r"</?abbr\b[^>]*>")  # a generator finds it by its letters
FORMULA = re.compile(r"\\\([^<>]*?\\\)|\\\[[^<>]*?\\\]")
# A generator makes them of the text.
TEXT_ATTRIBUTES = {"id", "name", "for", "title", "alt", "aria-label"}
CODE_ELEMENTS = {"code", "pre"}
PLUGINS = ["strikethrough", "table", "footnotes", "math"]
# What mistune calls the parts that a translation may not change.
PARTS = set(
    "link image codespan block_code inline_math block_math inline_html block_html "
    "footnote_ref".split()
)


def markdown_parts(text: str, format: str) -> Counter[str]:
    """Return the links, code, formulas and tags of a Markdown document, with their number."""
    parts: Counter[str] = Counter()
    patterns = (CODE_TAGS, JSX_TAG if format == "mdx" else TEMPLATE_TAG)

    def name(match: re.Match[str]) -> str:
        parts[match[0]] += 1
        return f"tag{sum(map(ord, match[0]))}"

    for pattern in patterns:
        text = pattern.sub(name, text)
    waiting: list[Any] = [mistune.create_markdown(renderer=None, plugins=PLUGINS)(text)]
    while waiting:
        token = waiting.pop()
        if isinstance(token, list):
            waiting += token
            continue
        # Indented text of MkDocs is no code, and MDX has Markdown between its tags.
        is_part = token["type"] in PARTS and token.get("style") != "indent"
        if is_part and not (format == "mdx" and token["type"] == "block_html"):
            attributes = token.get("attrs", {})
            address = attributes.get("url", "") + attributes.get("info", "")
            parts[f"{token['type']} {address} {token.get('raw', '')}"] += 1
        if token["type"] != "image":
            waiting += token.get("children", [])
    return parts


class HtmlParts(HTMLParser):
    """Counts the tags and comments of a page, and what is in its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.parts = Counter(TEMPLATE_TAG.findall(text))
        self.feed(TEMPLATE_TAG.sub(lambda match: f"tag{sum(map(ord, match[0]))}", text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count a tag."""
        self.parts[f"{tag} {attrs}"] += 1

    def handle_endtag(self, tag: str) -> None:
        """Count the end of an element."""
        self.parts[f"/{tag}"] += 1

    def handle_comment(self, data: str) -> None:
        """Count a comment."""
        self.parts[data] += 1

    def handle_data(self, data: str) -> None:
        """Count code."""
        if self.cdata_elem:
            self.parts[data] += 1


class PageParts(HtmlParts):
    """Counts the tags of a page that a generator built, its formulas and its code."""

    def __init__(self, text: str) -> None:
        self.depth = 0  # of elements of code
        super().__init__(ABBREVIATION.sub("", text))
        self.parts.update(FORMULA.findall(text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count a tag without what is made of the text."""
        self.depth += tag in CODE_ELEMENTS
        kept = [(name, value or "") for name, value in attrs if name not in TEXT_ATTRIBUTES]
        # The addresses of headings are in lower case.
        anchors = [(name, value.lower() if value[:1] == "#" else value) for name, value in kept]
        super().handle_starttag(tag, [*anchors])

    def handle_endtag(self, tag: str) -> None:
        """Count the end of an element."""
        self.depth -= tag in CODE_ELEMENTS
        super().handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        """Count code."""
        if self.depth or self.cdata_elem:
            self.parts[data] += 1


def parts_of(text: str, format: str) -> Counter[str]:
    """Return the parts of a document that a translation may not change, with their number."""
    readers = {"html": HtmlParts, "page": PageParts}
    return readers[format](text).parts if format in readers else markdown_parts(text, format)


def same(text: str) -> str:
    """Return a text."""
    return text


def case(text: str) -> str:
    """Return a text with the case of its letters swapped, where this can be undone."""
    swapped = map(str.swapcase, text)
    return "".join(
        other if len(other) == 1 and other.swapcase() == character else character
        for character, other in zip(text, swapped, strict=True)
    )


def lower(text: str) -> str:
    """Return a text in lower case, with the number of its characters."""
    return "".join(
        character.lower() if case(character) != character else character for character in text
    )


def hypothesis(text: str, translate: Callable[[str], str]) -> Hypothesis:
    """Return the translation of a text, with attention of each piece to itself."""
    pieces = [
        ("\u2581" if index == 0 else "") + piece
        for word in text.split()
        for index, piece in enumerate(re.findall(r"\w+|[^\w\s]", word))
    ]
    pieces.append("</s>")
    target = [translate(piece) for piece in pieces[:-1]] + ["</s>"]
    attention = np.eye(len(pieces))
    return Hypothesis(translate(text), 0.0, target, attention=attention, source_tokens=pieces)


def translated(text: str, format: str, translate: Callable[[str], str]) -> DocumentTranslation:
    """Return a document, with each sentence translated by a function."""

    def run(sentences: Sentences) -> Sequence[Hypothesis]:
        return [hypothesis(text, translate) for text in sentences.texts]

    return drive(translating(read(text, format), "en"), run)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` after some seconds of the processor."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {seconds} s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def without_case(text: str) -> str:
    """Return a text with all that the translator `case` may change in one form."""
    return html.unescape(EXPLICIT_KEY.sub(r"[\1]", BLANKS.sub(" ", lower(text))))


def first_difference(source: str, result: str) -> str:
    """Return the first difference of two texts with the text around it; "" if they are equal."""
    if source == result:
        return ""
    pairs = enumerate(zip_longest(source, result))
    position = next(index for index, (before, after) in pairs if before != after)
    around = slice(max(0, position - 80), position + 80)
    return f"\n  - {source[around]!r}\n  + {result[around]!r}"


def differences(text: str, format: str, seconds: int, counts: Counter[str]) -> Iterator[str]:
    """Yield what is wrong with a document, and count it."""
    comparisons = ((same, same), (case, without_case))
    for translate, form in comparisons:
        name = translate.__name__
        try:
            with time_limit(seconds):
                result = translated(text, format, translate)
        except Exception as error:  # each kind is a finding
            counts[f"{name}: {type(error).__name__}"] += 1
            yield f"{name}: {type(error).__name__}: {error}"
            continue
        counts[f"{name}: sentences"] += len(result.sentences)
        counts[f"{name}: untranslated sentences"] += sum(
            sentence.keeps_source for sentence in result.sentences
        )
        difference = first_difference(form(text), form(result.text))
        counts[f"{name}: documents {'that differ' if difference else 'as they must be'}"] += 1
        if difference:
            yield f"{name}: {difference}"
        if format != "text" and translate is not same:
            yield from part_differences(name, text, result.text, format, counts)


def part_differences(
    name: str, text: str, result: str, format: str, counts: Counter[str]
) -> Iterator[str]:
    """Yield the parts that another parser finds in only one of two texts, and count the texts."""
    before, after = parts_of(text, format), parts_of(result, format)
    counts[f"{name}: documents whose parts {'are the same' if before == after else 'differ'}"] += 1
    if before != after:
        yield f"{name}, parts: - {[*(before - after)][:4]}\n  + {[*(after - before)][:4]}"


def main() -> None:
    """Print the counts of a folder and the differences."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("format", choices=[*DOCUMENT_FORMATS])
    parser.add_argument("--suffix", help="of the files; by default those of the format")
    parser.add_argument("--write", type=Path, help="a folder for the documents in swapped case")
    parser.add_argument("--site", type=Path, help="the site of those, if FOLDER is a built site")
    parser.add_argument("--model", type=Path, help="a bundle or an exported model")
    parser.add_argument("--seconds", type=int, default=20, help="limit of a translation (20)")
    parser.add_argument("--show", type=int, default=10, help="differences to print (10)")
    options = parser.parse_args()
    suffixes = (options.suffix,) if options.suffix else DOCUMENT_FORMATS[options.format].suffixes
    counts: Counter[str] = Counter()
    translator = tfk.load(options.model) if options.model else None
    rows: list[str] = []
    for path in sorted(options.folder.rglob("*")):
        if not path.is_file() or path.suffix not in suffixes:
            continue
        try:
            text = path.read_bytes().decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError:
            counts["not UTF-8"] += 1
            continue
        counts["documents"] += 1
        name = path.relative_to(options.folder)
        if options.write:
            result = translated(text, options.format, case)
            (options.write / name).write_bytes(result.text.encode())
            continue
        if options.site:
            other = (options.site / name).read_text(encoding="utf-8")
            problems = [*part_differences("site", text, other, "page", counts)]
        else:
            problems = [*differences(text, options.format, options.seconds, counts)]
        if translator is not None:
            result = translator.translate_document(text, options.format, language="en", beam_size=1)
            problems += part_differences("model", text, result.text, options.format, counts)
        rows += [f"{name}: {problem}" for problem in problems]
    for name, count in sorted(counts.items()):
        print(f"{count:8,}  {name}")
    print("\n".join(rows[: options.show]))


if __name__ == "__main__":
    main()
