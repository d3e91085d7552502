"""Units: code in a document that another program than Markdown or HTML reads, often before it.

These are tags of templates, formulas, JSX, wiki links, mentions. `mask` replaces each character of
a unit by one for private use. So positions stay, and a parser of Markdown or HTML reads a unit as a
part of a word, wherever it stands: in a text, a destination, an attribute.
"""

import re
from collections.abc import Iterator

from markdown_it.common.html_blocks import block_names

# Planes of Unicode for private use; their last two characters are none.
UNIT_PLANE, BARRIER_PLANE, PLANE_SIZE = 0xF0000, 0x100000, 0xFFFE
NO_PLANE = 0  # of code that is skipped
UNIT = "[\U000f0000-\U000ffffd]"
EDGE = "\U00010a7f"  # punctuation at both ends of a barrier, for Markdown's emphasis next to it
BARRIER = f"[{EDGE}\U00100000-\U0010fffd]"  # no word and no element moves across such a unit
ANY_UNIT = re.compile(f"(?P<unit>{UNIT}+)|(?P<barrier>{BARRIER}+)")

FRONT_MATTER = re.compile(
    r"\ufeff?(?:(?P<fence>---|\+\+\+)[ \t]*\r?\n(?P<fields>(?:.*\n)*?)(?:(?P=fence)|\.\.\.)"
    r"|\{[ \t]*\r?\n(?:.*\n)*?\})[ \t]*(?=\r?\n|\Z)"
)
# Liquid, Jinja, Django; Go, Hugo, Handlebars, Vue; ERB. The lengths bound the time of a search.
TEMPLATES = r"""
    (?P<comment>\{\#-?\s.{,4000}?\#\} | \{\#[^{}\n]*\#\} | \{\{!--.{,4000}?--\}\}
        | \{\{[<%]?[-~]?\s*/\*.{,4000}?\*/\s*[-~]?[>%]?\}\})
    | (?P<dynamic></?(?:\{\{(?:(?!\}\}|\{\{).){,4000}\}\}|\{%(?:(?!%\}|\{%).){,4000}%\})[^<>\n]*>)
    | (?P<tag>\{%[-+]?\s*(?P<name>\w*)(?:(?!%\}|\{%).){,4000}%\})
    | (?P<shortcode>\{\{[<%]\s*(?P<slash>/?)\s*(?P<short>[\w.-]*)
        (?:(?![%>]\}\}|\{\{).){,4000}[%>]\}\})
    | (?P<output>\{\{\{(?:(?!\}\}\}|\{\{\{).){,4000}\}\}\}\}?
        | \{\{[-~]?\s*(?P<word>[#/^]|\w*)(?:(?!\}\}|\{\{|\n[^\S\n]*\n).){,4000}\}\})
    | (?P<embedded><%(?:(?!%>|<%).){,4000}%>)
"""
MARKUP = r"(?P<raw><!--|<(?P<element>script|style|pre|textarea)\b)"
DISPLAY = r"(?P<display>\$\$(?!\$)(?:[^$\\]|\\.|\$(?!\$)){1,5000}?\$\$(?:[ ]\([\w:-]+\)(?=\s*$))?)"
CONTENT = r"(?:(?!\n[^\S\n]*\n).){1,2000}?"
BRACKETS = rf"""(?P<formula>(?<!\\)(?P<escape>\\\\?)
    (?:\((?P<round>{CONTENT})(?P=escape)\)|\[(?P<square>{CONTENT})(?P=escape)\]))"""
MARKDOWN = rf"""
    {DISPLAY} | {BRACKETS}
    | (?P<unit>\$`[^`\n]+`\$
        | (?<![\w$])\$(?![\s$]|\d[\d.,]*\s+[^\W\d_]{{2}}[^\\^_={{}}\n]*\$)
          (?:[^$\\`\n]|\\.)+(?<!\s)\$(?![\w$])
        | \\begin\{{(?P<math>[a-z]+\*?)\}}.{{,5000}}?\\end\{{(?P=math)\}}
        | \{{[\w:+.-]+\}}(?P<role>`+)(?!`).{{,1000}}?(?<!`)(?P=role)(?!`)   # a role of MyST
        | \+\+(?:[\w+-]|"[^"\n]*")+\+\+                                     # keys of PyMdown
        | !?\[\[[^\[\]|\n]+\]\](?![(\[:])                                   # a wiki link
        | (?<!\S)%%(?![\s\d])[^%\n]+%%                                      # a comment of Obsidian
        | (?<![\w@/.+-])@[A-Za-z0-9](?:[\w./:-]*\w)?                        # a mention
        | (?<![\w./:&\#{{=-])\#\w(?:[\w/-]*\w)?                             # a hashtag
        | (?<![\w./:-])[\w./-]++(?<!/)\#\d++(?![\w/-]*\w)                   # a/b#9, an issue
        | (?<!\S)-+8<-+[ \t]*\n(?:[^\n]*\n){{1,50}}?[ \t]*-+8<-+(?!\S)        # snippets of PyMdown
    )
    | (?P<skipped>\\(?!\{{[{{%])[!-/:-@\[-`{{-~] | \{{:?[ ]*(?:[\#.][\w-]|[\w-]+=)[^{{}}\n]*\}})
    | (?P<extension>\{{::(?P<extended>comment|nomarkdown)\b[^{{}}/]*\}})
    | (?P<ticks>(?:`+|~{{3,}}|:{{3,}}(?=[ ]*\{{[^}}\s]+\}}))(?=(?P<info>[^\n]*)))
    | {MARKUP}
    | (?P<element_tag><(?=[A-Za-z/>])/?(?P<tag_name>[A-Za-z][\w.:-]*)?(?=[\s/>]))
"""
PRIVATE = f"(?P<private>{UNIT}+|{BARRIER}+)"  # characters of the document itself
PATTERNS = {
    dialect: re.compile(" | ".join(parts), re.VERBOSE | re.DOTALL | re.MULTILINE)
    for dialect, parts in {
        "html": (PRIVATE, TEMPLATES, MARKUP, DISPLAY, BRACKETS),
        "markdown": (PRIVATE, TEMPLATES, MARKDOWN),
        "mdx": (PRIVATE, MARKDOWN, r"(?P<expression>\{)", r"^(?P<module>(?:im|ex)port\b)"),
    }.items()
}

# What is between these tags and their ends is code.
CODE_TAGS = set(
    "asciimath chart codeblock comment code doc highlight javascript katex latex math mermaid "
    "plantuml prism raw schema script style stylesheet tikz uml verbatim".split()
)
PASSAGE_TAGS = {"raw", "verbatim"}  # or passages, with blank lines
CODE_SHORTCODE = re.compile(r"code[\w-]*|highlight|mermaid|katex|math|goat|raw|plantuml|chart|qr")
# Parts of paired tags that have no end of their own, and the paired ones of Go and Handlebars.
MIDDLE_TAGS = {"else", "elsif", "elif", "elseif", "when", "case"}
PAIRED_OUTPUTS = set("# / ^ if else range with block define end".split())
# Directives of MyST whose content is Markdown, in fences that are otherwise code.
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
# A directive after its fence, with options: `:name: value` or YAML.
DIRECTIVE = re.compile(
    r"[ ]*\{(?P<name>[^}\s]+)\}[^\n]*"
    r"(?:\n[ \t>]*---[ \t\r]*\n(?:(?![ \t>]*[`~:]{3}).*\n)*?[ \t>]*---[ \t\r]*$"
    r"|(?:\n[ \t>]*:[\w-]+:(?:[^\S\n].*)?$)*)",
    re.MULTILINE,
)
CONTAINER = re.compile(r"[ \t>]*(?:(?:[-*+:]|\d{1,9}[.)])[ \t]+[> \t]*)*")  # before a block
CODE_SPAN = re.compile(
    r"(?P<ticks>`+)(?!`)(?:(?!\n[ \t>]*\n).){1,4000}?(?<!`)(?P=ticks)(?!`)", re.DOTALL
)
BLANK_LINE = re.compile(r"\n[ \t\r]*(?:\n|\Z)")
# A command or an operator, so that \(…\) is a formula and not an escaped parenthesis.
OPERATOR = re.compile(r"(?<!\\)(?:\\[A-Za-z]|[\^_={}<>+])")
# What an expression of JavaScript consists of; braces in strings and comments do not count.
BRACES = re.compile(
    r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|/\*.*?\*/|(?<=\s)//[^\n]*|[{}]""",
    re.DOTALL,
)
ATTRIBUTE = re.compile(
    r"""\s+(?P<name>[^\s"'<>/={}]+)(?:\s*=\s*(?:"[^"]*"|'[^']*'|(?=\{)|[^\s"'=<>`]+))?|\s*(?=\{)"""
)
HTML_NAME = re.compile(r"[A-Za-z_:][\w:.-]*")
TAG_END = re.compile(r"\s*/?>")
MAX_READINGS = 20  # of a text in search of the ends of braces
# A unit with the rest of the address that it is in.
ADDRESS = r"""[^\s<>()\[\]{}"'`|*]"""
IN_ADDRESS = re.compile(
    rf"(?:(?<!<)\b[a-z][a-z+.-]*://{ADDRESS}*)?{UNIT}+"
    rf"""(?:[/?#&](?:{ADDRESS}*[^\s<>()\[\]{{}}"'`|*.,;:!?_~])?)*"""
)


def mask(text: str, dialect: str) -> str:
    """Return a text with units as characters for private use; a dialect is a key of `PATTERNS`."""
    characters = list(text)
    for start, end, plane in _Scanner(text, dialect).units():
        characters[start:end] = _masked(text[start:end], plane)
    masked = "".join(characters)
    if masked == text:
        return text
    return IN_ADDRESS.sub(lambda match: _masked(match[0], UNIT_PLANE), masked)


def _masked(text: str, plane: int) -> str:
    masked = "".join(
        character
        if UNIT_PLANE <= ord(character) < BARRIER_PLANE
        else chr(plane + ord(character) % PLANE_SIZE)
        for character in text
    )
    return f"{EDGE}{masked[1:-1]}{EDGE}" if plane == BARRIER_PLANE else masked


class _Scanner:
    """Finds the units of a text. For each group of the patterns, a method returns the end and the
    plane of what begins with a match.
    """

    def __init__(self, text: str, dialect: str) -> None:
        self._text = text
        self._dialect = dialect
        self._missing: set[str] = set()  # patterns without a match in the rest of the text
        self._done = 0  # the end of the last unit
        self._unread = MAX_READINGS * len(text)  # characters that may be read for ends of braces
        self._fences: list[str] = []  # of directives with text, around the position
        self._ended = {*re.findall(r"\{%[-+]?\s*end_?(\w+)", text)}  # names of paired tags
        self._ended |= {*re.findall(r"\{\{[<%]\s*/\s*([\w.-]+)", text)}

    def units(self) -> Iterator[tuple[int, int, int]]:
        """Yield the start, the end and the plane of each unit."""
        front_matter = FRONT_MATTER.match(self._text)
        position = front_matter.end() if front_matter else 0
        if front_matter:
            yield 0, position, BARRIER_PLANE
        self._done = position
        while match := PATTERNS[self._dialect].search(self._text, position):
            end, plane = getattr(self, f"_{match.lastgroup}")(match)
            position = max(end, match.start() + 1)
            if plane:
                yield match.start(), end, plane
                self._done = end

    def _end(self, pattern: str, position: int) -> int:
        """Return the end of the next match of a pattern, or `position` if there is none."""
        match = None
        if pattern not in self._missing:
            match = re.compile(pattern, re.MULTILINE | re.IGNORECASE).search(self._text, position)
        if match is None:
            self._missing.add(pattern)
        return match.end() if match else position

    def _unit(self, match: re.Match[str]) -> tuple[int, int]:
        return match.end(), UNIT_PLANE

    _private = _comment = _embedded = _unit

    def _skipped(self, match: re.Match[str]) -> tuple[int, int]:
        return match.end(), NO_PLANE

    def _dynamic(self, match: re.Match[str]) -> tuple[int, int]:
        """A tag of HTML whose name is of a template, or an address between angle brackets."""
        return match.end(), BARRIER_PLANE if self._dialect == "html" else UNIT_PLANE

    def _tag(self, match: re.Match[str]) -> tuple[int, int]:
        name = match["name"]
        if name in CODE_TAGS and name in self._ended:
            end = self._end(rf"\{{%[-+]?\s*end_?{name}\b[^%]*%\}}", match.end())
            # Passages are between `raw` because of the code of templates in them.
            if name not in PASSAGE_TAGS or not BLANK_LINE.search(self._text, match.end(), end):
                return end, UNIT_PLANE
        is_paired = name in self._ended or name.startswith("end") or name in MIDDLE_TAGS
        return match.end(), BARRIER_PLANE if is_paired else UNIT_PLANE

    def _shortcode(self, match: re.Match[str]) -> tuple[int, int]:
        name = match["short"]
        if CODE_SHORTCODE.fullmatch(name) and not match["slash"]:
            closing = rf"\{{\{{[<%]\s*/\s*{re.escape(name)}\s*[%>]\}}\}}"
            return self._end(closing, match.end()), UNIT_PLANE
        return match.end(), BARRIER_PLANE if name in self._ended else UNIT_PLANE

    def _output(self, match: re.Match[str]) -> tuple[int, int]:
        is_paired = match["word"] in PAIRED_OUTPUTS
        return match.end(), BARRIER_PLANE if is_paired else UNIT_PLANE

    def _display(self, match: re.Match[str]) -> tuple[int, int]:
        """A formula between $$. One inside a line has neither blank lines nor code."""
        is_block = self._begins_block(match.start())
        is_inline = "`" not in match[0] and not BLANK_LINE.search(match[0])
        is_formula = is_block or (
            is_inline and not self._text[match.end() : match.end() + 1].isalnum()
        )
        return (match.end(), UNIT_PLANE) if is_formula else (match.start() + 2, NO_PLANE)

    def _formula(self, match: re.Match[str]) -> tuple[int, int]:
        start = match.end("escape") + 1
        is_letter = len((match["round"] or "").strip()) == 1
        is_escape = self._dialect != "html" and len(match["escape"]) == 1
        if not is_escape or is_letter or OPERATOR.search(self._text, start, match.end() - 2):
            return match.end(), UNIT_PLANE
        return start, NO_PLANE

    def _extension(self, match: re.Match[str]) -> tuple[int, int]:
        """Code between extensions of kramdown."""
        return self._end(rf"\{{:/(?:{match['extended']})?\}}", match.end()), UNIT_PLANE

    def _raw(self, match: re.Match[str]) -> tuple[int, int]:
        """An element of HTML that has no markup in it."""
        closing = rf"</{match['element']}\s*>" if match["element"] else "-->"
        end = self._end(closing, match.end())
        return end, BARRIER_PLANE if self._dialect == "mdx" and end > match.end() else NO_PLANE

    def _ticks(self, match: re.Match[str]) -> tuple[int, int]:
        """A block of code, code in a sentence, or the lines around the text of a directive."""
        text, mark, info = self._text, match[0], match["info"]
        line_end = match.end("info")
        is_fence = len(mark) >= 3 and (mark[0] != "`" or "`" not in info)
        if is_fence and self._begins_block(match.start()):
            closing = rf"^[ \t>]*{mark}{mark[0]}*[ \t\r]*$"
            directive = DIRECTIVE.match(text, match.end())
            if directive and mark[0] == ":":  # any line of colons is syntax
                is_code = directive["name"] in CODE_DIRECTIVES
                end = self._end(rf"{closing}|\Z", line_end) if is_code else directive.end()
                return end, BARRIER_PLANE
            if directive and directive["name"] in TEXT_DIRECTIVES:
                self._fences.append(mark)
                return directive.end(), BARRIER_PLANE
            if self._fences and mark.startswith(self._fences[-1]) and not info.strip():
                self._fences.pop()
                return match.end(), BARRIER_PLANE
            return self._end(closing, line_end), NO_PLANE
        span = CODE_SPAN.match(text, match.start()) if mark[0] == "`" else None
        return span.end() if span else match.end(), NO_PLANE

    def _begins_block(self, position: int) -> bool:
        line_start = self._text.rfind("\n", 0, position) + 1
        return CONTAINER.fullmatch(self._text, line_start, position) is not None

    def _element_tag(self, match: re.Match[str]) -> tuple[int, int]:
        """A tag that Markdown does not know, such as a component of JSX."""
        position = match.end()
        is_html = True
        while attribute := ATTRIBUTE.match(self._text, position):
            position = attribute.end()
            is_html &= HTML_NAME.fullmatch(attribute["name"] or "") is not None
            if self._text[position : position + 1] == "{":
                end = self._expression_end(position)
                if end == position:
                    break
                position = end
        end_mark = TAG_END.match(self._text, position)
        name = match["tag_name"] or ""
        is_unknown = not is_html and name.lower() not in block_names and "." not in name
        if self._dialect == "mdx":
            is_unknown = not is_html or not name or name[0].isupper() or "." in name
        if end_mark is None or not is_unknown:
            return match.start() + 1, NO_PLANE
        return end_mark.end(), UNIT_PLANE if "/" in end_mark[0] else BARRIER_PLANE

    def _expression(self, match: re.Match[str]) -> tuple[int, int]:
        end = self._expression_end(match.start())
        return end, UNIT_PLANE if end > match.start() else NO_PLANE

    def _expression_end(self, position: int) -> int:
        """Return the end of the braces that open at a position, or the position."""
        depth = 0
        for token in BRACES.finditer(self._text, position, position + self._unread):
            depth += {"{": 1, "}": -1}.get(token[0], 0)
            if not depth:
                return token.end()
        self._unread -= min(self._unread, len(self._text) - position)
        return position

    def _module(self, match: re.Match[str]) -> tuple[int, int]:
        """Imports and exports, up to a blank line outside of braces."""
        text = self._text
        before = text[max(self._done, match.start() - 1000) : match.start()]
        if before.strip() and before.rsplit("\n", 2)[-2].strip():
            return match.end(), NO_PLANE  # a line of a paragraph
        position = match.end()
        while True:
            blank = BLANK_LINE.search(text, position)
            end = blank.start() if blank else len(text)
            brace = text.find("{", position, end)
            position = self._expression_end(brace) if brace >= 0 else brace
            if position == brace:
                return end, BARRIER_PLANE
