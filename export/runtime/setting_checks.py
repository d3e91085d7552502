"""Search settings checked against the rules in an ONNX file, without the packages that wrote them."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {"integer": (int, "int32"), "number": ((int, float), "float32")}
_LIMITS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.ge, "at least"),
    "exclusiveMinimum": (operator.gt, "above"),
    "maximum": (operator.le, "at most"),
}


def scalar_inputs(settings: Mapping[str, Any], rules: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return search settings as inputs of an ONNX graph, which has defaults for those that are not given.

    Args:
        settings: the settings by name.
        rules: the rules in the file by name, see `config.search_settings.setting_rules`.

    Raises:
        ValueError: for an unknown or impossible setting.
    """
    unknown = sorted(set(settings) - set(rules))
    if unknown:
        raise ValueError(f"settings: expected some of {', '.join(rules)}, got {', '.join(unknown)}.")
    for name, value in settings.items():
        _check_setting(name, value, rules[name])
    chosen = {name: settings.get(name, rule["default"]) for name, rule in rules.items()}
    if chosen["n_best"] > chosen["beam_size"]:
        raise ValueError(f"n_best: expected at most beam_size, got n_best {chosen['n_best']} and beam_size {chosen['beam_size']}.")
    return {name: np.array(value, _KINDS[rules[name]["type"]][1]) for name, value in settings.items()}


def _check_setting(name: str, value: Any, rule: Mapping[str, Any]) -> None:
    limits = [(*_LIMITS[key], limit) for key, limit in rule.items() if key in _LIMITS]
    right_kind = isinstance(value, _KINDS[rule["type"]][0]) and not isinstance(value, bool)
    if not right_kind or not all(holds(value, limit) for holds, _, limit in limits):
        allowed = " and ".join(f"{words} {limit}" for _, words, limit in limits)
        raise ValueError(f"{name}: expected a{'n' if rule['type'] == 'integer' else ''} {rule['type']} of {allowed}, got {value!r}.")
