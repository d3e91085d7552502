"""The markup in a string of a program: placeholders, tags, accelerators, and messages of ICU."""

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence

from tfk_transformer.formats.documents.items import (
    PLACEHOLDER,
    STAND_IN,
    Item,
    ItemType,
    placeholder_spans,
)

INLINE_ITEM = "\ufffc"  # an item that is not text, in the text of a string
STRING_END = "\0"  # in the text of a file
MARKUP = re.compile(
    rf"""
    (?=[<%{{$@:&_|\n\t])(?:
    (?P<point>
      <(?P<code>code|kbd|samp|pre|script|style)\b[^<>]*>.{{,4000}}?</(?P=code)\s*>
    | (?:{PLACEHOLDER.pattern})
    | %<\w+>|%%|%L?\d+|%\{{[^{{}}\s]*\}}      # of C: %<PRIu64>; of Qt: %1; of Ruby: %{{name}}
    | %(?:\d+\$)?[-+\#0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|ll|[hlLzjtq])?[diouxXeEfFgGcsapm@]
    | \{{\s*[\w.]+\s*(?:,[^{{}}]*)?\}}        # {{ name }}, {{count, number}}
    | \$t\((?:[^()]|\([^()]*\)){{,400}}\)      # of i18next: $t(key)
    | @(?:\.\w+)?:(?:\([^()]*\)|[\w.-]*\w)    # of Vue I18n: @:key, @.lower:key
    | (?<![^\s(]):[A-Za-z_]\w*                # of Laravel: :name
    | &(?:\#\d+|\#[xX][0-9A-Fa-f]+|[A-Za-z]\w*);
    | (?<![\w&])[&_](?=[^\W_])                # the accelerator of &File, _File
    )
    | (?P<break></?(?:br|hr|p|div|[uo]l|li|h[1-6]|table|t[rdh]|d[ltd]|blockquote)\b[^<>]*>
      |(?<=[ ])\|(?=[ ])|[\n\t])              # " | " is between the plural forms of Vue I18n
    | <(?P<end>/?)(?P<name>[A-Za-z0-9_][\w:.-]*)(?:\s[^<>]*?)?(?P<closed>/?)>
    )""",
    re.VERBOSE | re.DOTALL,
)
WORD_POINT = re.compile(r"[%{$@:]")  # the start of a point that stands for a word
VOID_TAGS = {"img", "wbr", "input"}
ADDRESS = re.compile(r"[@/.]\S")
ICU_START = re.compile(
    r"\{\s*[\w.]+\s*,\s*(?P<type>plural|select|selectordinal)\s*,(?:\s*offset:\s*\d+)?\s*"
)
ICU_BRANCH = re.compile(r"(?:=\d+|[\w-]+)\s*\{")
ICU_NEXT = re.compile(rf"\}}\s*(?:{ICU_BRANCH.pattern}|\}})")  # after a branch
ICU_ARGUMENT = re.compile(r"\{\s*[\w.]+\s*(?:,[^{}]*)?\}")
ICU_SYNTAX = re.compile(r"''|'[{}#|][^']*'|[{}#]")


def string_items(parts: Sequence[Item], has_lines: bool) -> Iterator[Item]:
    """Yield the items of a string.

    Args:
        parts: the items of its characters, and of the markup of its file format.
        has_lines: whether a line break ends a text.
    """
    shown = [part.text if part.type is ItemType.TEXT else INLINE_ITEM for part in parts]
    starts = list(itertools.accumulate(map(len, shown), initial=0))
    text = "".join(shown)

    def between(start: int, end: int) -> Iterator[Item]:
        first = max(0, bisect.bisect(starts, start) - 1)
        for index in range(first, bisect.bisect_left(starts, end)):
            part = parts[index].cut(start - starts[index], end - starts[index])
            if part.text or part.type is not ItemType.TEXT:
                yield part

    done = 0
    for mark in _marks(text, has_lines) or ():
        yield from between(done, mark.start)
        is_word = mark.type is ItemType.POINT and WORD_POINT.match(text, mark.start)
        covered = list(between(mark.start, mark.end))
        shown_text = STAND_IN if is_word else ""
        yield mark._replace(start=covered[0].start, end=covered[-1].end, text=shown_text)
        done = mark.end
    yield from between(done, len(text))


def string_structure(text: str, has_lines: bool) -> list[str]:
    """Return the markup of the strings of a file, as `Document.structure` does."""
    structure = []
    for string in text.split(STRING_END):
        marks = _marks(string, has_lines, has_addresses=False)
        if marks is None:  # a message that cannot be parsed stays
            marks = [Item(ItemType.BREAK, 0, len(string))]
        done = 0
        for mark in [*marks, Item(ItemType.BREAK, len(string), len(string))]:
            # Characters that could be part of markup.
            structure += [f"inline {c}" for c in re.findall("[{}%]", string[done : mark.start])]
            is_inline = mark.type is not ItemType.BREAK
            structure.append(f"{'inline ' if is_inline else ''}{string[mark.start : mark.end]}")
            done = mark.end
    return structure


def _marks(text: str, has_lines: bool, has_addresses: bool = True) -> list[Item] | None:
    """Return the markup of a string in order; None for a message of ICU that is invalid."""
    messages = _message_marks(text) if ICU_START.search(text) else []
    if messages is None:
        return None
    characters = list(text)  # without the syntax of messages
    for mark in messages:
        characters[mark.start : mark.end] = INLINE_ITEM * (mark.end - mark.start)
    masked = "".join(characters)
    marks = [*messages, *_simple_marks(masked, has_lines)]
    if has_addresses and ADDRESS.search(masked):
        marks += [Item(ItemType.POINT, *span) for span in placeholder_spans(masked)]
    joined: list[Item] = []
    for mark in sorted(marks, key=lambda mark: (mark.start, -mark.end)):
        if joined and mark.start < joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, mark.end))
        else:
            joined.append(mark)
    return joined


def _simple_marks(text: str, has_lines: bool) -> Iterator[Item]:
    for match in MARKUP.finditer(text):
        if match["break"]:
            if has_lines or not match[0].isspace():
                yield Item(ItemType.BREAK, *match.span())
        elif match["point"] or match["closed"] or match["name"].lower() in VOID_TAGS:
            yield Item(ItemType.POINT, *match.span())
        else:
            item_type = ItemType.CLOSE if match["end"] else ItemType.OPEN
            yield Item(item_type, *match.span(), name=match["name"])


def _message_marks(text: str) -> list[Item] | None:
    """Return the syntax of a message of ICU, except for simple arguments; None if it is invalid."""
    marks: list[Item] = []
    branches: list[bool] = []  # around the position: whether each is a branch of a plural
    position = 0
    while match := ICU_SYNTAX.search(text, position):
        start, position = match.span()
        argument = ICU_START.match(text, start)
        if match[0] == "}" and branches:
            is_plural = branches.pop()
            following = ICU_NEXT.match(text, start)
        elif argument:
            is_plural = argument["type"] != "select"
            following = ICU_BRANCH.match(text, argument.end())
        elif match[0] in "{}":  # a simple argument, which `MARKUP` matches
            following = ICU_ARGUMENT.match(text, start)
        else:
            if match[0] != "#" or any(branches):
                marks.append(Item(ItemType.POINT, start, position))
            continue
        if following is None:
            return None
        position = following.end()
        if argument or match[0] == "}":
            marks.append(Item(ItemType.BREAK, start, position))
            if following[0].endswith("{"):
                branches.append(is_plural)
    return None if branches else marks
