"""Validate search settings against a model's rules, without the packages that made the rules."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tfk_transformer.config.words import unknown_names

# The rules of each setting by name, see `config.search_settings.setting_rules`.
Rules: TypeAlias = Mapping[str, Mapping[str, Any]]

_TYPES: dict[str, tuple[Any, str]] = {
    "integer": (int, "int32"),
    "number": ((int, float), "float32"),
}
_LIMITS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.ge, "at least"),
    "exclusiveMinimum": (operator.gt, "above"),
    "maximum": (operator.le, "at most"),
}
_INT32 = 2**31 - 1


def resolve_settings(settings: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """Return all search settings, in the order of the rules. Missing settings have their defaults.

    Args:
        settings: settings by name.
        rules: the rules of the model.

    Raises:
        ValueError: for an unknown or impossible setting.
    """
    unknown = sorted(set(settings) - set(rules))
    if unknown:
        raise ValueError(unknown_names("settings", unknown, rules))
    for name, value in settings.items():
        _check_setting(name, value, rules[name])
    resolved = {name: settings.get(name, rule["default"]) for name, rule in rules.items()}
    if resolved["n_best"] > resolved["beam_size"]:
        raise ValueError(
            f"n_best: expected at most beam_size, got n_best {resolved['n_best']} and beam_size "
            f"{resolved['beam_size']}."
        )
    return resolved


def setting_arrays(values: Mapping[str, Any], rules: Rules) -> dict[str, np.ndarray]:
    """Return settings as inputs of exported files: scalar arrays, int32 or float32."""
    return {name: np.array(value, _TYPES[rules[name]["type"]][1]) for name, value in values.items()}


def are_rules(value: Any) -> bool:
    """Return whether a value from a file has the form of rules."""
    return (
        isinstance(value, dict)
        and {"beam_size", "n_best"} <= set(value)
        and all(map(_is_rule, value.values()))
    )


def _is_rule(rule: Any) -> bool:
    if (
        not isinstance(rule, dict)
        or not isinstance(rule.get("type"), str)
        or rule["type"] not in _TYPES
    ):
        return False
    numbers = [rule.get("default"), *(limit for key, limit in rule.items() if key in _LIMITS)]
    return all(_is_number(number, _TYPES[rule["type"]][0]) for number in numbers)


def _is_number(value: Any, types: Any) -> bool:
    """Return whether a value has one of the types, is finite, and fits in int32 or float32."""
    if not isinstance(value, types) or isinstance(value, bool):
        return False
    return abs(value) <= _INT32 if isinstance(value, int) else math.isfinite(value)


def _check_setting(name: str, value: Any, rule: Mapping[str, Any]) -> None:
    limits = [(*words, rule[key]) for key, words in _LIMITS.items() if key in rule]
    if not _is_number(value, _TYPES[rule["type"]][0]) or not all(
        holds(value, limit) for holds, _, limit in limits
    ):
        expected = "an integer" if rule["type"] == "integer" else "a finite number"
        raise ValueError(
            f"{name}: expected {expected} of "
            f"{' and '.join(f'{words} {limit}' for _, words, limit in limits)}, got {value!r:.80}."
        )
