"""Conversion of the search settings in Hugging Face's folders to this project's settings."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tfk_transformer.config.search_settings import SearchSettings, setting_rules
from tfk_transformer.config.setting_values import is_allowed
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.imported import FREE_LENGTH

RULES = setting_rules()

# Settings with the same meaning here.
SETTING_NAMES = {
    "num_beams": "beam_size",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "renormalize_logits": "renormalize_logits",
}
# Settings of sampling, which generate reads if do_sample is set, and their defaults.
SAMPLING = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}
# The values at which unsupported settings have no effect. Other values are noted.
NEUTRAL: dict[str, object] = {
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "diversity_penalty": 0.0,
    "penalty_alpha": None,
    "guidance_scale": 1.0,
    "exponential_decay_length_penalty": None,
    "sequence_bias": None,
    "force_words_ids": None,
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
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
    """Return the settings with which a search gives what generate gives, and notes.

    Each note is a sentence on a setting that has no counterpart. `config` and `generation` are the
    values of config.json and generation_config.json, of which generate takes the settings if it is
    not empty. `positions` is the largest number of tokens that the model reads or writes. This
    library never predicts the `bad_words_ids` `never_predicted`.
    Hugging Face's `max_length` counts `leading_tokens` before the first predicted one: the start
    token, and forced ones. The selected languages replace the settings `replaced`.
    """
    _check_tokens(config, generation, replaced)
    stated = generation or config
    values = {name: value for name, value in stated.items() if value is not None}
    search: dict[str, Any] = {"beam_size": 1}
    notes: list[str] = []
    for theirs, ours in SETTING_NAMES.items():
        if value := values.get(theirs):
            if is_allowed(value, RULES[ours]):
                search[ours] = value
            else:
                notes.append(f"{theirs} {shorten(str(value))} is not imported")
    for name, neutral in NEUTRAL.items():
        if (value := values.get(name, neutral)) != neutral:
            notes.append(f"{name} {shorten(str(value))} is not imported")
    bad_words = values.get("bad_words_ids", [])
    if not isinstance(bad_words, list) or any(ids not in never_predicted for ids in bad_words):
        notes.append("bad_words_ids other than padding are not imported")
    search |= _lengths(values, positions, leading_tokens, notes)
    search |= _ranking(values, config.get("eos_token_id"), leading_tokens, notes)
    search |= _repetition_penalty(values, search["beam_size"], config, notes)
    search |= _sampling(values, search["beam_size"], notes)
    return search, tuple(notes)


def generation_settings(search: Mapping[str, Any], end: int, leading_tokens: int) -> dict[str, Any]:
    """Return the values of generation_config.json: the reverse of `convert_search_settings`.

    `end` is the end token's row. Settings without a counterpart are left out.
    """
    beam_size = search.get("beam_size", SearchSettings.beam_size)
    values: dict[str, Any] = {
        theirs: search[ours] for theirs, ours in SETTING_NAMES.items() if search.get(ours)
    }
    values["num_beams"] = beam_size
    if search.get("length_penalty_form") == _length_form(leading_tokens):
        values["length_penalty"] = search.get("length_penalty", SearchSettings.length_penalty)
    if "early_stopping" in search:
        values["early_stopping"] = search["early_stopping"]
    if search.get("forced_eos"):
        values["forced_eos_token_id"] = end
    if search.get("repetition_penalty", 1.0) != 1.0 and beam_size == 1:
        values["repetition_penalty"] = search["repetition_penalty"]
    if search.get("temperature"):
        values |= {"do_sample": True, **{name: search[name] for name in SAMPLING if name in search}}
    if "max_length" in search:
        values["max_length"] = search["max_length"] + leading_tokens
    if search.get("min_length"):
        values["min_length"] = search["min_length"] - 1 + leading_tokens
    return values


def _length_form(leading_tokens: int) -> str:
    """Return the form of the length penalty, whose length includes forced first tokens."""
    return "length" if leading_tokens == 1 else "length_with_start"


def _ranking(
    values: Mapping[str, Any], end: object, leading_tokens: int, notes: list[str]
) -> dict[str, Any]:
    """Return the settings that order hypotheses and end the search."""
    alpha = values.get("length_penalty", 1.0)
    if not is_allowed(alpha, RULES["length_penalty"]):
        notes.append(
            f"length_penalty {shorten(str(alpha))} is not imported: it must be from 0 to 10"
        )
        alpha = 1.0
    early_stopping = values.get("early_stopping", False)
    if not is_allowed(early_stopping, RULES["early_stopping"]):
        notes.append(f"early_stopping {shorten(str(early_stopping))} is not imported")
        early_stopping = False
    forced = values.get("forced_eos_token_id")
    if forced not in (None, end, [end]):
        note = (
            f"forced_eos_token_id {shorten(str(forced))} is not imported: it is not the end token"
        )
        notes.append(note)
        forced = None
    return {
        "length_penalty": float(alpha),
        "length_penalty_form": _length_form(leading_tokens),
        "early_stopping": early_stopping,
        "forced_eos": forced is not None,
    }


def _repetition_penalty(
    values: Mapping[str, Any], beam_size: int, config: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    """Return the repetition penalty where generate's has the same meaning.

    In a beam search, it changes log-probabilities in place of logits. It lowers the probability of
    the end token if the decoder starts with it.
    """
    penalty = values.get("repetition_penalty", 1.0)
    if penalty == 1.0:
        return {}
    if config.get("decoder_start_token_id") == config.get("eos_token_id"):
        reason = "it would make the end token, with which the decoder starts, less probable"
    elif beam_size > 1:
        reason = "with several beams, generate applies it to log-probabilities, not to logits"
    elif is_allowed(penalty, RULES["repetition_penalty"]):
        return {"repetition_penalty": float(penalty)}
    else:
        reason = "it must be from 0.001 to 1000"
    notes.append(f"repetition_penalty {shorten(str(penalty))} is not imported: {reason}")
    return {}


def _sampling(values: Mapping[str, Any], beam_size: int, notes: list[str]) -> dict[str, Any]:
    if values.get("do_sample", False) is False:
        return {}
    sampling = {name: values.get(name, default) for name, default in SAMPLING.items()}
    allowed = all(is_allowed(value, RULES[name]) for name, value in sampling.items())
    if beam_size > 1 or not allowed or sampling["temperature"] == 0:
        notes.append("do_sample is not imported: the search draws no tokens")
        return {}
    notes.append("do_sample is imported, but draws other tokens: seed selects them")
    return sampling


def _lengths(
    values: Mapping[str, Any], positions: int, leading_tokens: int, notes: list[str]
) -> dict[str, Any]:
    """Return the limits of lengths, which here count the end token, but no leading tokens."""
    lengths: dict[str, Any] = {"max_length_factor": FREE_LENGTH}
    # New tokens are those after the start token.
    longest = values.get("max_length")
    if type(new_tokens := values.get("max_new_tokens")) is int:
        longest = new_tokens + 1
    if type(longest) is int:
        lengths["max_length"] = max(1, min(longest, positions) - leading_tokens)
    else:
        notes.append(
            "the folder states no max_length: generate cuts translations after 20 tokens, and "
            "this library does not"
        )
    shortest = values.get("min_length")
    if type(new_tokens := values.get("min_new_tokens")) is int:
        shortest = new_tokens + 1
    # The end token may follow the tokens that the limit counts.
    if type(shortest) is int and shortest > leading_tokens:
        shortest += 1 - leading_tokens
        longest = lengths.get("max_length", min(positions, SearchSettings.max_length))
        lengths["min_length"] = min(shortest, longest)
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
