"""Translate values of front matter, in YAML or TOML, before the text of its document."""

import json
import re
from collections.abc import Collection, Iterator

from tfk_transformer.formats.documents.edited_text import Edit, EditedText, Editing
from tfk_transformer.formats.reading.units import FRONT_MATTER

# A value on one line, or folded on the next lines.
FIELD = re.compile(
    r"""^(?P<key>[\w-]+)[ \t]*(?P<sign>[:=])[ \t]+(?P<value>
        "(?:[^"\\\n]|\\.)*" | '(?:[^'\n]|'')*' | >-?[ \t\r]*(?:\n[ \t]+\S[^\n]*)+
        | (?![-"'\[\]{}|>&*!#%@`,?])\S[^\n]*?
    )[ \t\r]*(?:[ \t]\#[^\n]*)?$(?!\n[ \t]+\S)""",
    re.VERBOSE | re.MULTILINE,
)
TABLE = re.compile(r"^\[", re.MULTILINE)  # the first one ends TOML's own fields
TEMPLATE_START = re.compile(r"\{[{%#]|<%")
CONSTANTS = {"true", "false", "null", "yes", "no", "on", "off"}  # in YAML, in any case
# Without quotation marks, YAML could read it otherwise.
NEEDS_QUOTES = re.compile(r"[\s\"'\[\]{}|>&*!#%@`,?:~=<.+\d-]|.*(?::(?:\s|$)|\s#)")


def edit_front_matter(document: str, keys: Collection[str]) -> Editing:
    """Translate the fields of front matter with some keys."""
    matches = list(_fields(document, keys))
    translations = yield [_text(match) for match in matches]
    fields = zip(matches, translations, strict=True)
    edits = [Edit(*match.span("value"), _written(match, text)) for match, text in fields]
    return EditedText(document, edits)


def _fields(document: str, keys: Collection[str]) -> Iterator[re.Match[str]]:
    front_matter = FRONT_MATTER.match(document)
    if front_matter is None or front_matter["fence"] is None:
        return
    is_toml = front_matter["fence"] == "+++"
    start, end = front_matter.span("fields")
    table = TABLE.search(document, start, end) if is_toml else None
    for match in FIELD.finditer(document, start, table.start() if table else end):
        is_quoted = match["value"][0] in "\"'"
        is_value = is_quoted if is_toml else match["value"].lower() not in CONSTANTS
        is_language = (match["sign"] == "=") is is_toml and match["key"] in keys
        text = _text(match)
        is_text = any(map(str.isalpha, text)) and not TEMPLATE_START.search(text)
        if is_value and is_language and is_text:
            yield match


def _text(match: re.Match[str]) -> str:
    """Return the text of a value as one line, or nothing if it has other escapes than JSON's."""
    value = match["value"]
    if value[0] == '"':
        try:
            value = json.loads(value)
        except ValueError:
            return ""
    elif value[0] == "'":
        value = value[1:-1].replace("''", "'") if match["sign"] == ":" else value[1:-1]
    elif value[0] == ">":
        value = value.lstrip(">-")
    return " ".join(value.split())


def _written(match: re.Match[str], translation: str) -> str:
    """Return a translation as a value, in the quotation marks of the source if they suffice."""
    value = match["value"]
    if translation == _text(match):
        return value
    if value[0] == "'" and (match["sign"] == ":" or "'" not in translation):
        return "'" + translation.replace("'", "''") + "'"
    is_plain = not NEEDS_QUOTES.match(translation) and translation.lower() not in CONSTANTS
    if value[0] in "\"'>" or not is_plain:
        return json.dumps(translation, ensure_ascii=False)  # valid in YAML and in TOML
    return translation
