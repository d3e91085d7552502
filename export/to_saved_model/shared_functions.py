"""The functions of a translator, with search and scoring traced once for all signatures of a SavedModel that use them."""

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.generation.beam_search import Hypotheses, Limits
from tfk_transformer.generation.scoring import Scores
from tfk_transformer.generation.tracing import setting_specs, traced
from tfk_transformer.generation.translation_functions import TranslationFunctions

IDS = tf.TensorSpec([None, None], tf.int32)


class SharedFunctions(TranslationFunctions):
    """The same functions as those of a translator, for SavedModels.

    Three signatures search and three score. If each had a copy of the graph, a SavedModel would take twice as long to write and to load.

    Args:
        functions: the functions of a translator.
    """

    def __init__(self, functions: TranslationFunctions) -> None:
        super().__init__(functions.model, functions.source_tokenizer, functions.target_tokenizer)

        def search(source: Tensor, prefix: Tensor, *settings: Tensor) -> Hypotheses:
            return functions.generate(source, Limits(*settings), prefix=prefix)

        self._search_once = traced(search, [IDS, IDS, *setting_specs()])
        self._score_once = traced(functions.score_ids, [IDS, IDS])

    def generate(self, source: Tensor, limits: Limits, use_cache: bool = True, prefix: Tensor | None = None) -> Hypotheses:
        """Translate ids; see `TranslationFunctions.generate`. The cache is always used."""
        settings = [tf.cast(value, spec.dtype) for value, spec in zip(limits, setting_specs(), strict=True)]
        found: Hypotheses = self._search_once(source, tf.zeros([1, 0], tf.int32) if prefix is None else prefix, *settings)
        return found

    def score_ids(self, source: Tensor, target: Tensor) -> Scores:
        """Score pairs of ids; see `TranslationFunctions.score_ids`."""
        found: Scores = self._score_once(source, target)
        return found
