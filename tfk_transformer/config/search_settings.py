"""Search settings, each of which is declared once, as a field of `SearchSettings`.

Validation, options of commands, inputs of exported files and the rules in their metadata follow
from the fields. Importing this module needs only the standard library.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from tfk_transformer.config.setting_values import (
    INT32_MAX,
    allowed_values,
    choice_index,
    choices_of,
    is_allowed,
    is_rule,
    setting_dtype,
)
from tfk_transformer.config.words import unknown_names

if TYPE_CHECKING:
    import numpy as np

# The rules of each setting by name: keywords of JSON schema, see `setting_rules`.
Rules: TypeAlias = Mapping[str, Mapping[str, Any]]

# The smallest temperature, by which log-probabilities are divided, and the smallest repetition
# penalty, by which logits are divided. From 1e-9 (temperature) and 1e-8 (penalty) on, quotients are
# below -1e9, which stands for excluded tokens: translations are empty. From 1e-38 on, they overflow
# in float32: runtimes differ.
MIN_DIVISOR = 0.001
# With 1000 hypotheses, one sentence of 256 tokens takes gigabytes.
_BEAMS = {"minimum": 1, "maximum": 1000}

# By the value of `length_penalty_form`: the numbers a and b of ((a + length) / b) ** alpha.
PENALTY_FORMS = {"gnmt": (5.0, 6.0), "length": (0.0, 1.0), "length_with_start": (1.0, 1.0)}


def _setting(default: Any, description: str, **rule: Any) -> Any:
    """Return the field of a setting, with its rules as metadata.

    `rule` has the bounds of a number, see `setting_values`, or the "enum" of a choice. The type of
    numbers and switches is the type of their default.
    """
    if "enum" not in rule:
        rule["type"] = {bool: "boolean", int: "integer", float: "number"}[type(default)]
        if rule["type"] != "boolean":
            rule.setdefault("maximum", INT32_MAX)
    rule |= {"default": default, "description": description}
    return dataclasses.field(default=default, metadata=dict(sorted(rule.items())))


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """Settings of the beam search and of sampling.

    Beam size and length penalty default to the paper's values (section 6.1).

    Raises:
        ValueError: with every value that has the wrong type or is out of bounds.
    """

    beam_size: int = _setting(
        4, "number of open hypotheses for each sentence; 1 is greedy search", **_BEAMS
    )
    n_best: int = _setting(
        1, "number of hypotheses returned for each sentence, best first", **_BEAMS
    )
    length_penalty: float = _setting(
        0.6,
        "alpha of ((5 + length) / 6) ** alpha, or of another length_penalty_form",
        minimum=0,
        maximum=10,
    )
    coverage_penalty: float = _setting(
        0.0,
        "beta of beta * sum(log(min(total attention to a source token, 1)))",
        minimum=0,
        maximum=1000,
    )
    min_length: int = _setting(0, "shortest target in tokens, the end token included", minimum=0)
    max_length: int = _setting(256, "longest target in tokens, the end token included", minimum=1)
    max_length_factor: float = _setting(
        2.0,
        "longest target as a multiple of the number of source tokens, plus ten",
        minimum=0,
        maximum=1000,
    )
    temperature: float = _setting(
        0.0,
        "0: beam search; above 0: tokens are drawn from softmax(logits / temperature)",
        minimum=0,
        minimumAboveZero=MIN_DIVISOR,
        maximum=1000,
    )
    top_k: int = _setting(0, "draw from this many most probable tokens; 0: from all", minimum=0)
    top_p: float = _setting(
        1.0,
        "draw from the fewest most probable tokens whose probabilities add up to this",
        exclusiveMinimum=0,
        maximum=1,
    )
    seed: int = _setting(0, "seed of the random draws", minimum=0)
    repetition_penalty: float = _setting(
        1.0,
        "above 1: tokens that a hypothesis already contains become less probable",
        minimum=MIN_DIVISOR,
        maximum=1000,
    )
    no_repeat_ngram_size: int = _setting(
        0, "no sequence of this many tokens occurs twice; 0: no such rule", minimum=0
    )
    length_penalty_form: str = _setting(
        "gnmt",
        "what divides log-probabilities: ((5 + length) / 6) ** alpha, length ** alpha, or "
        "(1 + length) ** alpha, whose length includes the start token",
        enum=list(PENALTY_FORMS),
    )
    early_stopping: bool | str = _setting(
        True,
        "true: the search ends at beam_size complete hypotheses; false: it goes on while a longer "
        "one would be better with the length penalty so far; never: with the penalty of the "
        "maximum length",
        enum=[False, True, "never"],
    )
    forced_eos: bool = _setting(
        False, "at the maximum length, only the end token may follow, for free"
    )
    renormalize_logits: bool = _setting(
        False, "the probabilities of the tokens that other settings allow add up to 1"
    )

    def __post_init__(self) -> None:
        values = resolve_settings(self.as_dict(), _RULES)
        for name, dtype in SETTING_DTYPES.items():
            if dtype == "float32":
                object.__setattr__(self, name, float(values[name]))

    def as_dict(self) -> dict[str, Any]:
        """Return the settings by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def as_numbers(self) -> dict[str, int | float]:
        """Return the settings as numbers, see `setting_numbers`."""
        return setting_numbers(self.as_dict(), _RULES)

    def as_arrays(self) -> "dict[str, np.ndarray]":
        """Return the settings as inputs of exported files, see `setting_arrays`."""
        return setting_arrays(self.as_dict(), _RULES)


class SearchOptions(TypedDict, total=False):
    """The fields of `SearchSettings` as keyword arguments, written out for editors."""

    beam_size: int
    n_best: int
    length_penalty: float
    coverage_penalty: float
    min_length: int
    max_length: int
    max_length_factor: float
    temperature: float
    top_k: int
    top_p: float
    seed: int
    repetition_penalty: float
    no_repeat_ngram_size: int
    length_penalty_form: str
    early_stopping: bool | str
    forced_eos: bool
    renormalize_logits: bool


# Pairs of settings of which the first is at most the second.
_ORDERED = (("n_best", "beam_size"), ("min_length", "max_length"))

_RULES: Rules = {field.name: field.metadata for field in dataclasses.fields(SearchSettings)}

# The dtypes of the settings as inputs of exported files, in their order.
SETTING_DTYPES = {name: setting_dtype(rule) for name, rule in _RULES.items()}


def length_penalty(length: Any, alpha: Any, form: tuple[Any, Any] = PENALTY_FORMS["gnmt"]) -> Any:
    """Return ((a + length) / b) ** alpha, which divides the log-probability of a hypothesis.

    The arguments are numbers or tensors of floats: the number of tokens with the end token, the
    setting `length_penalty`, and a and b, by default those of equation 14 of arXiv:1609.08144.
    """
    added, divisor = form
    return ((added + length) / divisor) ** alpha


def search_defaults(max_length: int | None = None) -> SearchSettings:
    """Return the default search settings of a model with a limit in tokens, or without one."""
    default = SearchSettings.max_length
    return SearchSettings(max_length=default if max_length is None else min(max_length, default))


def setting_rules(
    max_length: int | None = None,
    vocab_size: int | None = None,
    search: Mapping[str, Any] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the rules of each search setting as a JSON schema, see `setting_values`.

    `max_length` and `vocab_size` are the model's limits of lengths in tokens, and of numbers of
    hypotheses and target tokens; None: no limit. `search` are the model's own defaults by name.
    """
    defaults = {**search_defaults(max_length).as_dict(), **(search or {})}
    limits = dict.fromkeys(("min_length", "max_length", "no_repeat_ngram_size"), max_length)
    limits |= dict.fromkeys(("beam_size", "n_best", "top_k"), vocab_size)
    rules = {name: {**rule, "default": defaults[name]} for name, rule in _RULES.items()}
    for name, limit in limits.items():
        rules[name]["maximum"] = min(rules[name]["maximum"], limit or INT32_MAX)
    return rules


def resolve_settings(settings: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """Return all search settings, in the order of the rules. Missing settings have their defaults.

    Raises:
        ValueError: for unknown or impossible settings.
    """
    if unknown := sorted(set(settings) - set(rules)):
        raise ValueError(unknown_names("settings", unknown, rules))
    problems = [
        f"{name}: expected {allowed_values(rules[name])}, got {value!r:.80}."
        for name, value in settings.items()
        if not is_allowed(value, rules[name])
    ]
    if problems:
        raise ValueError(" ".join(problems))
    resolved = {name: settings.get(name, rule["default"]) for name, rule in rules.items()}
    for name, limit in _ORDERED:
        if resolved[name] > resolved[limit]:
            raise ValueError(
                f"{name}: expected at most {limit}, got {name} {resolved[name]} and {limit} "
                f"{resolved[limit]}."
            )
    return resolved


def check_defaults(search: Mapping[str, Any], max_length: int, vocab_size: int) -> dict[str, Any]:
    """Return a model's own defaults of search settings, with numbers of the right type."""
    resolved = resolve_settings(search, setting_rules(max_length, vocab_size))
    checked = SearchSettings(**resolved).as_dict()
    return {name: checked[name] for name in search}


def setting_numbers(values: Mapping[str, Any], rules: Rules) -> dict[str, int | float]:
    """Return settings as exported files and TensorFlow functions take them.

    False is 0, True is 1, and one of several values is its index in the rules.
    """
    numbers: dict[str, Any] = {}
    for name, value in values.items():
        choices = choices_of(rules[name])
        numbers[name] = choice_index(value, choices) if choices else value
    return numbers


def settings_of_numbers(values: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """Return settings whose choices may be numbers, see `setting_numbers`, by their values."""
    settings = dict(values)
    for name, value in values.items():
        choices = choices_of(rules[name]) if name in rules else ()
        if type(value) is int and 0 <= value < len(choices):
            settings[name] = choices[value]
    return settings


def own_defaults(rules: Rules, max_length: int) -> dict[str, Any]:
    """Return the defaults in a model's rules that are not the library's, by name."""
    common = search_defaults(max_length).as_dict()
    own = {name: rule["default"] for name, rule in rules.items() if name in common}
    return {name: value for name, value in own.items() if value != common[name]}


def default_numbers(rules: Rules) -> dict[str, int | float]:
    """Return the defaults of all settings as numbers, see `setting_numbers`."""
    return setting_numbers({name: rule["default"] for name, rule in rules.items()}, rules)


def setting_arrays(values: Mapping[str, Any], rules: Rules) -> "dict[str, np.ndarray]":
    """Return settings as inputs of exported files: scalar arrays, int32 or float32."""
    import numpy as np

    numbers = setting_numbers(values, rules)
    return {name: np.array(number, setting_dtype(rules[name])) for name, number in numbers.items()}


def are_rules(value: Any) -> bool:
    """Return whether a value from a file has the form of rules."""
    return (
        isinstance(value, dict)
        and {name for pair in _ORDERED for name in pair} <= set(value)
        and all(map(is_rule, value.values()))
    )
