"""Rules for the dialects of Markdown: MyST, MkDocs, Hugo, Jekyll, VitePress.

Lines that are syntax become tokens of the type "syntax", which stay unchanged.
"""

import re

from markdown_it.common.utils import normalizeReference
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

from tfk_transformer.formats.reading.units import ANY_UNIT, BARRIER, EDGE, TEXT_DIRECTIVES, UNIT
from tfk_transformer.text.words import Span

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
DIRECTIVE = re.compile(r"(?P<fence>`{3,}|~{3,}|:{3,})[ ]*\{(?P<name>[^}\s]+)\}.*")
OPTION = re.compile(r":[\w-]+:(?:\s.*)?")
# Directives whose content is not Markdown, in fences of colons.
CODE_DIRECTIVES = set(
    "code code-block code-cell sourcecode parsed-literal math toctree eval-rst mermaid graphviz "
    "literalinclude include image raw csv-table bibliography plot".split()
)
DEFINITION = re.compile(r":[ ]{3,}(?=\S)")
COMMENT = re.compile(r"%(?:\s.*)?")
# What these blocks end without a blank line.
ENDS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list", "footnote_def"]}

# Kept, and without a meaning in the sentence.
MARK = re.compile(
    r"""
    \[\^[^\s\]]{1,200}\]                                # a footnote mark
    | \{(?::|[ ]*[#.][\w-]|[ ]*[\w-]+=)[^{}\n]*\}       # attributes: an id or a class at first
    | (?<![\w:]):(?:[a-z][\w+-]*|[+-]1):(?!\w)          # an emoji or an icon
    """,
    re.VERBOSE,
)
# Up to a character that can begin markup.
TEXT = re.compile(rf"[^\n!#$%&*+\-:<=>@\[\\\]^_`{{}}~{EDGE}\U000f0000-\U0010fffd]+")
WIKI_LINK = re.compile(r"\[\[(?P<target>[^\[\]|\n]+)\|(?P<label>[^\[\]|\n]+)\]\]")
BLANK = re.compile(r"\s")
KEY = re.compile(r"(?P<break>\n?)\[(?P<key>[^\[\]]*)\]")


def line_text(state: StateBlock, line: int) -> str:
    """Return a line without the blanks around it."""
    start = state.bMarks[line] + state.tShift[line]
    return state.src[start : state.eMarks[line]].rstrip()


def comment(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a comment of MyST. It does not end a paragraph."""
    if state.is_code_block(start) or not COMMENT.fullmatch(line_text(state, start)):
        return False
    if not silent:
        _push_syntax(state, start, start + 1)
    return True


def syntax(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a line that is syntax."""
    if state.is_code_block(start) or not SYNTAX.fullmatch(line_text(state, start)):
        return False
    if not silent:
        _push_syntax(state, start, start + 1)
    return True


def directive(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a directive of MyST in a fence, with its options."""
    match = DIRECTIVE.fullmatch(line_text(state, start))
    if match is None or state.is_code_block(start):
        return False
    if match["fence"][0] != ":" and match["name"] not in TEXT_DIRECTIVES:
        return False  # a code block
    if silent:
        return True
    closing = re.escape(match["fence"]) + match["fence"][0] + "*"
    last, is_closed = _closing_line(state, closing, start + 1, end)
    if match["name"] in CODE_DIRECTIVES:
        _push_syntax(state, start, last + is_closed)
        return True
    line = start + 1  # after the options: `:name: value` or YAML
    if line < last and line_text(state, line) == "---":
        lines = (n for n in range(line + 1, last) if line_text(state, n) == "---")
        line = next(lines, line - 1) + 1
    else:
        while line < last and OPTION.fullmatch(line_text(state, line)):
            line += 1
    _push_syntax(state, start, line)
    _tokenize(state, state.line, last, state.blkIndent)
    if is_closed:
        _push_syntax(state, last, last + 1)
    return True


def _closing_line(state: StateBlock, pattern: str, start: int, end: int) -> tuple[int, bool]:
    """Return the first line that matches, and True; or the end of the block, and False."""
    # By pattern, indent and depth of quotation, in which lines read otherwise, the end of a block
    # that has no such line from a line on. Otherwise many lines would search the same lines.
    unclosed = state.env.setdefault("unclosed", {})
    mark = state.bMarks[start]
    quotes = state.src.count(">", state.src.rfind("\n", 0, mark) + 1, mark)
    key = (pattern, state.blkIndent, quotes, end)
    first, last = unclosed.get(key, (end, end))
    if first <= start < last:
        return last, False
    for line in range(start, end):
        if not state.isEmpty(line) and state.sCount[line] < state.blkIndent:
            end = line
            break
        if re.fullmatch(pattern, line_text(state, line)):
            return line, True
    unclosed[key] = (start, end)
    return end, False


def indented(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse an admonition or a tab of MkDocs, whose content is indented."""
    if state.is_code_block(start) or not INDENTED.fullmatch(line_text(state, start)):
        return False
    if silent:
        return True
    indent = state.sCount[start] + 4
    last = _indented_end(state, start, end, indent)
    _push_syntax(state, start, start + 1)
    _tokenize(state, start + 1, last, indent)
    return True


def definition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a definition whose term is a block, as MkDocs allows."""
    match = DEFINITION.match(line_text(state, start))
    if match is None or state.is_code_block(start):
        return False
    if silent:
        return True
    indent = state.sCount[start] + 4
    before = (state.tShift[start], state.sCount[start])
    state.tShift[start] += match.end()
    state.sCount[start] += match.end()
    _tokenize(state, start, _indented_end(state, start, end, indent), indent)
    state.tShift[start], state.sCount[start] = before
    return True


def _indented_end(state: StateBlock, start: int, end: int, indent: int) -> int:
    """Return the end of the lines after `start` that are indented, without blank lines there."""
    last = start + 1
    for line in range(start + 1, end):
        if not state.isEmpty(line):
            if state.sCount[line] < indent:
                break
            last = line + 1
    return last


def _tokenize(state: StateBlock, start: int, end: int, indent: int) -> None:
    """Parse the lines [start:end] as the content of a block."""
    outer = (state.lineMax, state.parentType, state.blkIndent)
    state.lineMax, state.parentType, state.blkIndent = end, "container", indent
    state.push("container_open", "", 1).map = [start, end]
    state.md.block.tokenize(state, start, end)
    state.push("container_close", "", -1)
    state.lineMax, state.parentType, state.blkIndent = outer
    state.line = end


def _push_syntax(state: StateBlock, start: int, end: int) -> None:
    """Append a token for lines that are syntax, and go on after them."""
    token = state.push("syntax", "", 0)
    token.map = [start, end]
    token.content = state.getLines(start, end, state.blkIndent, False).rstrip()
    state.line = end


def text(state: StateInline, silent: bool) -> bool:
    """Parse text up to a character that can begin markup, or a unit."""
    match = TEXT.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.pending += match[0]
    state.pos = match.end()
    return True


def unchanged(state: StateInline, silent: bool) -> bool:
    """Parse text that a translation may not change."""
    unit = ANY_UNIT.match(state.src, state.pos, state.posMax)
    match = unit or MARK.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        token_type = "unchanged_mark"
        if unit:
            token_type = "unit" if unit["barrier"] is None else "barrier"
        state.push(token_type, "", 0).content = match[0]
    state.pos = match.end()
    return True


def reference(state: StateInline, silent: bool) -> bool:
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
    label = normalizeReference(state.src[start:end])
    definitions = state.env.get("references", {})
    if match["break"]:
        if label in definitions or normalizeReference(match["key"]) not in definitions:
            return False
    if not silent and not match["key"] and not BLANK.search(state.src, start, end):
        state.push("unchanged_name", "", 0).content = state.src[state.pos : match.end()]
    elif not silent:
        _push_link(state, (start, end), {"key": normalizeReference(match["key"]) or label})
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
