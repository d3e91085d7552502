"""Readers of the files of translators: translation memories (TMX) and gettext files (PO)."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES, one_line_error
from tfk_transformer.datasets.pairs import Skip
from tfk_transformer.datasets.rows import Columns, Reader, Row
from tfk_transformer.formats.compression import open_decompressed
from tfk_transformer.runtime_environment import require

MARKUP = {"bpt", "ept", "it", "ph", "ut"}  # elements whose content is code of the document
BLOCK_BYTES = 2**16
MAX_TEXT = 2**20  # characters of a text


def read_tmx(path: Path, columns: Columns | None) -> Iterator[Row]:
    """Yield the texts of each unit of a translation memory; `en` is also found as `en-US`."""
    languages = columns or _two_languages(path)
    codes = [language.lower().replace("_", "-") for language in languages]
    for number, unit in enumerate(_units(path), start=1):
        # The language itself is preferred to its variants.
        order = sorted(unit, key=len)
        present = [next((c for c in order if f"{c}-".startswith(f"{code}-")), "") for code in codes]
        missing = Skip(f"without {' and '.join(languages)}")
        yield number, [unit[code] for code in present] if all(present) else missing


def _two_languages(path: Path) -> Columns:
    """Return the languages of a file that has two, in the order of its first unit."""
    names = list(dict.fromkeys(code.partition("-")[0] for unit in _units(path) for code in unit))
    if len(names) != 2:
        raise ValueError(
            f"data: expected two languages in {path}, got {', '.join(names[:20]) or 'none'}; name "
            "them, as in ,source=en,target=de."
        )
    return names[0], names[1]


def _units(path: Path) -> Iterator[dict[str, str]]:
    """Yield the texts of each unit by language, and hold only one block of the file in memory."""
    units: list[dict[str, str]] = []
    texts: list[str] = []  # of a segment
    num_characters = 0  # of these
    language = ""
    depth = {"seg": 0, "code": 0}

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal language
        depth["seg"] += name == "seg"
        depth["code"] += name in MARKUP
        if name == "tu":
            units.append({})
        elif name == "tuv":
            language = attributes.get("xml:lang") or attributes.get("lang", "")

    def add(text: str) -> None:
        nonlocal num_characters
        if depth["seg"] and not depth["code"]:
            texts.append(text)
            num_characters += len(text)
            if num_characters > MAX_TEXT:
                raise ValueError(f"a text of more than {MAX_TEXT:,} characters")

    def end(name: str) -> None:
        nonlocal num_characters
        depth["seg"] -= name == "seg"
        depth["code"] -= name in MARKUP
        if name == "seg" and units:
            text = re.sub(r"[ \t\r\n]+", " ", "".join(texts)).strip(" ")
            units[-1].setdefault(language.lower().replace("_", "-"), text)
            texts.clear()
            num_characters = 0

    def refuse(*declaration: object) -> None:
        raise ValueError("a declaration of an entity")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = add, refuse
    with open_decompressed(path) as file:
        for block in itertools.chain(iter(lambda: file.read(BLOCK_BYTES), b""), [b""]):
            with one_line_error(f"{path}: expected a whole translation memory (TMX), got ", "."):
                parser.Parse(block, not block)
            yield from units[:-1]  # the last one may not be complete
            del units[:-1]
    yield from units


def read_po(path: Path, columns: Columns | None) -> Iterator[Row]:
    """Yield the messages of a gettext file and their translations, by number of line."""
    polib = require("polib")
    with open_decompressed(path) as file:
        content = file.read(MAX_VOCABULARY_BYTES + 1)
    with one_line_error(f"{path}: expected a gettext file (PO), got ", "."):
        if len(content) > MAX_VOCABULARY_BYTES:
            raise ValueError(f"more than {MAX_VOCABULARY_BYTES:,} bytes")
        charset = re.search(rb"charset=([\w-]+)", content)
        entries = polib.pofile(content.decode(charset[1].decode() if charset else "utf-8"))
    for entry in entries:
        plurals = [text for _, text in sorted(entry.msgstr_plural.items())] or [entry.msgstr]
        if entry.obsolete or entry.fuzzy:
            yield entry.linenum, Skip(f"marked as {'obsolete' if entry.obsolete else 'fuzzy'}")
        elif not any(plurals):
            yield entry.linenum, Skip("without a translation")
        else:
            yield entry.linenum, {"msgid": entry.msgid, "msgstr": plurals[0]}
            if entry.msgid_plural:
                yield entry.linenum, {"msgid": entry.msgid_plural, "msgstr": plurals[-1]}


TRANSLATION_FILES: dict[str, Reader] = {"tmx": read_tmx, "po": read_po}
