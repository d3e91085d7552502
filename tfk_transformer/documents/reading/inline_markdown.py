"""Parse inline Markdown into items: markdown-it-py's inline rules, wrapped to record positions."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

from tfk_transformer.documents.items import STAND_IN, Item, ItemType
from tfk_transformer.documents.reading.elements import Mark, pair_elements
from tfk_transformer.documents.reading.html_reader import INLINE_TAGS
from tfk_transformer.documents.words import Span

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
    """The text[start:end] to which a rule applied, and the token that the rule made.

    Links and emphasis have two notes with the rule "delimiter".
    """

    rule: str
    start: int
    end: int
    token: Token


def markdown_parser() -> MarkdownIt:
    """Return a parser of CommonMark with tables, strikethrough and front matter.

    The parser does not parse inline content; `read_inline` does.
    """
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"]).use(front_matter_plugin)
    md.core.ruler.enableOnly(["normalize", "block"])
    md.inline.ruler2.disable("fragments_join")
    rules = {rule.name: rule.fn for rule in md.inline.ruler.__rules__}
    for name in RULES:
        md.inline.ruler.at(name, _recording_rule(name, rules[name]))
    return md


def _recording_rule(name: str, rule: Rule) -> Rule:
    """Return an inline rule that appends a note to `env["notes"]` when it applies."""

    def apply(state: StateInline, silent: bool) -> bool:
        notes: list[Note] | None = None if silent else state.env.pop("notes", None)
        if notes is None:
            return rule(state, silent)
        start = state.pos
        is_link = name == "link" and state.src[start] == "["
        label_end = state.md.helpers.parseLinkLabel(state, start, True) if is_link else -1
        if name != "image":  # an image's text is parsed as a separate document
            state.env["notes"] = notes
        applied = rule(state, silent)
        state.env["notes"] = notes
        if applied:
            notes += _notes(name, start, label_end, state)
        return applied

    return apply


def _notes(name: str, start: int, label_end: int, state: StateInline) -> list[Note]:
    """Return the notes of a rule that applied from `start` to the state's position."""
    if name == "link":
        opening = Note("delimiter", start, start + 1, Token("link_open", "a", 1))
        return [opening, Note("delimiter", label_end, state.pos, state.tokens[-1])]
    if name not in ("emphasis", "strikethrough"):
        return [Note(name, start, state.pos, state.tokens[-1])]
    notes = []
    end = state.pos
    for token in reversed(state.tokens):  # each token of delimiters, from the last
        if end <= start:
            break
        notes.append(Note("delimiter", end - len(token.content), end, token))
        end -= len(token.content)
    return notes


def read_inline(md: MarkdownIt, text: str, env: dict[str, Any]) -> list[Item]:
    """Return the items of inline Markdown, with their positions in `text`.

    Args:
        md: the parser, from `markdown_parser`.
        text: the content of a paragraph, a heading or a cell.
        env: the parser's environment, which has the link definitions of the document.
    """
    notes: list[Note] = []
    md.inline.parse(text, md, {**env, "notes": notes}, [])
    marks: list[Mark] = []
    done = 0
    markup = [_mark(note, text[note.start : note.end]) for note in _merge_strong(notes)]
    for mark in sorted(markup, key=lambda mark: mark.item.start):
        start = mark.item.start
        if start > done:
            marks.append(Mark(Item(ItemType.TEXT, done, start, text[done:start])))
        marks.append(mark)
        done = mark.item.end
    if done < len(text):
        marks.append(Mark(Item(ItemType.TEXT, done, len(text), text[done:])))
    return pair_elements(marks)


def _merge_strong(notes: Sequence[Note]) -> list[Note]:
    """Return the notes, with one note for the two delimiters on each side of strong emphasis.

    The parser empties the outer token of the two.
    """
    merged: list[Note] = []
    outer: Note | None = None
    for note in sorted(notes, key=lambda note: note.start):
        token_type = note.token.type if note.rule == "delimiter" else ""
        if token_type == "text" and not note.token.content:
            if merged and _is_inner_close(merged[-1], note.start):
                merged[-1] = merged[-1]._replace(end=note.end)
            else:
                outer = note
        elif token_type == "strong_open" and outer is not None:
            merged.append(note._replace(start=outer.start))
            outer = None
        elif token_type != "text":
            merged.append(note)
    return merged


def _is_inner_close(note: Note, end: int) -> bool:
    """Return whether a note is the inner delimiter that closes strong emphasis, up to `end`."""
    span = (note.start, note.end)
    return note.token.type == "strong_close" and span == (end - 1, end)


def _mark(note: Note, raw: str) -> Mark:
    """Return the item of a note.

    Args:
        note: the note.
        raw: its characters in the text.
    """
    span = (note.start, note.end)
    if note.rule == "delimiter":
        name, _, end = note.token.type.rpartition("_")
        item_type = ItemType.OPEN if end == "open" else ItemType.CLOSE
        return Mark(Item(item_type, *span, needs_text=name != "link"), name, True)
    if note.token.type == "hardbreak":
        return Mark(Item(ItemType.BREAK, *span))
    if note.rule in ("newline", "escape", "entity"):
        text = "\n" if note.rule == "newline" else note.token.content
        return Mark(Item(ItemType.TEXT, *span, text))
    if note.rule == "html_inline":
        return _tag_mark(span, TAG.fullmatch(raw))
    return Mark(Item(ItemType.POINT, *span, "" if note.rule == "image" else STAND_IN))


def _tag_mark(span: Span, tag: re.Match[str] | None) -> Mark:
    """Return the item of an HTML tag, or of a comment if `tag` is None."""
    name = "" if tag is None else tag[2].lower()
    if name == "br":
        return Mark(Item(ItemType.BREAK, *span))
    if tag is None or name not in INLINE_TAGS or tag[3]:
        return Mark(Item(ItemType.POINT, *span))
    return Mark(Item(ItemType.CLOSE if tag[1] else ItemType.OPEN, *span), name)
