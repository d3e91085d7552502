"""The sources for files of translators: `tmx:` (translation memories) and `po:` (gettext)."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES, one_line_error
from tfk_transformer.datasets.rows import Columns, Skip
from tfk_transformer.datasets.tables import MAX_LINE_BYTES, Row
from tfk_transformer.formats.compression import open_decompressed
from tfk_transformer.runtime_environment import require

MARKUP = {"bpt", "ept", "it", "ph", "ut"}  # elements whose content is code of the document
BLOCK_BYTES = 2**16


def read_tmx(path: Path, columns: Columns | None) -> Iterator[Row]:
    """Yield the texts of each unit of a translation memory, by language.

    A language such as `en` is also found as `en-US`.
    """
    languages = columns or _two_languages(path)
    for number, unit in enumerate(_units(path), start=1):
        texts = [_text_in(unit, language) for language in languages]
        missing = Skip(f"without a text in {' and in '.join(languages)}")
        row = dict(zip(languages, texts, strict=True))
        yield number, missing if None in texts else row


def _text_in(unit: dict[str, str], language: str) -> str | None:
    """Return the text in a language, or else in its first variant."""
    variants = (text for code, text in unit.items() if code.startswith(f"{_code(language)}-"))
    return unit.get(_code(language), next(variants, None))


def _code(language: str) -> str:
    return language.lower().replace("_", "-")


def _two_languages(path: Path) -> Columns:
    """Return the languages of a file with two, the first of each unit as the source."""
    languages = list(
        dict.fromkeys(code.partition("-")[0] for unit in _units(path) for code in unit)
    )
    if len(languages) != 2:
        example = ",target=".join((*languages, "en", "de")[:2])
        raise ValueError(
            f"data: expected two languages in {path}, got {', '.join(languages[:20]) or 'none'}; "
            f"name two, as in tmx:{path},source={example}."
        )
    return languages[0], languages[1]


def _units(path: Path) -> Iterator[dict[str, str]]:
    """Yield the texts of each unit by language, and hold only one block of the file in memory."""
    parser = expat.ParserCreate()
    memory = _Memory()
    parser.StartElementHandler = memory.start
    parser.EndElementHandler = memory.end
    parser.CharacterDataHandler = memory.add
    parser.EntityDeclHandler = _refuse_entities
    with open_decompressed(path) as file:
        ends = False
        while not ends:
            block = file.read(BLOCK_BYTES)
            ends = not block
            with one_line_error(f"{path}: expected a translation memory (TMX), got ", "."):
                parser.Parse(block, ends)
            yield from memory.units
            memory.units.clear()


def _refuse_entities(*declaration: object) -> None:
    raise ValueError("a declaration of an entity, which TMX does not need")


class _Memory:
    """The units of a translation memory that were read and not yet used."""

    def __init__(self) -> None:
        self.units: list[dict[str, str]] = []
        self._unit: dict[str, str] = {}
        self._language = ""
        self._text: list[str] | None = None  # within a segment
        self._size = 0  # of the unit
        self._markup = 0  # the depth of elements with code

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "tu":
            self._unit, self._size = {}, 0
        elif name == "tuv":
            self._language = _code(attributes.get("xml:lang") or attributes.get("lang", ""))
        elif name == "seg":
            self._text = []
        self._markup += name in MARKUP

    def add(self, text: str) -> None:
        if self._text is not None and not self._markup:
            self._text.append(text)
            self._size += len(text)
            if self._size > MAX_LINE_BYTES:
                raise ValueError(f"a unit of more than {MAX_LINE_BYTES:,} characters")

    def end(self, name: str) -> None:
        self._markup -= name in MARKUP
        if name == "seg" and self._text is not None:
            text = re.sub(r"[ \t\r\n]+", " ", "".join(self._text)).strip(" ")
            self._unit.setdefault(self._language, text)
            self._text = None
        elif name == "tu":
            self.units.append(self._unit)


def read_po(path: Path, columns: Columns | None) -> Iterator[Row]:
    """Yield the messages of a gettext file and their translations, by number of line."""
    polib = require("polib")
    with open_decompressed(path) as file:
        content = file.read(MAX_VOCABULARY_BYTES + 1)
    with one_line_error(f"{path}: expected a gettext file (PO), got ", "."):
        if len(content) > MAX_VOCABULARY_BYTES:
            raise ValueError(f"more than {MAX_VOCABULARY_BYTES:,} bytes")
        charset = re.search(rb"charset=([\w-]+)", content)
        text = content.decode(charset[1].decode() if charset else "utf-8")
        entries = polib.pofile(text.removeprefix("\ufeff"))
    for entry in entries:
        if entry.obsolete or entry.fuzzy or not entry.translated():
            marks = "marked as obsolete" if entry.obsolete else "marked as fuzzy"
            is_marked = entry.obsolete or entry.fuzzy
            yield entry.linenum, Skip(marks if is_marked else "without a translation")
            continue
        plurals = [text for _, text in sorted(entry.msgstr_plural.items())] or [entry.msgstr]
        messages = {entry.msgid: plurals[0], (entry.msgid_plural or entry.msgid): plurals[-1]}
        for message, translation in messages.items():
            yield entry.linenum, {"msgid": message, "msgstr": translation}
