"""Search settings: their names, defaults, bounds and dtypes, and how values are checked.

Each setting is declared once, as a field of `SearchSettings`. Validation, options of commands,
inputs of exported files and the rules in their metadata follow from the fields. Importing this
module needs only the standard library.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tfk_transformer.config.words import unknown_names

if TYPE_CHECKING:
    import numpy as np

# The rules of each setting by name: keywords of JSON schema, see `setting_rules`.
Rules: TypeAlias = Mapping[str, Mapping[str, Any]]

INT32_MAX = 2**31 - 1  # the largest integer that exported files accept
# The smallest temperature, by which log-probabilities are divided, and the smallest repetition
# penalty, by which logits are divided. From 1e-9 (temperature) and 1e-8 (penalty) on, quotients are
# below -1e9, which stands for excluded tokens: translations are empty. From 1e-38 on, they overflow
# in float32: runtimes differ.
MIN_DIVISOR = 0.001
MAX_BEAMS = 1000  # the hypotheses of one sentence of 256 tokens then take gigabytes

# By the type of a setting in its rules: the Python types of its values, and its dtype in graphs.
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


def _setting(
    default: float,
    description: str,
    bound: float,
    maximum: int = INT32_MAX,
    bound_type: str = "minimum",
    **bounds: float,
) -> Any:
    """Return the field of a setting. Its rules are in the field's metadata.

    Args:
        default: the default; an integer for settings that are integers.
        description: the description of the values.
        bound: the lower bound.
        maximum: the largest value.
        bound_type: the keyword of the lower bound in JSON schema.
        **bounds: further bounds by keyword, see `_BOUNDS`.
    """
    rule = {
        "default": default,
        "description": description,
        "maximum": maximum,
        bound_type: bound,
        "type": "integer" if isinstance(default, int) else "number",
        **bounds,
    }
    return dataclasses.field(default=default, metadata=dict(sorted(rule.items())))


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """Settings of the beam search and of sampling.

    Beam size and length penalty default to the paper's values (section 6.1).

    Raises:
        ValueError: with every value that has the wrong type or is out of bounds.
    """

    beam_size: int = _setting(
        4, "number of open hypotheses for each sentence; 1 is greedy search", 1, MAX_BEAMS
    )
    n_best: int = _setting(
        1, "number of hypotheses returned for each sentence, best first", 1, MAX_BEAMS
    )
    length_penalty: float = _setting(0.6, "alpha of ((5 + length) / 6) ** alpha", 0, 10)
    coverage_penalty: float = _setting(
        0.0, "beta of beta * sum(log(min(total attention to a source token, 1)))", 0, 1000
    )
    min_length: int = _setting(0, "shortest target in tokens, the end token included", 0)
    max_length: int = _setting(256, "longest target in tokens, the end token included", 1)
    max_length_factor: float = _setting(
        2.0, "longest target as a multiple of the number of source tokens, plus ten", 0, 1000
    )
    temperature: float = _setting(
        0.0,
        "0: beam search; above 0: tokens are drawn from softmax(logits / temperature)",
        0,
        1000,
        minimumAboveZero=MIN_DIVISOR,
    )
    top_k: int = _setting(0, "draw from this many most probable tokens; 0: from all", 0)
    top_p: float = _setting(
        1.0,
        "draw from the fewest most probable tokens whose probabilities add up to this",
        0,
        1,
        "exclusiveMinimum",
    )
    seed: int = _setting(0, "seed of the random draws", 0)
    repetition_penalty: float = _setting(
        1.0,
        "above 1: tokens that a hypothesis already contains become less probable",
        MIN_DIVISOR,
        1000,
    )
    no_repeat_ngram_size: int = _setting(
        0, "no sequence of this many tokens occurs twice; 0: no such rule", 0
    )

    def __post_init__(self) -> None:
        values = resolve_settings(self.as_dict(), _RULES)
        for name, dtype in SETTING_DTYPES.items():
            if dtype == "float32":
                object.__setattr__(self, name, float(values[name]))

    def as_dict(self) -> dict[str, int | float]:
        """Return the settings by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def as_arrays(self) -> "dict[str, np.ndarray]":
        """Return the settings as inputs of exported files, see `setting_arrays`."""
        return setting_arrays(self.as_dict(), _RULES)


# Pairs of settings of which the first is at most the second.
_ORDERED = (("n_best", "beam_size"), ("min_length", "max_length"))

_RULES: Rules = {field.name: field.metadata for field in dataclasses.fields(SearchSettings)}

# The dtypes of the settings as inputs of exported files, in their order.
SETTING_DTYPES = {name: _TYPES[rule["type"]][1] for name, rule in _RULES.items()}


def length_penalty(length: Any, alpha: Any) -> Any:
    """Return ((5 + length) / 6) ** alpha, which divides the log-probability of a hypothesis.

    The formula is equation 14 of arXiv:1609.08144.

    Args:
        length: the number of tokens, the end token included: a number or a tensor of floats.
        alpha: the setting `length_penalty`: a number or a tensor of floats.
    """
    return ((5.0 + length) / 6.0) ** alpha


def search_defaults(max_length: int | None = None) -> SearchSettings:
    """Return the default search settings.

    Args:
        max_length: the model's limit in tokens, which the default `max_length` does not exceed.
            None: no limit.
    """
    default = SearchSettings.max_length
    return SearchSettings(max_length=default if max_length is None else min(max_length, default))


def setting_rules(
    max_length: int | None = None, vocab_size: int | None = None
) -> dict[str, dict[str, Any]]:
    """Return the rules of each search setting as a JSON schema.

    The rules of a setting are its default, type, minimum, maximum and description.

    Args:
        max_length: the model's limit in tokens, which is the maximum of all lengths. None: no
            limit.
        vocab_size: number of target tokens, which is the maximum of `beam_size`, `n_best` and
            `top_k`. None: no limit.
    """
    defaults = search_defaults(max_length).as_dict()
    limits = dict.fromkeys(("min_length", "max_length", "no_repeat_ngram_size"), max_length)
    limits |= dict.fromkeys(("beam_size", "n_best", "top_k"), vocab_size)
    return {
        name: {
            **rule,
            "default": defaults[name],
            "maximum": min(rule["maximum"], limits.get(name) or INT32_MAX),
        }
        for name, rule in _RULES.items()
    }


def resolve_settings(settings: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """Return all search settings, in the order of the rules. Missing settings have their defaults.

    Args:
        settings: settings by name.
        rules: the rules of the model.

    Raises:
        ValueError: for unknown or impossible settings.
    """
    unknown = sorted(set(settings) - set(rules))
    if unknown:
        raise ValueError(unknown_names("settings", unknown, rules))
    if problems := list(_problems(settings, rules)):
        raise ValueError(" ".join(problems))
    resolved = {name: settings.get(name, rule["default"]) for name, rule in rules.items()}
    for name, limit in _ORDERED:
        if resolved[name] > resolved[limit]:
            raise ValueError(
                f"{name}: expected at most {limit}, got {name} {resolved[name]} and {limit} "
                f"{resolved[limit]}."
            )
    return resolved


def setting_arrays(values: Mapping[str, Any], rules: Rules) -> "dict[str, np.ndarray]":
    """Return settings as inputs of exported files: scalar arrays, int32 or float32."""
    import numpy as np

    return {name: np.array(value, _TYPES[rules[name]["type"]][1]) for name, value in values.items()}


def are_rules(value: Any) -> bool:
    """Return whether a value from a file has the form of rules."""
    return (
        isinstance(value, dict)
        and {name for pair in _ORDERED for name in pair} <= set(value)
        and all(map(_is_rule, value.values()))
    )


def _is_rule(rule: Any) -> bool:
    if (
        not isinstance(rule, dict)
        or not isinstance(rule.get("type"), str)
        or rule["type"] not in _TYPES
    ):
        return False
    numbers = [rule.get("default"), *(bound for key, bound in rule.items() if key in _BOUNDS)]
    return all(_is_number(number, _TYPES[rule["type"]][0]) for number in numbers)


def _is_number(value: Any, types: Any) -> bool:
    """Return whether a value has one of the types, is finite, and fits in int32 or float32."""
    if not isinstance(value, types) or isinstance(value, bool):
        return False
    return abs(value) <= INT32_MAX if isinstance(value, int) else math.isfinite(value)


def _problems(values: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    for name, value in values.items():
        rule = rules[name]
        bounds = [(*bound, rule[key]) for key, bound in _BOUNDS.items() if key in rule]
        if _is_number(value, _TYPES[rule["type"]][0]) and all(
            holds(value, bound) for holds, _, bound in bounds
        ):
            continue
        expected = "an integer" if rule["type"] == "integer" else "a finite number"
        limits = " and ".join(words.format(bound) for _, words, bound in bounds)
        yield f"{name}: expected {expected} of {limits}, got {value!r:.80}."
