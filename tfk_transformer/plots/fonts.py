"""Fonts that have the characters of a picture, from those that are installed."""

import functools
import unicodedata
import warnings
from collections.abc import Iterable

from matplotlib import font_manager, rcParams
from matplotlib.textpath import TextToPath

from tfk_transformer.plots.figures import FONT_SIZE

# Fonts of single symbols, and one whose glyphs are drawings of the script's name.
NO_TEXT = ("Last Resort", "cm", "STIXSize", "STIXNonUnicode")


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Return the names of the fonts that together have the characters of texts.

    The fonts of matplotlib's settings come first. For characters that they lack, installed fonts
    follow, the one with most of these characters first. A warning names the characters that no
    installed font has.

    Args:
        texts: the labels of a picture.
    """
    chosen = _configured()
    missing = _visible(texts) - _characters_of(chosen)
    while missing:
        name = max(_installed(), key=lambda name: len(missing & _installed()[name]))
        if not missing & _installed()[name]:
            warnings.warn(_cure(missing), stacklevel=2)
            break
        chosen.append(name)
        missing -= _installed()[name]
    return chosen


def width_of(texts: Iterable[str], fonts: list[str]) -> float:
    """Return the width of the longest of some labels, in inches."""
    properties = font_manager.FontProperties(family=fonts, size=FONT_SIZE)
    # Wide characters count twice: the measure below knows those of the first font only.
    longest = max(
        texts,
        key=lambda text: sum(1 + (unicodedata.east_asian_width(c) in "FW") for c in text),
        default="",
    )
    wide = sum(unicodedata.east_asian_width(c) in "FW" for c in longest)
    narrow = "".join(c for c in longest if unicodedata.east_asian_width(c) not in "FW")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        points = (
            TextToPath().get_text_width_height_descent(narrow, properties, ismath=False)[0]
            if narrow
            else 0.0
        )
    return float(1.1 * points + wide * FONT_SIZE) / 72  # the next font's characters may be wider


def _visible(texts: Iterable[str]) -> set[int]:
    """Return the characters that have a shape of their own."""
    characters = set().union(*map(set, texts))
    return {
        ord(c)
        for c in characters
        if not c.isspace() and unicodedata.category(c) not in ("Cc", "Cf", "Mn")
    }


def _configured() -> list[str]:
    """Return the name of the font that matplotlib would draw with."""
    path = font_manager.findfont(font_manager.FontProperties(family=rcParams["font.family"]))
    return [str(font_manager.get_font(path).family_name)]


def _characters_of(names: Iterable[str]) -> set[int]:
    return set().union(*(_characters(font_manager.findfont(name)) for name in names))


@functools.cache
def _characters(path: str) -> frozenset[int]:
    """Return the characters that a font file has glyphs for; none for a file that does not open."""
    try:
        return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


def _installed() -> dict[str, frozenset[int]]:
    """Return the upright fonts of normal weight for text, with their characters."""
    entries = font_manager.fontManager.ttflist
    upright = {
        e.name: e.fname
        for e in entries
        if e.style == "normal" and e.weight in (400, "normal", "regular")
    }
    return {
        name: _characters(path)
        for name, path in sorted(upright.items())
        if not name.startswith(NO_TEXT)
    }


def _cure(missing: set[int]) -> str:
    named = "".join(map(chr, sorted(missing)[:8]))
    return (
        "fonts: expected an installed font with the characters "
        f"'{named}'{' and others' if len(missing) > 8 else ''}, found none, so the "
        "picture shows boxes; install one, such as a Noto font of the script (Debian: "
        "fonts-noto-core, fonts-noto-cjk), or write .html."
    )
