"""JSON of strings: the values are translated, and the keys stay. ARB is the form of Flutter."""

import json
import re
from collections.abc import Iterator

from tfk_transformer.formats.documents.edited_text import Edit
from tfk_transformer.formats.documents.items import Document, Item, ItemType
from tfk_transformer.formats.localization.places import CONTROLS, Notation, line_of, place_document

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\]:,]')
SURROGATES = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
ESCAPES = re.compile(rf'{SURROGATES}|\\u[0-9a-fA-F]{{4}}|\\.|"')


def read(text: str, is_arb: bool = False, target_language: str | None = None) -> Document:
    """Parse an object or an array of strings, objects and arrays.

    In ARB, keys that begin with "@" and their values stay.
    """
    edits = list(_edits(text, is_arb, target_language))
    is_ascii = text.isascii() and "\\u" in text
    slash = "\\/" if "\\/" in text else "/"

    def encode(decoded: str) -> str:
        return json.dumps(decoded, ensure_ascii=is_ascii)[1:-1].replace("/", slash)

    return place_document(text, edits, Notation(ESCAPES, _decode, encode))


def _edits(text: str, is_arb: bool, target_language: str | None) -> Iterator[Edit]:
    """Yield the strings to translate, and of ARB the language."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"text: expected JSON, got an error ({error}); correct it.") from None
    objects: list[set[str] | None] = []  # the keys of each open object; None for an array
    key = ""  # the last one of the outermost object
    last = ""
    for token in TOKEN.finditer(text):
        start, end = token.span()
        previous, last = last, token[0]
        if last in "{[":
            objects.append(set() if last == "{" else None)
        elif last in "}]":
            objects.pop()
        elif last in ":,":
            continue
        elif objects and objects[-1] is not None and previous in "{,":
            name = json.loads(last)
            if name in objects[-1]:
                raise ValueError(
                    f"text: expected different keys in an object, got '{name}' again in line "
                    f"{line_of(text, start)}, column {start - text.rfind(chr(10), 0, start)}; "
                    "rename or remove one."
                )
            objects[-1].add(name)
            key = name if len(objects) == 1 else key
        elif not (is_arb and key.startswith("@")):
            yield Edit(start + 1, end - 1, last[1:-1], (start + 1, end - 1))
        elif key == "@@locale" and target_language is not None:
            yield Edit(start, end, json.dumps(target_language.replace("-", "_")))


def _decode(match: re.Match[str]) -> str | Item:
    decoded: str = json.loads(f'"{match[0]}"')
    is_control = CONTROLS.fullmatch(decoded) and not decoded.isspace()
    return Item(ItemType.POINT, *match.span()) if is_control else decoded
