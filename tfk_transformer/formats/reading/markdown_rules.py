"""Rules for the dialects of Markdown: MyST, MkDocs, Hugo, Jekyll, VitePress.

Lines that are syntax become tokens of the type "syntax", which stay unchanged.
"""

import re

from markdown_it.common.utils import normalizeReference
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

FRONT_MATTER = re.compile(
    r"---[ \t]*\n(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)"  # YAML
    r"|\+\+\+[ \t]*\n(?:.*\n)*?\+\+\+[ \t]*(?:\n|\Z)"  # TOML
    r"|\{[ \t]*\n(?:.*\n)*?\}[ \t]*(?:\n|\Z)"  # JSON
)
SYNTAX = re.compile(
    r"""
    :{3,}.*                                              # the fence of a container
    | /{3,}.*                                            # the fence of a block of PyMdown
    | (?:\{\{[<%](?:(?![>%]\}\}).)*[>%]\}\}\s*)+         # shortcodes of Hugo
    | \{\{[<%](?:(?![>%]\}\}).)*                          # the start of a long one
    | (?:\{%(?:(?!%\}).)*%\}\s*|\{\{[^{}]*\}\}\s*)+      # tags of a template
    | \([^()\n]+\)=                                      # a target of MyST
    | \[TOC\]|\[\[_?TOC_?\]\]                            # a table of contents
    | ;?-+8<-+.*                                         # a snippet of PyMdown
    | <<<\s*[@./\w].*                                    # a snippet of VitePress
    | \*\[[^\]]+\]:.*                                    # an abbreviation
    | \{:?[ ]*[#.%][^{}]*\} | \{:?[ ]*[\w-]+=[^{}]*\}    # attributes of a block
    | \^{3,}.* | \+{3,}.*                                # a separator of MyST
    """,
    re.VERBOSE | re.IGNORECASE,
)
INDENTED = re.compile(r'(?:!!!|\?\?\?)\+?[ ]*[\w"].*|===[!+]?[ ]+".*"')
DIRECTIVE = re.compile(r"(?P<fence>`{3,}|~{3,}|:{3,})[ ]*\{(?P<name>[^}\s]+)\}.*")
OPTION = re.compile(r":[\w-]+:(?:\s.*)?")
# Directives whose content is Markdown, in fences that are otherwise code.
TEXT_DIRECTIVES = set(
    "admonition attention caution danger error hint important note seealso tip warning todo "
    "versionadded versionchanged deprecated epigraph topic sidebar margin dropdown figure card "
    "tab-item tab-set grid grid-item grid-item-card".split()
)
# Directives whose content is not Markdown, in fences of colons.
CODE_DIRECTIVES = set(
    "code code-block code-cell sourcecode parsed-literal math toctree eval-rst mermaid graphviz "
    "literalinclude include image raw csv-table bibliography plot".split()
)
LONG_SHORTCODE = re.compile(r"\{\{[<%](?:(?![>%]\}\}).)*")
CODE_SHORTCODE = re.compile(r"\{\{[<%]\s*(code[\w-]*|highlight|mermaid|katex|math|goat)\b.*")
DEFINITION = re.compile(r":[ ]{3,}(?=\S)")
COMMENT = re.compile(r"%(?:\s.*)?")
# What these blocks end without a blank line.
ENDS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list", "footnote_def"]}

UNCHANGED = {
    # Read as a word of a sentence. The lengths bound the time of a search.
    "unchanged_word": re.compile(
        r"""
        \{\{[<%].{,1000}?[>%]\}\}              # a shortcode of Hugo
        | \{\{[^{}]*\}\}                       # a variable of a template
        | \{%.{,1000}?%\}                      # a tag of a template
        | \{[\w:+.-]+\}                        # a role of MyST
          (?P<ticks>`+)(?!`).{,1000}?(?<!`)(?P=ticks)(?!`)
        | \$\$(?:[^$\\`]|\\.)+\$\$(?!\w)       # a formula, as GitHub reads it
        | (?<![\w$])\$(?![\s$])(?:[^$\\`\n]|\\.)+(?<!\s)\$(?![\w$])
        | \+\+[\w"+-]+\+\+                     # keys of PyMdown
        """,
        re.VERBOSE | re.DOTALL,
    ),
    # Without a meaning in the sentence.
    "unchanged_mark": re.compile(
        r"""
        \[\^[^\s\]]{1,200}\]                                # a footnote mark
        | \{:?[ ]*[#.][\w-][^{}\n]*\}                       # attributes: an id or a class at first
        | \{:?[ ]*[\w-]+=[^{}\n]*\}
        | (?<![\w:]):(?:[a-z][\w+-]*|[+-]1):(?!\w)          # an emoji or an icon
        """,
        re.VERBOSE,
    ),
}
BLANK = re.compile(r"\s")
KEY = re.compile(r"(?P<break>\n?)\[(?P<key>[^\[\]]*)\]")


def line_text(state: StateBlock, line: int) -> str:
    """Return a line without the blanks around it."""
    start = state.bMarks[line] + state.tShift[line]
    return state.src[start : state.eMarks[line]].rstrip()


def front_matter(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse front matter at the start of the document."""
    match = FRONT_MATTER.match(state.src) if start == 0 and state.level == 0 else None
    if match is None or silent:
        return False
    _push_syntax(state, start, match[0].rstrip("\n").count("\n") + 1)
    return True


def comment(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a comment of MyST. It does not end a paragraph."""
    if state.is_code_block(start) or not COMMENT.fullmatch(line_text(state, start)):
        return False
    if not silent:
        _push_syntax(state, start, start + 1)
    return True


def syntax(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a line that is syntax, or code between two shortcodes."""
    text = line_text(state, start)
    if state.is_code_block(start) or not SYNTAX.fullmatch(text):
        return False
    if not silent:
        code = CODE_SHORTCODE.fullmatch(text)
        last, is_closed = start, True
        if code:
            closing = r".*\{\{[<%]\s*/\s*" + re.escape(code[1]) + ".*"
            last, is_closed = _closing_line(state, closing, start, end)
        elif LONG_SHORTCODE.fullmatch(text):
            last, is_closed = _closing_line(state, r".*[>%]\}\}", start, end)
        _push_syntax(state, start, last + 1 if is_closed else start + 1)
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


def unchanged(state: StateInline, silent: bool) -> bool:
    """Parse text that a translation may not change."""
    for token_type, pattern in UNCHANGED.items():
        match = pattern.match(state.src, state.pos, state.posMax)
        if match is not None:
            if not silent:
                state.push(token_type, "", 0).content = match[0]
            state.pos = match.end()
            return True
    return False


def reference(state: StateInline, silent: bool) -> bool:
    """Parse `[text][key]` and `[key][]` whose definitions are elsewhere.

    A name, as in `[package.Class][]`, stays unchanged. Between text and key can be a line break, as
    Python-Markdown allows, if the key is defined.
    """
    if state.src[state.pos] != "[":
        return False
    start = state.pos + 1
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
        state.push("unchanged_word", "", 0).content = state.src[state.pos : match.end()]
    elif not silent:
        limit = state.posMax
        state.pos, state.posMax = start, end
        token = state.push("link_open", "a", 1)
        token.attrs = {"key": normalizeReference(match["key"]) or label}
        state.md.inline.tokenize(state)
        state.push("link_close", "a", -1)
        state.posMax = limit
    state.pos = match.end()
    return True
