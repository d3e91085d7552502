"""The rules of a setting, which are keywords of JSON schema.

They allow an "integer" or "number" within bounds, a "boolean", or an "enum": strings, False, True.
"""

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Rule: TypeAlias = Mapping[str, Any]

INT32_MAX = 2**31 - 1  # the largest integer that exported files accept
# By the type of a number in its rules: the Python types of its values, and its dtype in graphs.
_TYPES: dict[str, tuple[Any, str]] = {
    "integer": (int, "int32"),
    "number": ((int, float), "float32"),
}
# By keyword: whether a value is within the bound, and the bound in messages.
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.ge, "at least {}"),
    "exclusiveMinimum": (operator.gt, "above {}"),
    "maximum": (operator.le, "at most {}"),
    "minimumAboveZero": (lambda value, bound: value <= 0 or value >= bound, "at least {} if not 0"),
}


def setting_dtype(rule: Rule) -> str:
    """Return the dtype of a setting in graphs."""
    return "int32" if choices_of(rule) else _TYPES[rule["type"]][1]


def choices_of(rule: Rule) -> Sequence[bool | str]:
    """Return the values of a setting that is a choice; empty for numbers."""
    values: Sequence[bool | str] = rule.get("enum", ())
    return (False, True) if rule.get("type") == "boolean" else values


def choice_index(value: Any, values: Sequence[Any]) -> int | None:
    """Return the index of a value among values; the numbers 0 and 1 are not False and True."""
    if not isinstance(value, bool | str):
        return None
    return next((index for index, item in enumerate(values) if item == value), None)


def setting_text(value: float | str) -> str:
    """Return a value of a setting as commands take it: JSON, but words without quotation marks."""
    return value if isinstance(value, str) else json.dumps(value)


def is_rule(rule: Any) -> bool:
    """Return whether a value from a file has the form of a rule."""
    if not isinstance(rule, dict):
        return False
    if "enum" in rule or rule.get("type") == "boolean":
        values = choices_of(rule)
        if not isinstance(values, list | tuple):
            return False
        return choice_index(rule.get("default"), values) is not None
    if not isinstance(rule.get("type"), str) or rule["type"] not in _TYPES:
        return False
    numbers = [rule.get("default"), *(bound for key, bound in rule.items() if key in _BOUNDS)]
    return all(_is_number(number, _TYPES[rule["type"]][0]) for number in numbers)


def is_allowed(value: Any, rule: Rule) -> bool:
    """Return whether a setting can have a value."""
    if values := choices_of(rule):
        return choice_index(value, values) is not None
    bounds = [(_BOUNDS[key][0], bound) for key, bound in rule.items() if key in _BOUNDS]
    return _is_number(value, _TYPES[rule["type"]][0]) and all(
        holds(value, bound) for holds, bound in bounds
    )


def allowed_values(rule: Rule) -> str:
    """Return the values that a setting can have, for messages."""
    if values := choices_of(rule):
        return f"one of {', '.join(map(setting_text, values))}"
    number = "an integer" if rule["type"] == "integer" else "a finite number"
    bounds = [words.format(rule[key]) for key, (_, words) in _BOUNDS.items() if key in rule]
    return f"{number} of {' and '.join(bounds)}"


def _is_number(value: Any, types: Any) -> bool:
    """Return whether a value has one of the types, is finite, and fits in int32 or float32."""
    if not isinstance(value, types) or isinstance(value, bool):
        return False
    return abs(value) <= INT32_MAX if isinstance(value, int) else math.isfinite(value)
