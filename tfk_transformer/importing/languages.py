"""The two languages between which a multilingual model translates."""

import difflib
from collections.abc import Collection

from tfk_transformer.config.words import shorten
from tfk_transformer.text.languages import Languages

__all__ = ["Languages", "check_languages", "check_no_languages"]

MAX_LISTED_LANGUAGES = 10  # languages that an error message lists


def check_languages(
    languages: Languages,
    available: Collection[str],
    family: str,
    required: Collection[str] = ("source", "target"),
) -> None:
    """Refuse languages that a folder does not have.

    Args:
        languages: the languages.
        available: the languages of the folder.
        family: the name of the family.
        required: the sides whose language may not be None. Defaults to both.

    Raises:
        ValueError: naming each language that is missing or unknown, with the nearest or some of the
            available ones.
    """
    problems = []
    for name, language in languages._asdict().items():
        is_passed = language is not None or name in required
        if is_passed and language not in available:
            got = "nothing" if language is None else f"'{shorten(language)}'"
            problems.append(
                f"{name}_language: expected one of the {len(available)} languages of this folder "
                f"of {family} ({_suggestions(language, available)}), got {got}"
            )
    if problems:
        raise ValueError("; ".join(problems) + ".")


def check_no_languages(languages: Languages, family: str) -> None:
    """Refuse languages for a family whose models translate between two languages only.

    Raises:
        ValueError: naming every language that was passed.
    """
    if passed := [
        f"{name}_language {language!r}"
        for name, language in languages._asdict().items()
        if language is not None
    ]:
        raise ValueError(
            f"languages: expected none for a folder of {family}, whose models have one source "
            f"language, got {', '.join(passed)}; "
            "a model for several target languages expects the language token in the text."
        )


def _suggestions(language: str | None, available: Collection[str]) -> str:
    """Return the languages nearest to a wrong one, or else the first ones."""
    if language and (
        close := difflib.get_close_matches(language, list(available), n=MAX_LISTED_LANGUAGES // 2)
    ):
        return f"the nearest: {', '.join(close)}"
    shown = list(available)[:MAX_LISTED_LANGUAGES]
    return ", ".join([*shown, "…"] if len(shown) < len(available) else shown)
