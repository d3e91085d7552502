"""A parser of Markdown: CommonMark, GitHub's tables, and the blocks of common dialects."""

import functools
import re
from collections.abc import Callable
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.field_list import fieldlist_plugin
from mdit_py_plugins.footnote import footnote_plugin

from tfk_transformer.formats.reading.markdown import block_rules, inline_rules

MARKDOWN_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")  # the line ends of CommonMark

InlineRule = Callable[[StateInline, bool], bool]


class _Parser(MarkdownIt):
    """A parser that accepts every link, because nothing is displayed."""

    def validateLink(self, url: str) -> bool:
        """Return whether a URL is the target of a link."""
        return True


@functools.cache
def markdown_parser() -> MarkdownIt:
    """Return the parser. `parse_inline` parses the content of its inline tokens."""
    md = _Parser("commonmark").enable(["table", "strikethrough"])
    md.core.ruler.enableOnly(["normalize", "block"])
    md.use(footnote_plugin, inline=False, move_to_end=False)
    md.use(deflist_plugin).use(amsmath_plugin)
    md.use(fieldlist_plugin).use(dollarmath_plugin)
    md.disable("math_inline")  # `unchanged` knows it, as GitHub does
    md.block.ruler.before("table", "front_matter", block_rules.front_matter)
    md.block.ruler.before("table", "directive", block_rules.directive, block_rules.ENDS)
    md.block.ruler.before("table", "indented", block_rules.indented, block_rules.ENDS)
    md.block.ruler.before("table", "syntax", block_rules.syntax, block_rules.ENDS)
    md.block.ruler.before("table", "comment", block_rules.comment)
    md.block.ruler.before("fieldlist", "definition", block_rules.definition)
    md.inline.ruler.before("escape", "unchanged", inline_rules.unchanged)
    md.inline.ruler.after("link", "reference", inline_rules.reference)
    names = md.inline.ruler.get_active_rules()
    for name, rule in zip(names, md.inline.ruler.getRules(""), strict=True):
        if name != "text":
            md.inline.ruler.at(name, _with_spans(name, rule))
    return md


def _with_spans(name: str, rule: InlineRule) -> InlineRule:
    """Return an inline rule that writes the span in the text into `meta` of its tokens."""

    def apply(state: StateInline, silent: bool) -> bool:
        start = state.pos
        count = len(state.tokens)
        applied = rule(state, silent)
        if applied and not silent:
            _set_spans(name, state, start, count)
        return applied

    return apply


def _set_spans(name: str, state: StateInline, start: int, count: int) -> None:
    """Set the spans of the tokens after the first `count`, which a rule made.

    Text before them can be a token too, and a rule can have made none.
    """
    end = state.pos
    tokens = state.tokens[count:]
    if name in ("emphasis", "strikethrough"):
        for token in reversed(tokens):  # a token for each delimiter
            if end > start:
                token.meta["span"] = (end - len(token.content), end)
                end -= len(token.content)
    elif name in ("link", "reference") and tokens[-1].nesting:
        opening = next(token for token in tokens if token.nesting > 0)
        opening.meta["span"] = (start, start + 1)
        label_end = state.md.helpers.parseLinkLabel(state, start, True)
        tokens[-1].meta["span"] = (label_end, end)
        if state.src[label_end:end] in ("]", "][]"):  # the label is the key
            tokens[-1].meta["key"] = " ".join(state.src[start + 1 : label_end].split())
    elif tokens and tokens[-1].type != "text":
        tokens[-1].meta["span"] = (start, end)


def parse_inline(text: str, env: dict[str, Any]) -> list[Token]:
    """Return the tokens of inline Markdown other than text, by their start.

    Each has `meta["span"]`, its start and end in the text. Of elements, these are the spans of the
    characters before and after their content.

    Args:
        text: the content of a paragraph, a heading or a cell.
        env: the environment of the parsed document, which has its definitions.
    """
    md = markdown_parser()
    parsed = md.inline.parse(text, md, env, [])
    tokens = [token for token in parsed if token.type != "text" and "span" in token.meta]
    for token in tokens:
        start, end = token.meta["span"]
        # Two delimiters are one mark, whose inner one has the token.
        start -= token.type == "strong_open"
        end += token.type == "strong_close"
        token.meta["span"] = (start, end)
    return sorted(tokens, key=lambda token: token.meta["span"][0])
