"""Figures that notebooks show inline, their colors, and fonts that have their characters."""

import functools
import io
import unicodedata
import warnings
from collections.abc import Iterable
from typing import Any

from matplotlib import font_manager, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextToPath

# Both are distinguishable with any common type of color blindness: viridis varies in lightness, and
# the palette is Okabe and Ito's.
COLORMAP = "viridis"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
FONT_SIZE = 8  # points, of labels
# Symbol fonts, and a font whose glyphs show the name of the script.
NO_TEXT = ("Last Resort", "cm", "STIXSize", "STIXNonUnicode")


class Picture(Figure):
    """A matplotlib figure that notebooks show inline, even if they do not import pyplot."""

    def draw(self, renderer: Any) -> None:
        """Draw the figure without warnings about missing glyphs: `fonts_for` warns first."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def axes_or_new(axes: Axes | None, width: float, height: float) -> Axes:
    """Return `axes`, or by default the axes of a new figure of this size in inches."""
    figsize = (width, height)
    return Picture(figsize=figsize, layout="constrained").subplots() if axes is None else axes


def figure_of(axes: Axes) -> Figure:
    """Return the figure of axes, which may be in a subfigure."""
    figure = axes.figure
    return figure if isinstance(figure, Figure) else figure.figure


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Return the names of the installed fonts that together have the characters of texts.

    The font of matplotlib's settings comes first, then fonts with most of the characters it lacks.
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
    # Wide characters count twice. Matplotlib measures only the characters of the first font.
    longest = max(texts, key=lambda text: len(text) + sum(map(_is_wide, text)), default="")
    wide = sum(map(_is_wide, longest))
    narrow = "".join(c for c in longest if not _is_wide(c))
    points = 0.0
    if narrow:
        properties = font_manager.FontProperties(family=fonts, size=FONT_SIZE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            points, *_ = TextToPath().get_text_width_height_descent(narrow, properties, False)
    return float(1.1 * points + wide * FONT_SIZE) / 72  # the next font's characters may be wider


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "FW"


@functools.cache
def _characters(path: str) -> frozenset[int]:
    """Return the characters with glyphs in a font file; none if it does not open."""
    try:
        return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


def _installed() -> dict[str, frozenset[int]]:
    """Return the upright fonts of normal weight that have text, with their characters."""
    upright = {
        font.name: font.fname
        for font in font_manager.fontManager.ttflist
        if font.style == "normal" and font.weight in (400, "normal", "regular")
    }
    return {
        name: _characters(path)
        for name, path in sorted(upright.items())
        if not name.startswith(NO_TEXT)
    }
