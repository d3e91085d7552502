"""The lines of `tfk-transformer import` about what was read, and about a comparison."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tfk_transformer.apps.cli.model_commands.trim import trimming_lines
from tfk_transformer.config.setting_values import setting_text
from tfk_transformer.config.words import shorten
from tfk_transformer.text.languages import Languages


def origin_lines(
    origin: Mapping[str, Any], languages: Languages, description: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the lines that describe an imported model, and the settings that were taken over."""
    from tfk_transformer.importing.checking.description import describe_line
    from tfk_transformer.training.trimming.trimming import TRIMMING

    directions = zip(("from", "to"), languages, strict=True)
    license_name = f"license: {origin['license'] or 'not stated'}"
    direction = " ".join(f"{word} {language}" for word, language in directions if language)
    facts = (f"{origin['family']}: {origin['name']}", license_name, direction)
    yield ", ".join(filter(None, facts))
    yield describe_line(description)
    if settings := ", ".join(
        f"{name}={setting_text(value)}" for name, value in origin["search"].items()
    ):
        yield f"search settings of the folder, with which the bundle translates: {settings}"
    yield from (f"note: {note}" for note in origin["notes"])
    if TRIMMING in origin:
        yield from trimming_lines(origin[TRIMMING])


def comparison_lines(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a result of `compare_with_library`."""
    quoted = [
        json.dumps(shorten(comparison[name]), ensure_ascii=False)
        for name in ("source", "translation")
    ]
    yield f"example from the {comparison['source_from']}: {' → '.join(quoted)}"
    if comparison["agrees"] is None:
        library = comparison["library"] or "a library"
        yield f"not compared with {library}: {comparison['reason']}"
        return
    texts = comparison["texts"]
    largest = comparison["largest_score_difference"]
    scores = "" if largest is None else f", scores at most {largest:.1g} apart"
    yield (
        f"compared with {comparison['library']}: the same tokens for "
        f"{comparison['equal_tokens']} of {texts} texts, the same translations for "
        f"{comparison['equal_translations']} of {texts}{scores}"
    )
    for name, value in comparison.get("first_difference", {}).items():
        yield f"  {name.replace('_', ' ')}: {json.dumps(value, ensure_ascii=False)}"
