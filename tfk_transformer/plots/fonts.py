"""Select installed fonts that have the characters of a figure."""

import functools
import unicodedata
import warnings
from collections.abc import Iterable

from matplotlib import font_manager, rcParams
from matplotlib.textpath import TextToPath

from tfk_transformer.plots.figures import FONT_SIZE

# Symbol fonts, and a font whose glyphs show the name of the script.
NO_TEXT = ("Last Resort", "cm", "STIXSize", "STIXNonUnicode")


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Return the names of the fonts that together have the characters of texts.

    The font of matplotlib's settings comes first. For characters that it lacks, installed fonts
    follow, the font with most of these characters first. A warning names the characters that no
    installed font has.

    Args:
        texts: the labels of a figure.
    """
    configured = font_manager.findfont(font_manager.FontProperties(family=rcParams["font.family"]))
    fonts = [str(font_manager.get_font(configured).family_name)]
    visible = {
        ord(c)
        for c in set().union(*map(set, texts))
        if not c.isspace() and unicodedata.category(c) not in ("Cc", "Cf", "Mn")
    }
    missing = visible - _characters(font_manager.findfont(fonts[0]))
    while missing:
        installed = _installed()
        name = max(installed, key=lambda name: len(missing & installed[name]))
        if not missing & installed[name]:
            examples = "".join(map(chr, sorted(missing)[:8]))
            warnings.warn(
                "fonts: expected an installed font with the characters "
                f"'{examples}'{' and others' if len(missing) > 8 else ''}, found none, so the "
                "picture shows boxes; install one, such as a Noto font of the script (Debian: "
                "fonts-noto-core, fonts-noto-cjk), or write .html.",
                stacklevel=2,
            )
            break
        fonts.append(name)
        missing -= installed[name]
    return fonts


def width_of(texts: Iterable[str], fonts: list[str]) -> float:
    """Return the width of the longest of some labels, in inches."""
    properties = font_manager.FontProperties(family=fonts, size=FONT_SIZE)
    # Wide characters count twice. Matplotlib measures only the characters of the first font.
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


@functools.cache
def _characters(path: str) -> frozenset[int]:
    """Return the characters with glyphs in a font file; empty if the file does not open."""
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
