"""Search settings of Hugging Face's folders: which of them mean the same here, and which do not."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

SETTING_NAMES = {"num_beams": "beam_size", "no_repeat_ngram_size": "no_repeat_ngram_size"}
# Settings without effect at these values. Any other value is named.
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


def known_settings(
    files: Sequence[Mapping[str, Any]],
    positions: int,
    silent: Sequence[Sequence[int]],
    started: int = 1,
    chosen: Collection[str] = (),
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the search settings that mean the same here, and a sentence on each of those that do
    not.

    Args:
        files: the values of config.json and of generation_config.json, which come first where both
            have one.
        positions: tokens that the model reads and writes at most.
        silent: the `bad_words_ids` that this library never predicts.
        started: tokens that their `max_length` counts before the first predicted one. Defaults to
            1, the start token.
        chosen: settings that the languages replace.
    """
    given = {name: value for file in files for name, value in file.items() if value is not None}
    same = {
        ours: given[theirs]
        for theirs, ours in SETTING_NAMES.items()
        if isinstance(given.get(theirs), int) and given[theirs] > 0
    }
    if isinstance(longest := given.get("max_length"), int):
        same["max_length"] = max(1, min(longest, positions) - started)
    changed = [
        name
        for name, neutral in NEUTRAL.items()
        if name not in chosen and given.get(name, neutral) != neutral
    ]
    notes = [f"{name} {given[name]} is not taken over" for name in changed]
    if not isinstance(bad := given.get("bad_words_ids", []), list) or any(
        words not in silent for words in bad
    ):
        notes.append("bad_words_ids other than padding are not taken over")
    if same.get("beam_size", 1) > 1:
        alpha = given.get("length_penalty", 1.0)
        notes.append(
            f"length_penalty {alpha} of the folder divides a log-probability by length ** {alpha}; "
            "here, length_penalty alpha divides it "
            "by ((5 + length) / 6) ** alpha: choose it anew"
        )
    return same, tuple(notes)
