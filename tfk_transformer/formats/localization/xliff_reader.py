"""XLIFF 1.2 and 2: each unit without a translation gets one, and its `source` stays."""

import html
import re
from collections.abc import Iterator
from xml.parsers import expat

from tfk_transformer.formats.documents.edited_text import Edit
from tfk_transformer.formats.documents.items import STAND_IN, Document, Item, ItemType
from tfk_transformer.formats.localization.places import Notation, place_document

PREFIX = r"(?:[\w.-]+:)?"
ATTRIBUTES = r"""(?:\s+[^\s=]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s*"""
ATTRIBUTE = re.compile(r"""([^\s=]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
OTHER = r"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>"
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
# Up to the next part of a unit.
BETWEEN = rf"(?:(?!</?{PREFIX}(?:source|seg-source|target|alt-trans|trans-unit|segment)\b).)*"
UNIT = re.compile(
    rf"{OTHER}"
    rf"|(?P<unit><(?P<prefix>{PREFIX})(?P<name>trans-unit|segment){ATTRIBUTES}>)"
    rf"(?P<before>{BETWEEN})<{PREFIX}source{ATTRIBUTES}>(?P<source>.*?)</{PREFIX}source\s*>"
    rf"(?:{BETWEEN}<{PREFIX}seg-source{ATTRIBUTES}>(?P<parts>.*?)</{PREFIX}seg-source\s*>)?"
    rf"(?:{BETWEEN}(?P<opening><{PREFIX}target{ATTRIBUTES}/?>)"
    rf"(?:(?<!/>)(?P<target>.*?)</{PREFIX}target\s*>)?)?"
    rf"|(?P<tag><(?P<end>/?){PREFIX}(?P<container>xliff|file|group|unit){ATTRIBUTES}"
    r"(?P<empty>/?)>)",
    re.DOTALL,
)
TAG = re.compile(rf"<(?P<end>/?){PREFIX}(?P<name>[\w.-]+){ATTRIBUTES}(?P<empty>/?)>")
UNTRANSLATED = r"""(?:translate|mtype)\s*=\s*["'](?:no|protected)["']"""
# Characters, and tags. Elements whose content is not text are one.
ESCAPES = re.compile(
    rf"<(?P<code>{PREFIX}(?:ph|it|bpt|ept)){ATTRIBUTES}>.*?</(?P=code)\s*>"
    rf"|<(?P<mark>{PREFIX}mrk)\b[^>]*{UNTRANSLATED}[^>]*>.*?</(?P=mark)\s*>"
    rf"|{OTHER}|</?[\w:.-]+{ATTRIBUTES}/?>|&[^;]+;",
    re.DOTALL,
)
# Of targets with a text that is not a translation so far, such as a copy of the source.
UNTRANSLATED_STATES = ("new", "needs-translation", "initial")
FINAL_STATES = ("final", "signed-off")
CODE_TYPES = {
    **dict.fromkeys(("bx", "bpt", "sc", "sm"), ItemType.OPEN),
    **dict.fromkeys(("ex", "ept", "ec", "em"), ItemType.CLOSE),
}


def read(text: str, target_language: str | None = None) -> Document:
    """Parse a file. Units with `translate="no"`, approved and translated units stay."""
    _check(text)
    root = next(tag for tag in TAG.finditer(re.sub(OTHER, "", text, flags=re.DOTALL)))
    attributes = _attributes(root[0])
    version = attributes.get("version", "")[:2]
    if root["name"] != "xliff" or version not in ("1.", "2."):
        raise ValueError(
            f"text: expected XLIFF 1.2 or 2, got <{root['name']}> with the version "
            f"'{attributes.get('version', '')}'; convert the file."
        )
    edits = list(_edits(text, version == "2.", target_language))
    if edits and version == "2." and not (target_language or "trgLang" in attributes):
        raise ValueError(
            "target_language: expected the language of the targets, since the file has no trgLang, "
            "got none; give its code."
        )
    has_lines = 'xml:space="preserve"' in text
    return place_document(text, edits, Notation(ESCAPES, _decode, _encode, has_lines))


def _check(text: str) -> None:
    """Refuse what is not XML in UTF-8, and document types, whose entities may be anything."""
    parser = expat.ParserCreate("utf-8")

    def refuse(problem: object) -> None:
        raise ValueError(f"text: expected XLIFF, got {problem}.")

    def check_encoding(version: str, encoding: str | None, standalone: int) -> None:
        if encoding and encoding.lower() not in ("utf-8", "utf8"):
            refuse(f"the encoding {encoding} in line 1; convert the file to UTF-8")

    def check_type(name: str, *_: object) -> None:
        refuse(f"a document type in line {parser.CurrentLineNumber}; remove it")

    parser.XmlDeclHandler = check_encoding
    parser.StartDoctypeDeclHandler = check_type
    try:
        parser.Parse(text.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        refuse(f"an error ({error}); correct the file")


def _edits(text: str, is_new: bool, target_language: str | None) -> Iterator[Edit]:
    holder, language = ("xliff", "trgLang") if is_new else ("file", "target-language")
    translated = [True]  # whether the units of each open element are to be translated
    for match in UNIT.finditer(text):
        tag = match["tag"]
        if match["unit"] and _is_translated(match["unit"], translated[-1]):
            yield from _unit_edits(match)
        elif tag and match["end"]:
            translated.pop()
        elif tag:
            if not match["empty"]:
                translated.append(_is_translated(tag, translated[-1]))
            if match["container"] == holder and target_language is not None:
                yield Edit(*match.span(), _with_attribute(tag, language, target_language))


def _is_translated(tag: str, default: bool) -> bool:
    attributes = _attributes(tag)
    is_translated = attributes.get("translate", "yes" if default else "no") != "no"
    return is_translated and attributes.get("approved") != "yes"


def _unit_edits(unit: re.Match[str]) -> Iterator[Edit]:
    """Yield the state of a unit, and a copy of its source in its target."""
    is_segment = unit["name"] == "segment"
    state = _attributes(unit["unit"] if is_segment else unit["opening"] or "").get("state")
    is_done = (unit["target"] or "").strip() and state not in UNTRANSLATED_STATES
    name = "source" if unit["parts"] is None else "parts"
    if is_done or state in FINAL_STATES or not unit[name].strip():
        return
    start = unit.end() if unit["opening"] is None else unit.start("opening")
    prefix, before = unit["prefix"], unit["before"]
    opening = f"{(unit['opening'] or f'<{prefix}target').rstrip('/> ')}>"
    if is_segment:
        tag = re.sub(r"""\s+subState\s*=\s*("[^"]*"|'[^']*')""", "", unit["unit"])
        yield Edit(*unit.span("unit"), _with_attribute(tag, "state", "translated"))
    else:
        opening = _with_attribute(opening, "state", "needs-review-translation")
    if unit["opening"] is None:
        opening = f"{before[len(before.rstrip()) :]}{opening}"
    copy = CDATA.sub(lambda match: _encode(match[1]), unit[name])
    yield Edit(start, unit.end(), opening)
    yield Edit(unit.end(), unit.end(), copy, unit.span(name))
    yield Edit(unit.end(), unit.end(), f"</{prefix}target>")


def _attributes(tag: str) -> dict[str, str]:
    values = ATTRIBUTE.finditer(tag)
    return {match[1]: html.unescape(match[2] or match[3] or "") for match in values}


def _with_attribute(tag: str, name: str, value: str) -> str:
    """Return a start tag with a value of an attribute."""
    changed, count = re.subn(rf"""(\s{name}\s*=\s*)(?:"[^"]*"|'[^']*')""", rf'\g<1>"{value}"', tag)
    return changed if count else re.sub(r"\s*/?>\Z", rf' {name}="{value}"\g<0>', tag)


def _decode(match: re.Match[str]) -> str | Item:
    """Return a character, or the item of an inline element."""
    if match[0].startswith("&"):
        return html.unescape(match[0])
    tag = TAG.match(match[0])
    if tag is None:
        return Item(ItemType.POINT, *match.span())
    name = tag["name"]
    if name in ("source", "target"):
        return Item(ItemType.BREAK, *match.span())
    if name in ("g", "pc", "mrk") and match["mark"] is None and not tag["empty"]:
        item_type = ItemType.CLOSE if tag["end"] else ItemType.OPEN
        return Item(item_type, *match.span(), name=name)
    attributes = _attributes(tag[0])
    code = attributes.get("rid") or attributes.get("startRef") or attributes.get("id")
    shown = STAND_IN if name in ("x", "ph", "mrk") else ""
    item_type = CODE_TYPES.get(name, ItemType.POINT)
    return Item(item_type, *match.span(), shown, name=f"code {code}")


def _encode(text: str) -> str:
    return html.escape(text, quote=False)
