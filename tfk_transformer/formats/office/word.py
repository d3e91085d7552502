"""Word files (.docx): their paragraphs as text, with marks in place of XML.

The runs of a paragraph are read as one text. Where the format is not that of most of the paragraph,
it is an inline element. A paragraph gets new runs if its translation differs.
"""

import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from lxml import etree

from tfk_transformer.formats.documents.items import (
    STAND_IN,
    Document,
    Item,
    ItemType,
    pair_elements,
)
from tfk_transformer.formats.lines import one_line
from tfk_transformer.formats.office.archive import ILLEGAL, OfficeFile

Element: TypeAlias = Any  # lxml's
PARTS = re.compile(r"(main|\.(header|footer|footnotes|endnotes))\+xml$")
# Elements around runs that are inline elements. The others stay unchanged.
AROUND_RUNS = {"hyperlink", "ins", "moveTo", "smartTag", "sdt", "sdtContent"}
WORDS = {"fldSimple", "oMath", "oMathPara"}  # unchanged, and read as a word
LINE_ENDS = {"br", "cr", "tab", "ptab"}
# Properties, and what a word processor adds when it needs it.
LEFT_OUT = {"rPr", "pPr", "proofErr", "lastRenderedPageBreak", "softHyphen"}
UNSHOWN = {"lang", "noProof"}  # properties of runs that look the same
HINT = re.compile(rb'\s\w+:hint="\w*"')
SPACE = "{http://www.w3.org/XML/1998/namespace}space"
# Marks are between characters that XML cannot have.
PARAGRAPH_END = "\x02\x03"
MARK = re.compile("\x02([^\x03]*)\x03")


def read(data: bytes) -> OfficeFile:
    """Parse a Word file: its body, headers, footers, footnotes and endnotes."""
    file = OfficeFile(data, ".docx")
    types = etree.fromstring(file.xml("[Content_Types].xml"))
    for type in types:
        if PARTS.search(type.get("ContentType", "")):
            name = type.get("PartName")[1:]
            part = Part(file.xml(name))
            file.documents[name] = (part.document, part.written)
    return file


def _name(element: Element) -> str:
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def _content(element: Element) -> list[Element]:
    """Return the content of a paragraph or an element around runs, without its properties."""
    is_around = _name(element) in AROUND_RUNS or _name(element) == "p"
    return [child for child in element if not _name(child).endswith("Pr")] if is_around else []


def _runs(element: Element) -> Iterator[Element]:
    for child in _content(element):
        yield from [child] if _name(child) == "r" else _runs(child)


class Part:
    """A part of a Word file, whose paragraphs are `document`."""

    def __init__(self, xml: bytes) -> None:
        self._source = xml
        self._root = etree.fromstring(xml, etree.XMLParser(huge_tree=True))
        self._w = f"{{{etree.QName(self._root).namespace}}}"
        self._formats: dict[bytes, int] = {}  # the number of each format of runs
        self._properties: list[Element] = []  # of runs with these formats
        self._elements: list[Sequence[Element]] = []  # that marks name by their indices
        self._items: list[Item] = []
        self._pieces: list[str] = []
        self._length = 0
        self._paragraphs: list[tuple[Element, int]] = []  # with the format of most of the text
        for paragraph in self._root.iter(f"{self._w}p"):
            lengths = Counter[int]()
            for run in _runs(paragraph):
                lengths[self._format(run)] += len("".join(run.itertext()))
            self._usual = self._open = max(lengths, key=lambda n: lengths[n], default=0)
            self._paragraphs.append((paragraph, self._usual))
            self._read_content(_content(paragraph))
            self._add(ItemType.BREAK, PARAGRAPH_END)
        text = "".join(self._pieces)
        self.document = Document(text, pair_elements(self._items), clean=_plain)

    def _add(self, type: ItemType, text: str, shown: str = "", name: str = "") -> None:
        start = self._length
        self._length += len(text)
        self._pieces.append(text)
        self._items.append(Item(type, start, self._length, shown, name=name))

    def _mark(self, elements: Sequence[Element], prefix: str = "", suffix: str = "") -> str:
        self._elements.append(elements)
        return f"\x02{prefix}{len(self._elements) - 1}{suffix}\x03"

    def _format(self, run: Element) -> int:
        properties = run.find(f"{self._w}rPr")
        shown = [] if properties is None else [p for p in properties if _name(p) not in UNSHOWN]
        xml = b"".join(etree.tostring(each, with_tail=False) for each in shown)
        number = self._formats.setdefault(HINT.sub(b"", xml), len(self._formats))
        if number == len(self._properties):
            self._properties.append(properties)
        return number

    def _set_format(self, format: int) -> None:
        """End the element of the last format, and begin that of another format."""
        if format != self._open and self._open != self._usual:
            self._add(ItemType.CLOSE, "\x02-\x03", name=f"format {self._open}")
        if format != self._open and format != self._usual:
            self._add(ItemType.OPEN, f"\x02+{format}\x03", name=f"format {format}")
        self._open = format

    def _read_content(self, elements: Sequence[Element]) -> None:
        done = 0
        for index, element in enumerate(elements):
            name, content = _name(element), _content(element)
            if index < done or name in LEFT_OUT:
                continue
            separate, last = self._field(elements, index)
            done = last + 1
            if last > index:
                code, inner = elements[index : separate + 1], elements[separate + 1 : last]
                if "HYPERLINK" in "".join(text for run in code for text in run.itertext()):
                    end = self._mark(elements[last:done])
                    self._read_element(self._mark(code), inner, end)
                else:
                    self._add(ItemType.POINT, self._mark(elements[index:done]), STAND_IN)
            elif name == "r":
                self._read_run(element)
            elif content:
                self._read_element(self._mark([element], "<"), content, "\x02>\x03")
            else:
                shown = STAND_IN if name in WORDS else ""
                self._add(ItemType.POINT, self._mark([element]), shown)
        self._set_format(self._usual)

    def _read_element(self, opening: str, content: Sequence[Element], closing: str) -> None:
        self._set_format(self._usual)
        self._add(ItemType.OPEN, opening, name=opening)
        self._read_content(content)
        self._add(ItemType.CLOSE, closing, name=opening)

    def _read_run(self, run: Element) -> None:
        format = self._format(run)
        for child in run:
            name = _name(child)
            text = "\u2011" if name == "noBreakHyphen" else child.text or ""
            if name in ("t", "noBreakHyphen"):
                text = text if child.get(SPACE) == "preserve" else text.strip(" \t\r\n")
                if text.strip():  # a blank has the format of the text before it
                    self._set_format(format)
                if text:
                    self._add(ItemType.TEXT, text, text)
            elif name in LINE_ENDS:
                self._set_format(self._usual)
                self._add(ItemType.BREAK, self._mark([child], suffix=f":{format}"))
            elif name not in LEFT_OUT:
                self._add(ItemType.POINT, self._mark([child], suffix=f":{format}"))

    def _field(self, elements: Sequence[Element], first: int) -> tuple[int, int]:
        """Return the indices of the ends of the code and of the field that begins at `first`.

        Both are `first` if no field begins there, or it does not end in these elements.
        """
        depth, separate = 0, first
        for last in range(first, len(elements)):
            for mark in elements[last].iterchildren(f"{self._w}fldChar"):
                type = mark.get(f"{self._w}fldCharType")
                depth += {"begin": 1, "end": -1}.get(type, 0)
                if type == "separate" and depth == 1:
                    separate = last
            if depth <= 0:
                return separate, last
        return first, first

    def written(self, text: str) -> bytes:
        """Return the XML with another text of the document, which this changes."""
        if text == self.document.text:
            return self._source
        texts = (each.split(PARAGRAPH_END)[:-1] for each in (self.document.text, text))
        for (paragraph, format), source, target in zip(self._paragraphs, *texts, strict=True):
            if source != target:
                self._write(paragraph, format, target)
        declaration = {"xml_declaration": True, "encoding": "UTF-8", "standalone": True}
        return etree.tostring(self._root.getroottree(), **declaration)

    def _write(self, paragraph: Element, format: int, text: str) -> None:
        """Replace the content of a paragraph by a text with marks."""
        for child in _content(paragraph):
            paragraph.remove(child)
        parents, formats = [paragraph], [format]
        run: Element = None  # the last run, if nothing follows it
        run_format = format

        def add_to_run(element: Element, format: int) -> None:
            nonlocal run, run_format
            if run is None or run_format != format:
                run, run_format = etree.SubElement(parents[-1], f"{self._w}r"), format
                if self._properties[format] is not None:
                    run.append(copy.deepcopy(self._properties[format]))
            run.append(element)

        pieces = ["", *MARK.split(text)]
        for mark, words in zip(pieces[::2], pieces[1::2], strict=True):
            if mark[:1] == "+":
                formats.append(int(mark[1:]))
            elif mark == "-":
                formats.pop()
            elif ":" in mark:
                number, format = map(int, mark.split(":"))
                add_to_run(self._elements[number][0], format)
            elif mark:
                run = None
                if mark == ">":
                    parents.pop()
                elif mark[0] == "<":
                    (element,) = self._elements[int(mark[1:])]
                    for child in _content(element):
                        element.remove(child)
                    parents[-1].append(element)
                    parents.append(element)
                else:
                    parents[-1].extend(self._elements[int(mark)])
            if words:
                element = etree.Element(f"{self._w}t", {SPACE: "preserve"})
                element.text = words
                add_to_run(element, formats[-1])


def _plain(text: str) -> str:
    """Return a text as it is in a document: without the characters of marks."""
    return ILLEGAL.sub("", one_line(text))
