"""The search settings with which CTranslate2 and Argos Translate translate by default."""

from typing import Any

from tfk_transformer.config.model_options import TransformerConfig

MAX_DECODING_LENGTH = 256
# Of `Translator.translate_batch`, which excludes tokens before it computes probabilities.
CTRANSLATE2_SETTINGS = {"beam_size": 2, "length_penalty": 1.0, "renormalize_logits": True}
# Of argostranslate/translate.py and settings.py.
ARGOS_SETTINGS = {**CTRANSLATE2_SETTINGS, "beam_size": 4, "length_penalty": 0.2}
UNLIMITED_FACTOR = 1000.0  # so that `max_length` is the only limit


def default_search(config: TransformerConfig, is_package: bool) -> dict[str, Any]:
    """Return the search settings of a folder or of a package of Argos Translate.

    CTranslate2 counts a token after the start token that its user passes, such as a language token,
    as part of a translation. Here it is the start token.
    """
    passed = len(config.target_prefix)
    return {
        **(ARGOS_SETTINGS if is_package else CTRANSLATE2_SETTINGS),
        "length_penalty_form": "length_with_start" if passed else "length",
        # At least one token, and the end token.
        "min_length": 0 if passed else 2,
        "max_length": min(MAX_DECODING_LENGTH - passed, config.max_length),
        "max_length_factor": UNLIMITED_FACTOR,
    }
