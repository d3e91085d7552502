"""Conversion of the search settings in Hugging Face's folders to this project's settings."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

SETTING_NAMES = {"num_beams": "beam_size", "no_repeat_ngram_size": "no_repeat_ngram_size"}
# The values at which unsupported settings have no effect. Other values are noted.
NEUTRAL: dict[str, object] = {
    "repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "min_length": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "forced_bos_token_id": None,
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
}


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
    """
    pairs = [*config.items(), *generation.items()]
    values = {name: value for name, value in pairs if value is not None}
    settings = {
        ours: values[theirs]
        for theirs, ours in SETTING_NAMES.items()
        if isinstance(values.get(theirs), int) and values[theirs] > 0
    }
    if isinstance(longest := values.get("max_length"), int):
        settings["max_length"] = max(1, min(longest, positions) - leading_tokens)
    notes = [
        f"{name} {values[name]} is not imported"
        for name, neutral in NEUTRAL.items()
        if name not in replaced and values.get(name, neutral) != neutral
    ]
    bad_words = values.get("bad_words_ids", [])
    if not isinstance(bad_words, list) or any(ids not in never_predicted for ids in bad_words):
        notes.append("bad_words_ids other than padding are not imported")
    if settings.get("beam_size", 1) > 1:
        alpha = values.get("length_penalty", 1.0)
        notes.append(
            f"length_penalty {alpha} of the folder divides a log-probability by length ** {alpha}; "
            "here, length_penalty alpha divides it by ((5 + length) / 6) ** alpha: choose a new "
            "value"
        )
    return settings, tuple(notes)
