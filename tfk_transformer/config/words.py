"""Words of a stranger in error messages."""

import difflib
from collections.abc import Iterable, Sequence


def shorten(text: str, length: int = 80) -> str:
    """Return a text for an error message, in which line breaks and the like are escaped: its end is
    cut off if it is long.
    """
    text = text if text.isprintable() else repr(text[: length + 1])[1:-1]
    return text if len(text) <= length else f"{text[:length]}…"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the known word nearest to `word`, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def unknown_names(argument: str, unknown: Sequence[str], known: Iterable[str]) -> str:
    """Return the message for unknown names: the nearest known one of each, or all known ones if one
    of them is near to none.

    Args:
        argument: the argument that has the names.
        unknown: the unknown names.
        known: all known names.
    """
    names = list(known)
    hints = [
        f"'{shorten(name)}'.{nearest(name, names)}" for name in unknown if nearest(name, names)
    ]
    if unknown and len(hints) == len(unknown):
        return f"{argument}: unknown name {' Unknown name '.join(hints)}"
    return (
        f"{argument}: expected some of {', '.join(names)}, got "
        f"{', '.join(map(shorten, unknown)) or 'none'}."
    )
