"""Inline rules for the dialects of Markdown: unchanged text, and references of other files."""

import re

from markdown_it.common.utils import normalizeReference
from markdown_it.rules_inline import StateInline

# Unchanged text that is read as a word of a sentence. The lengths bound the time of a search.
UNCHANGED_WORD = re.compile(
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
)
# Unchanged text without a meaning in the sentence.
UNCHANGED_MARK = re.compile(
    r"""
    \[\^[^\s\]]{1,200}\]                                 # a footnote mark
    | \{:?[ ]*[#.][\w-][^{}\n]*\}                       # attributes: an id or a class at first
    | \{:?[ ]*[\w-]+=[^{}\n]*\}
    | (?<![\w:]):(?:[a-z][\w+-]*|[+-]1):(?!\w)          # an emoji or an icon
    """,
    re.VERBOSE,
)
BLANK = re.compile(r"\s")
KEY = re.compile(r"(?P<break>\n?)\[(?P<key>[^\[\]]*)\]")


def unchanged(state: StateInline, silent: bool) -> bool:
    """Parse text that a translation may not change."""
    is_word = True
    match = UNCHANGED_WORD.match(state.src, state.pos, state.posMax)
    if match is None:
        is_word = False
        match = UNCHANGED_MARK.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        token = state.push("unchanged_word" if is_word else "unchanged_mark", "", 0)
        token.content = match[0]
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
        state.pos = start
        state.posMax = end
        token = state.push("link_open", "a", 1)
        token.attrs = {"key": normalizeReference(match["key"]) or label}
        state.md.inline.tokenize(state)
        state.push("link_close", "a", -1)
        state.posMax = limit
    state.pos = match.end()
    return True
