"""Search settings checked against the rules of a model, alike in every runtime and without the
packages that wrote the rules.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tfk_transformer.config.words import unknown_names

# Of each setting by name, see `config.search_settings.setting_rules`.
Rules: TypeAlias = Mapping[str, Mapping[str, Any]]

_KINDS: dict[str, tuple[Any, str]] = {
    "integer": (int, "int32"),
    "number": ((int, float), "float32"),
}
_LIMITS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.ge, "at least"),
    "exclusiveMinimum": (operator.gt, "above"),
    "maximum": (operator.le, "at most"),
}
_INT32 = 2**31 - 1


def checked_settings(settings: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """Return every search setting, in the order of the rules: the given ones and the defaults of
    the others.

    Args:
        settings: the given settings by name.
        rules: the rules of the model.

    Raises:
        ValueError: for an unknown or impossible setting.
    """
    unknown = sorted(set(settings) - set(rules))
    if unknown:
        raise ValueError(unknown_names("settings", unknown, rules))
    for name, value in settings.items():
        _check_setting(name, value, rules[name])
    chosen = {name: settings.get(name, rule["default"]) for name, rule in rules.items()}
    if chosen["n_best"] > chosen["beam_size"]:
        raise ValueError(
            f"n_best: expected at most beam_size, got n_best {chosen['n_best']} and beam_size "
            f"{chosen['beam_size']}."
        )
    return chosen


def setting_arrays(values: Mapping[str, Any], rules: Rules) -> dict[str, np.ndarray]:
    """Return settings as inputs of exported files: scalar arrays, int32 or float32."""
    return {name: np.array(value, _KINDS[rules[name]["type"]][1]) for name, value in values.items()}


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
        or rule["type"] not in _KINDS
    ):
        return False
    numbers = [rule.get("default"), *(limit for key, limit in rule.items() if key in _LIMITS)]
    return all(_is_number(number, _KINDS[rule["type"]][0]) for number in numbers)


def _is_number(value: Any, kind: Any) -> bool:
    """Return whether a value is a finite number of a kind that int32 or float32 can hold."""
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    return abs(value) <= _INT32 if isinstance(value, int) else math.isfinite(value)


def _check_setting(name: str, value: Any, rule: Mapping[str, Any]) -> None:
    limits = [(*words, rule[key]) for key, words in _LIMITS.items() if key in rule]
    if not _is_number(value, _KINDS[rule["type"]][0]) or not all(
        holds(value, limit) for holds, _, limit in limits
    ):
        kind = "an integer" if rule["type"] == "integer" else "a finite number"
        raise ValueError(
            f"{name}: expected {kind} of "
            f"{' and '.join(f'{words} {limit}' for _, words, limit in limits)}, got {value!r:.80}."
        )
