"""The result of reading a model of another library: everything that a translator consists of."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.languages import Languages


class Imported(NamedTuple):
    """A model of another library, converted to this project's options, names and ids."""

    config: TransformerConfig
    arrays: Mapping[str, np.ndarray]  # by the names of `Transformer.named_weights`
    source_model: bytes  # a SentencePiece model with this project's ids
    target_model: bytes
    family: str
    # The search settings of the folder, which become the translator's defaults.
    search: Mapping[str, Any]
    notes: tuple[str, ...]  # one sentence for each setting that has no counterpart here
    languages: Languages = Languages()  # the selected ones
