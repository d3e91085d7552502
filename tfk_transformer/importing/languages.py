"""The two languages between which a multilingual model translates."""

import difflib
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tfk_transformer.config.words import shorten

MAX_LISTED_LANGUAGES = 10  # languages that an error message lists


class Languages(NamedTuple):
    """The languages that a user chose, by the family's codes."""

    source: str | None = None
    target: str | None = None


def check_languages(languages: Languages, known: Collection[str], family: str) -> None:
    """Refuse languages that a folder does not have.

    Raises:
        ValueError: naming both languages, if both are missing or unknown, with the nearest or some
            of those that the folder has.
    """
    if problems := list(_problems(languages, known, family)):
        raise ValueError("; ".join(problems) + ".")


def check_no_languages(languages: Languages, family: str) -> None:
    """Refuse languages for a family whose models translate between two languages only.

    Raises:
        ValueError: naming every language that was given.
    """
    if given := [
        f"{name}_language {language!r}"
        for name, language in languages._asdict().items()
        if language is not None
    ]:
        raise ValueError(
            f"languages: expected none for a folder of {family}, whose models have one source "
            f"language, got {', '.join(given)}; "
            "a model for several target languages expects the language token in the text."
        )


def _problems(languages: Languages, known: Collection[str], family: str) -> Iterator[str]:
    for name, language in languages._asdict().items():
        if language not in known:
            got = "nothing" if language is None else f"'{shorten(language)}'"
            there = f"{len(known)} languages of this folder of {family} ({_some(language, known)})"
            yield f"{name}_language: expected one of the {there}, got {got}"


def _some(language: str | None, known: Collection[str]) -> str:
    """Return the languages nearest to a wrong one, or else the first ones."""
    if language and (
        close := difflib.get_close_matches(language, list(known), n=MAX_LISTED_LANGUAGES // 2)
    ):
        return f"the nearest: {', '.join(close)}"
    shown = list(known)[:MAX_LISTED_LANGUAGES]
    return ", ".join([*shown, "…"] if len(shown) < len(known) else shown)
