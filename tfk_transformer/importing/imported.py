"""What a family of models gives: everything that a translator is made of."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.languages import Languages


class Imported(NamedTuple):
    """A model of another library in the terms of this one."""

    config: TransformerConfig
    arrays: Mapping[str, np.ndarray]  # by the names of `Transformer.named_weights`
    source_model: bytes  # a SentencePiece model with this project's ids
    target_model: bytes
    family: str
    search: Mapping[str, Any]  # the search settings of the folder that mean the same here
    notes: tuple[str, ...]  # settings that mean something else here, one sentence each
    languages: Languages = Languages()  # those that were chosen
