"""Parse HTML as browsers do, by html5lib, and record the position of each token."""

import bisect
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import html5lib
from html5lib.constants import tokenTypes

from tfk_transformer.formats.documents.items import Item, ItemType

INLINE_TAGS = set(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark nobr output q rb ruby "
    "s small span strike strong sub sup time tt u".split()
)
# Without text, inside a sentence.
VOID_INLINE_TAGS = {"embed", "img", "wbr", "input", "slot"}
# Unchanged elements inside a sentence that are read as a word.
WORD_TAGS = set("code kbd samp var math svg object iframe audio video canvas picture".split())
# Unchanged elements inside a sentence that have no part in it: the pronunciation of ruby text.
ANNOTATION_TAGS = {"rp", "rt", "rtc"}
# Unchanged blocks. Browsers read no character references in some of them.
UNTOUCHED_TAGS = set(
    "script style pre textarea template noscript listing noembed noframes plaintext xmp".split()
)
UNCHANGED_TAGS = WORD_TAGS | ANNOTATION_TAGS | UNTOUCHED_TAGS
SENTENCE_TAGS = INLINE_TAGS | VOID_INLINE_TAGS | WORD_TAGS | ANNOTATION_TAGS

TOKEN_NAMES = {number: name for name, number in tokenTypes.items()}
# The error of the only markup without a token, `</>`.
EMPTY_END_TAG = "expected-closing-tag-but-got-right-bracket"
# Each block repeats the elements of formatting that are open, such as <font color="red">. Elements
# with equal attributes count at most three times.
MAX_FORMATS = 64
# The time of a tag grows with the number of open elements. Browsers have a limit of about 500.
MAX_DEPTH = 3000
XML_START = re.compile(r"\s*<\?xml\s")
CARRIAGE_RETURN = re.compile(r"\r\n?")


def is_marked(attributes: Mapping[str, str]) -> bool:
    """Return whether the author excludes an element with these attributes from translation."""
    classes = attributes.get("class", "").split()
    return attributes.get("translate", "").lower() == "no" or "notranslate" in classes


def is_unchanged(name: str, attributes: Mapping[str, str]) -> bool:
    """Return whether an element and everything inside it stays unchanged."""
    return name in UNCHANGED_TAGS or is_marked(attributes)


class HtmlToken(NamedTuple):
    """The characters document[start:end]: a tag, a comment, a run of text, a character reference.

    Characters that belong to no token, such as a tag that the document ends in, stay unchanged.
    """

    type: str  # "StartTag", "EndTag", "Text", "Comment", "Doctype" or "EmptyEndTag"
    start: int
    end: int
    data: str = ""  # of tags the name, of text the text
    attributes: dict[str, str] = {}
    is_closed: bool = False  # whether a start tag is also the end of its element, as in XML
    # The outermost open element that stays unchanged, once the token is part of the tree.
    unchanged: Any = None


def tag_item(tag: HtmlToken, is_inline: bool) -> Item:
    """Return the item of a tag, which can be inside a sentence, or of a comment."""
    span = (tag.start, tag.end)
    is_comment = tag.type in ("Comment", "EmptyEndTag")
    if is_comment or tag.data in VOID_INLINE_TAGS or (is_inline and tag.is_closed):
        return Item(ItemType.POINT, *span)
    if not is_inline:
        return Item(ItemType.BREAK, *span)
    return Item(ItemType.OPEN if tag.type == "StartTag" else ItemType.CLOSE, *span, name=tag.data)


class _OneChunk(io.StringIO):
    """A file that is read as one chunk, which has the positions of the whole document."""

    def read(self, size: int | None = -1) -> str:
        return super().read(-1 if size else 0)


class _RecordedTokens:
    """html5lib's tokenizer as its parser sees it; each token is recorded with its end."""

    def __init__(self, parser: "HtmlParser") -> None:
        self._parser = parser
        self._tokenizer = parser.tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    @property
    def state(self) -> Any:
        """The state of the tokenizer, which the parser sets for elements such as `script`."""
        return self._tokenizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self._tokenizer.state = state

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for token in self._tokenizer:
            yield token
            # An element without content in XML. Its name may have changed the tokenizer's state.
            is_closed = (
                self._parser.is_xml
                and token["type"] == tokenTypes["StartTag"]
                and token["selfClosing"]
                and not token["selfClosingAcknowledged"]
            )
            if is_closed:
                self.state = self.dataState
                end_tag = {"type": tokenTypes["EndTag"], "data": {}, "selfClosing": False}
                yield {**end_tag, "name": token["name"]}
            unread = self.stream.chunkSize - self.stream.chunkOffset
            self._parser.record(token, unread, is_closed)


class HtmlParser(html5lib.HTMLParser):
    """A parser of an HTML document or fragment, with a list of its tokens."""

    def __init__(self, document: str, is_xml: bool = False) -> None:
        super().__init__()
        self.is_xml = is_xml or XML_START.match(document) is not None
        self.tokens: list[HtmlToken] = []
        self._document = document
        self._open: list[tuple[Any, Any]] = []  # open elements, with the unchanged one around each
        self._text = CARRIAGE_RETURN.sub("\n", document)
        # The ends of lines in `_text` that have two characters in the document.
        self._long_ends = [
            match.start() - number for number, match in enumerate(re.finditer(r"\r\n", document))
        ]
        self._end = 0
        self._problem = "markup that html5lib cannot parse"
        try:
            self.parse(_OneChunk(self._text), scripting=True)
        except Exception as error:  # html5lib asserts what a few broken documents violate
            line = document.count("\n", 0, self._end) + 1
            raise ValueError(
                f"text: expected HTML, got {self._problem}, up to line {line}; correct its tags."
            ) from error

    def reset(self) -> None:
        """Begin a document, whose tokenizer html5lib has just made."""
        self.tokenizer = _RecordedTokens(self)
        super().reset()

    def record(self, token: dict[str, Any], unread: int, is_closed: bool) -> None:
        """Add a token of html5lib, after which `unread` characters of the text follow."""
        token_type = TOKEN_NAMES[token["type"]].removeprefix("Space")
        if token_type == "ParseError":
            if token["data"] != EMPTY_END_TAG:
                return
            token_type = "EmptyEndTag"
        for elements, limit in (
            (self.tree.openElements, MAX_DEPTH),
            (self.tree.activeFormattingElements, MAX_FORMATS),
        ):
            if len(elements) > limit:
                self._problem = f"more than {limit} elements without an end"
                raise ValueError(self._problem)
        start = self._end
        end = len(self._text) - unread
        self._end = end + bisect.bisect_left(self._long_ends, end)
        is_tag = token_type in ("StartTag", "EndTag")
        raw = self._document[start : self._end]
        data = token["name"] if is_tag else ""
        if token_type == "Characters":
            token_type = "Text"
            data = token["data"] if raw.startswith("&") else raw
        attributes = dict(token["data"]) if is_tag else {}
        unchanged = self._unchanged_element()
        self.tokens.append(
            HtmlToken(token_type, start, self._end, data, attributes, is_closed, unchanged)
        )

    def _unchanged_element(self) -> Any:
        """Return the outermost open element that stays unchanged, or None."""
        elements = self.tree.openElements
        del self._open[len(elements) :]
        while self._open and self._open[-1][0] is not elements[len(self._open) - 1]:
            self._open.pop()
        for element in elements[len(self._open) :]:
            outer = self._open[-1][1] if self._open else None
            if outer is None and is_unchanged(element.name, element.attributes):
                outer = element
            self._open.append((element, outer))
        return self._open[-1][1] if self._open else None
