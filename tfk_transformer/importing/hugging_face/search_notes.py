"""Conversion of the search settings in Hugging Face's folders to this project's settings."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tfk_transformer.config.words import shorten

# Settings with the same meaning here. Lengths are converted, see `_lengths`.
SETTING_NAMES = {
    "num_beams": "beam_size",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
}
# The values at which unsupported settings have no effect. Other values are noted.
NEUTRAL: dict[str, object] = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "early_stopping": True,
    "penalty_alpha": None,
    "guidance_scale": 1.0,
    "exponential_decay_length_penalty": None,
    "sequence_bias": None,
    "force_words_ids": None,
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
    "renormalize_logits": False,
    "forced_eos_token_id": None,
}
EFFECTS = {
    "renormalize_logits": "scores include the probability of tokens that are never predicted",
    "forced_eos_token_id": "a translation that reaches max_length has no end token",
    "early_stopping": "the search ends when as many translations are complete as there are beams",
}
# Tokens that generate takes from generation_config.json, and an import from config.json.
SPECIAL_TOKENS = ("decoder_start_token_id", "eos_token_id", "forced_bos_token_id")


def convert_search_settings(
    config: Mapping[str, Any],
    generation: Mapping[str, Any],
    positions: int,
    never_predicted: Sequence[Sequence[int]],
    leading_tokens: int = 1,
    replaced: Collection[str] = (),
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the settings that have the same meaning here, and a sentence on each other one.

    Args:
        config: the values of config.json.
        generation: the values of generation_config.json, which take precedence.
        positions: the largest number of tokens that the model reads or writes.
        never_predicted: the `bad_words_ids` that this library never predicts.
        leading_tokens: the number of tokens that Hugging Face's `max_length` counts before the
            first predicted one. Defaults to 1, the start token.
        replaced: settings that the selected languages replace.

    Raises:
        ValueError: if generation_config.json has other special tokens than config.json.
    """
    _check_tokens(config, generation, replaced)
    pairs = [*config.items(), *generation.items()]
    values = {name: value for name, value in pairs if value is not None}
    settings = {
        ours: values[theirs]
        for theirs, ours in SETTING_NAMES.items()
        if type(values.get(theirs)) is int and values[theirs] > 0
    }
    settings |= _lengths(values, positions, leading_tokens)
    notes = [
        f"{name} {shorten(str(values[name]))} is not imported"
        + (f": {EFFECTS[name]}" if name in EFFECTS else "")
        for name, neutral in NEUTRAL.items()
        if values.get(name, neutral) != neutral
    ]
    bad_words = values.get("bad_words_ids", [])
    if not isinstance(bad_words, list) or any(ids not in never_predicted for ids in bad_words):
        notes.append("bad_words_ids other than padding are not imported")
    if settings.get("beam_size", 1) > 1:
        alpha = shorten(str(values.get("length_penalty", 1.0)))
        notes.append(
            f"length_penalty {alpha} of the folder divides a log-probability by length ** {alpha}; "
            "here, length_penalty alpha divides it by ((5 + length) / 6) ** alpha: choose a new "
            "value"
        )
    return settings, tuple(notes)


def _lengths(values: Mapping[str, Any], positions: int, leading_tokens: int) -> dict[str, int]:
    """Return the limits of lengths, which here count the end token, but no leading tokens."""
    lengths = {}
    # New tokens are those after the start token.
    longest = values.get("max_length")
    if type(new_tokens := values.get("max_new_tokens")) is int:
        longest = new_tokens + 1
    if type(longest) is int:
        lengths["max_length"] = max(1, min(longest, positions) - leading_tokens)
    shortest = values.get("min_length")
    if type(new_tokens := values.get("min_new_tokens")) is int:
        shortest = new_tokens + 1
    # The end token may follow the tokens that the limit counts.
    if type(shortest) is int and shortest > leading_tokens:
        shortest += 1 - leading_tokens
        lengths["min_length"] = min(shortest, lengths.get("max_length", shortest))
    return lengths


def _check_tokens(
    config: Mapping[str, Any], generation: Mapping[str, Any], replaced: Collection[str]
) -> None:
    problems = []
    for name in SPECIAL_TOKENS:
        expected = config.get(name)
        value = generation.get(name)
        if name not in replaced and value not in (None, expected, [expected]):
            problems.append(f"{name} {shorten(str(value))} instead of {shorten(str(expected))}")
    if problems:
        raise ValueError(
            "generation_config.json: expected the tokens of config.json, with which the model is "
            f"imported, got {'; '.join(problems)}; correct one of the files."
        )
