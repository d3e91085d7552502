"""Texts of users and of files in messages."""

import difflib
from collections.abc import Iterable, Sequence

# Characters that a terminal obeys instead of showing them: control characters (except tabs and line
# feeds) and overrides of the direction of text. Each is mapped to its escape, such as "\\x1b".
_ESCAPES = {
    code: repr(chr(code))[1:-1]
    for codes in (range(32), range(0x7F, 0xA0), range(0x202A, 0x202F), range(0x2066, 0x206A))
    for code in codes
    if chr(code) not in "\t\n"
}


def escape_controls(text: str) -> str:
    """Return a text for a terminal, with escapes such as "\\x1b" for what it would obey."""
    return text.translate(_ESCAPES)


MAX_SHOWN = 80  # characters of a name or value in an error message


def shorten(text: str, length: int = MAX_SHOWN) -> str:
    """Return a text for an error message: escaped if it is not printable, and cut if it is long."""
    text = text if text.isprintable() else repr(text[: length + 1])[1:-1]
    return text if len(text) <= length else f"{text[:length]}…"


def nearest(word: str, names: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the name that is closest to `word`, or an empty string."""
    if len(word) > MAX_SHOWN:  # comparing takes quadratic time
        return ""
    close = difflib.get_close_matches(word, list(names), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def unknown_names(argument: str, unknown: Sequence[str], names: Iterable[str]) -> str:
    """Return the message for unknown names.

    It has the closest valid name for each one, or all valid names if one has no close name.
    """
    names, got = list(names), list(map(shorten, unknown))
    hints = [nearest(name, names) for name in unknown]
    if hints and all(hints):
        corrected = [f"'{name}'.{hint}" for name, hint in zip(got, hints, strict=True)]
        return f"{argument}: unknown name {' Unknown name '.join(corrected)}"
    return f"{argument}: expected some of {', '.join(names)}, got {', '.join(got) or 'none'}."
