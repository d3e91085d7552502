"""Write the files that the folders of all Hugging Face families have, without transformers."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tfk_transformer.importing.hugging_face.model_folder import (
    CONFIG,
    GENERATION,
    SAFETENSORS,
    TOKENIZER_CONFIG,
)
from tfk_transformer.importing.hugging_face.search_notes import generation_settings
from tfk_transformer.pipelines.bundle import write_json
from tfk_transformer.pipelines.translator import Translator

SPECIAL_IDS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")


def write_family_files(
    translator: Translator,
    folder: Path,
    config: Mapping[str, Any],
    generation: Mapping[str, Any],
    tokenizer_config: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Write the configurations and the weights of a model.

    The translator's license and search settings are also written, if it has them.

    Args:
        translator: the translator.
        folder: an existing folder.
        config: the content of config.json, with the ids of `SPECIAL_IDS`.
        generation: the content of generation_config.json, without these ids.
        tokenizer_config: the content of tokenizer_config.json.
        arrays: the weights by the family's names.
    """
    license_name = translator.origin.get("license")
    license_entry = {"license": license_name} if license_name else {}
    write_json(folder / CONFIG, {"is_encoder_decoder": True, **license_entry, **config})
    ids = {name: config[name] for name in SPECIAL_IDS}
    leading_tokens = 1 + len(translator.model.config.target_prefix)
    settings = generation_settings(translator.search, config["eos_token_id"], leading_tokens)
    longest = min(settings.pop("max_length", math.inf), generation["max_length"])
    write_json(folder / GENERATION, {**settings, **ids, **generation, "max_length": longest})
    write_json(folder / TOKENIZER_CONFIG, dict(tokenizer_config))
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # transformers refuses a file without the name of a framework in its metadata.
    content = safetensors.numpy.save(contiguous, {"format": "pt"})
    (folder / SAFETENSORS).write_bytes(content)
