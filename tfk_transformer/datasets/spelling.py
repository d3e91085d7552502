"""The syntax of data specs, and the errors for malformed ones."""

import re

from tfk_transformer.text.languages import Languages, is_language

FORMS = "numbers:en-de, addition:2, files:SOURCE,TARGET, folder:DIR:de-en or tfds:NAME:pt-en"


def spec_error(spec: str, problem: str) -> ValueError:
    """Return the error for a malformed spec, with examples of all forms."""
    return ValueError(f"data: expected {FORMS}, got '{spec}': {problem}")


def language_pair(spec: str, text: str) -> tuple[str, str]:
    """Return the two codes of "en-de".

    Raises:
        ValueError: unless `text` is two different codes joined by a hyphen.
    """
    match = re.fullmatch(r"([^-\s]+)-([^-\s]+)", text)
    if not match:
        raise spec_error(spec, f"'{text}' is not two language codes joined by one hyphen.")
    if match[1] == match[2]:
        raise spec_error(spec, f"source and target are both '{match[1]}'; name two languages.")
    return match[1], match[2]


def name_and_languages(spec: str, text: str) -> tuple[str, str, str]:
    """Return NAME and the two codes of "NAME:en-de"; NAME may contain colons."""
    name, colon, languages = text.rpartition(":")
    if not name:
        raise spec_error(
            spec, "the name is missing." if colon else "the languages are missing after a last ':'."
        )
    return name, *language_pair(spec, languages)


def spec_languages(spec: str) -> Languages:
    """Return the languages that a spec names. Names such as "source" are not languages."""
    codes = re.search(r":([^-:\s]+)-([^-:\s]+)$", spec)
    named = codes.groups() if codes else ()
    return Languages(*[code if is_language(code) else None for code in named])
