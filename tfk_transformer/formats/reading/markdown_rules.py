"""Rules for the dialects of Markdown: MyST, MkDocs, Hugo, Jekyll, VitePress.

Lines that are syntax become tokens of the type "syntax", which stay unchanged.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

from tfk_transformer.formats.reading.units import ANY_UNIT, BARRIER, EDGE, UNIT
from tfk_transformer.text.words import Span

BlockRule: TypeAlias = Callable[[StateBlock, int, int, bool], bool]

SYNTAX = re.compile(
    rf"""
    (?:{UNIT}|{BARRIER}|\s)+
    | :{{3,}}.*                                            # the fence of a container
    | /{{3,}}.*                                            # the fence of a block of PyMdown
    | \([^()\n]+\)=                                      # a target of MyST
    | \[TOC\]|\[\[_?TOC_?\]\]                            # a table of contents
    | ;?-+8<-+.*                                         # a snippet of PyMdown
    | <<<\s*[@./\w].*                                    # a snippet of VitePress
    | \*\[[^\]]+\]:.*                                    # an abbreviation
    | \{{(?::|[ ]*[#.%]|[ ]*[\w-]+=)[^{{}}]*\}}             # attributes of a block
    | \^{{3,}}.* | \+{{3,}}.*                              # a separator of MyST
    """,
    re.VERBOSE | re.IGNORECASE,
)
INDENTED = re.compile(r'(?:!!!|\?\?\?)\+?[ ]*[\w"].*|===[!+]?[ ]+".*"')
DEFINITION = re.compile(r"(?P<mark>:[ ]{3,})\S.*")
COMMENT = re.compile(r"%(?:\s.*)?")
# What these blocks end without a blank line.
ENDS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list", "footnote_def"]}

# Kept, and without a meaning in the sentence.
MARK = re.compile(
    r"""(?P<unchanged_mark>
    \[\^[^\s\]]{1,200}\]                                # a footnote mark
    | \{(?::|[ ]*[#.][\w-]|[ ]*[\w-]+=)[^{}\n]*\}       # attributes: an id or a class at first
    | (?<![^\W_]|:):(?:[a-z][\w+-]*|[+-]1):(?![^\W_])   # an emoji or an icon
    )""",
    re.VERBOSE,
)
# Up to a character that can begin markup.
TEXT = re.compile(rf"[^\n!#$%&*+\-:<=>@\[\\\]^_`{{}}~{EDGE}\U000f0000-\U0010fffd]+")
WIKI_LINK = re.compile(r"\[\[(?P<target>[^\[\]|\n]+)\|(?P<label>[^\[\]|\n]+)\]\]")
BLANK = re.compile(r"\s")
KEY = re.compile(r"(?P<break>\n?)\[(?P<key>[^\[\]]*)\]")


def dialects(md: MarkdownIt) -> None:
    """Add the rules to a parser."""
    block, inline = md.block.ruler, md.inline.ruler
    block.before("table", "indented", _line_rule(INDENTED, _indented), ENDS)
    block.before("table", "syntax", _line_rule(SYNTAX, _syntax), ENDS)
    block.before("table", "comment", _line_rule(COMMENT, _syntax))
    block.before("fieldlist", "definition", _line_rule(DEFINITION, _definition))
    inline.at("text", _text)
    inline.before("escape", "unchanged", _unchanged)
    inline.after("link", "reference", _reference)


def _line_rule(pattern: re.Pattern[str], parse: Callable[..., None]) -> BlockRule:
    """Return a rule for blocks whose first line, without blanks around it, matches a pattern."""

    def rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        line = slice(state.bMarks[start] + state.tShift[start], state.eMarks[start])
        match = pattern.fullmatch(state.src[line].rstrip())
        if match is None or state.is_code_block(start):
            return False
        if not silent:
            parse(state, start, end, match)
        return True

    return rule


def _syntax(state: StateBlock, start: int, end: int, match: re.Match[str]) -> None:
    """Append a token for a line that is syntax."""
    token = state.push("syntax", "", 0)
    token.map = [start, start + 1]
    token.content = match[0]
    state.line = start + 1


def _indented(state: StateBlock, start: int, end: int, match: re.Match[str]) -> None:
    """Parse an admonition or a tab of MkDocs, whose content is indented."""
    _syntax(state, start, end, match)
    _tokenize(state, start + 1, end, state.sCount[start] + 4)


def _definition(state: StateBlock, start: int, end: int, match: re.Match[str]) -> None:
    """Parse a definition whose term is a block, as MkDocs allows."""
    indent = state.sCount[start] + 4
    before = (state.tShift[start], state.sCount[start])
    state.tShift[start] += match.end("mark")
    state.sCount[start] += match.end("mark")
    _tokenize(state, start, end, indent)
    state.tShift[start], state.sCount[start] = before


def _tokenize(state: StateBlock, start: int, end: int, indent: int) -> None:
    """Parse the lines from `start` on that are indented as the content of a block."""
    last = start  # the end of these lines, without blank lines there
    for line in range(start, end):
        if not state.isEmpty(line):
            if state.sCount[line] < indent:
                break
            last = line + 1
    outer = (state.lineMax, state.parentType, state.blkIndent)
    state.lineMax, state.parentType, state.blkIndent = last, "container", indent
    state.push("container_open", "", 1).map = [start, last]
    state.md.block.tokenize(state, start, last)
    state.push("container_close", "", -1)
    state.lineMax, state.parentType, state.blkIndent = outer
    state.line = last


def _text(state: StateInline, silent: bool) -> bool:
    """Parse text up to a character that can begin markup, or a unit."""
    match = TEXT.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.pending += match[0]
    state.pos = match.end()
    return True


def _unchanged(state: StateInline, silent: bool) -> bool:
    """Parse text that a translation may not change."""
    span = (state.src, state.pos, state.posMax)
    match = ANY_UNIT.match(*span) or MARK.match(*span)
    if match is None:
        return False
    if not silent:
        state.push(match.lastgroup or "", "", 0).content = match[0]
    state.pos = match.end()
    return True


def _reference(state: StateInline, silent: bool) -> bool:
    """Parse `[text][key]` and `[key][]` whose definitions are elsewhere.

    A name, as in `[package.Class][]`, stays unchanged. Between text and key can be a line break, as
    Python-Markdown allows, if the key is defined.
    """
    if state.src[state.pos] != "[":
        return False
    start = state.pos + 1
    wiki = WIKI_LINK.match(state.src, state.pos, state.posMax)
    if wiki:
        if not silent:
            _push_link(state, wiki.span("label"), {"target": wiki["target"]})
        state.pos = wiki.end()
        return True
    end = state.md.helpers.parseLinkLabel(state, state.pos, True)
    match = KEY.match(state.src, end + 1, state.posMax) if end > start else None
    if match is None:
        return False
    label, key = map(normalizeReference, (state.src[start:end], match["key"]))
    definitions = state.env.get("references", {})
    if match["break"] and (label in definitions or key not in definitions):
        return False
    if not silent and not match["key"] and not BLANK.search(state.src, start, end):
        state.push("unchanged_name", "", 0).content = state.src[state.pos : match.end()]
    elif not silent:
        _push_link(state, (start, end), {"key": key or label})
    state.pos = match.end()
    return True


def _push_link(state: StateInline, label: Span, address: dict[str, str | int | float]) -> None:
    """Parse the label of a link, which is at these positions."""
    limit = state.posMax
    state.pos, state.posMax = label
    state.push("link_open", "a", 1).attrs = address
    state.md.inline.tokenize(state)
    state.push("link_close", "a", -1)
    state.posMax = limit
