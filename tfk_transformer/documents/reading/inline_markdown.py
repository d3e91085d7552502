"""Inline Markdown to items: markdown-it-py's inline rules, which are told to note where in the text
they applied.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

from tfk_transformer.documents.items import STAND_IN, Item, ItemType
from tfk_transformer.documents.reading.elements import Mark, paired
from tfk_transformer.documents.reading.html_reader import INLINE

RULES = (
    "newline",
    "escape",
    "backticks",
    "strikethrough",
    "emphasis",
    "link",
    "image",
    "autolink",
    "html_inline",
    "entity",
)
TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^>]*?(/?)>", re.DOTALL)
Rule = Callable[[StateInline, bool], bool]


class Note(NamedTuple):
    """Where a rule applied: text[start:end], and the token that it made."""

    rule: str
    start: int
    end: int
    token: Token | None = None


def parser() -> MarkdownIt:
    """Return a parser of CommonMark with tables, strikethrough and front matter, which leaves
    inline content to `read_inline`.
    """
    found = MarkdownIt("commonmark").enable(["table", "strikethrough"]).use(front_matter_plugin)
    found.core.ruler.enableOnly(["normalize", "block"])
    found.inline.ruler2.disable("fragments_join")
    rules = {rule.name: rule.fn for rule in found.inline.ruler.__rules__}
    for name in RULES:
        found.inline.ruler.at(name, _noting(name, rules[name]))
    return found


def _noting(name: str, rule: Rule) -> Rule:
    """Return an inline rule that appends to `env["notes"]` where it applied."""

    def noting(state: StateInline, silent: bool) -> bool:
        notes: list[Note] | None = None if silent else state.env.pop("notes", None)
        if notes is None:
            return rule(state, silent)
        start = state.pos
        label_end = (
            state.md.helpers.parseLinkLabel(state, start, True)
            if name == "link" and state.src[start] == "["
            else -1
        )
        if name != "image":  # it parses its text as a document of its own
            state.env["notes"] = notes
        applied = rule(state, silent)
        state.env["notes"] = notes
        if applied:
            notes += _notes(name, start, label_end, state)
        return applied

    return noting


def _notes(name: str, start: int, label_end: int, state: StateInline) -> list[Note]:
    """Return the notes of a rule that applied from `start` to the state's place."""
    if name == "link":
        return [Note("link_open", start, start + 1), Note("link_close", label_end, state.pos)]
    if name not in ("emphasis", "strikethrough"):
        return [Note(name, start, state.pos, state.tokens[-1])]
    found, end = [], state.pos
    for token in reversed(state.tokens):  # each token of delimiters, from the last
        if end <= start:
            break
        found.append(Note("delimiter", end - len(token.content), end, token))
        end -= len(token.content)
    return found


def read_inline(md: MarkdownIt, text: str, env: dict[str, Any]) -> list[Item]:
    """Return the items of inline Markdown, whose places are those in `text`.

    Args:
        md: of `parser`.
        text: the content of a paragraph, a heading or a cell.
        env: the parser's environment, which has the link definitions of the document.
    """
    notes: list[Note] = []
    md.inline.parse(text, md, {**env, "notes": notes}, [])
    marks: list[Mark] = []
    done = 0
    for mark in sorted(filter(None, _marks(_whole(notes), text)), key=lambda mark: mark.item.start):
        if mark.item.start > done:
            marks.append(
                Mark(Item(ItemType.TEXT, done, mark.item.start, text[done : mark.item.start]))
            )
        marks.append(mark)
        done = mark.item.end
    if done < len(text):
        marks.append(Mark(Item(ItemType.TEXT, done, len(text), text[done:])))
    return paired(marks)


def _whole(notes: Sequence[Note]) -> list[Note]:
    """Return the notes, those of the two delimiters of strong emphasis as one: the parser empties
    the outer token of the two.
    """
    found: list[Note] = []
    outer: Note | None = None
    for note in sorted(notes, key=lambda note: note.start):
        kind = note.token.type if note.rule == "delimiter" and note.token else ""
        if kind == "text" and note.token and not note.token.content:
            last = found[-1] if found else None
            if (
                last
                and last.token
                and last.token.type == "strong_close"
                and last.end == note.start
                and last.end - last.start == 1
            ):
                found[-1] = last._replace(end=note.end)
            else:
                outer = note
        elif kind == "strong_open" and outer is not None:
            found.append(note._replace(start=outer.start))
            outer = None
        elif kind != "text":
            found.append(note)
    return found


def _marks(notes: Sequence[Note], text: str) -> list[Mark | None]:
    """Return what each note is to a translation; None for what is plain text."""
    return [_mark(note, text[note.start : note.end]) for note in notes]


def _mark(note: Note, raw: str) -> Mark | None:
    place = (note.start, note.end)
    if note.rule in ("link_open", "link_close"):
        return Mark(
            Item(ItemType.OPEN if note.rule == "link_open" else ItemType.CLOSE, *place),
            "link",
            True,
        )
    token = note.token
    assert token is not None
    if note.rule == "delimiter":
        name, _, end = token.type.rpartition("_")
        return Mark(
            Item(ItemType.OPEN if end == "open" else ItemType.CLOSE, *place, needs_text=True),
            name,
            True,
        )
    if token.type == "hardbreak":
        return Mark(Item(ItemType.BREAK, *place))
    if note.rule in ("newline", "escape", "entity"):
        return Mark(Item(ItemType.TEXT, *place, "\n" if note.rule == "newline" else token.content))
    if note.rule == "html_inline":
        return _tag_mark(place, TAG.fullmatch(raw))
    return Mark(Item(ItemType.POINT, *place, "" if note.rule == "image" else STAND_IN))


def _tag_mark(place: tuple[int, int], tag: re.Match[str] | None) -> Mark:
    """Return what an HTML tag or comment is to a translation."""
    if tag is not None and tag[2].lower() == "br":
        return Mark(Item(ItemType.BREAK, *place))
    if tag is None or tag[2].lower() not in INLINE or tag[3]:
        return Mark(Item(ItemType.POINT, *place))
    return Mark(Item(ItemType.CLOSE if tag[1] else ItemType.OPEN, *place), tag[2].lower())
