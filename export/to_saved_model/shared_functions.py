"""The functions of a translator, with search and scoring traced only once."""

import contextlib
import functools
from collections.abc import Iterator

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.search.model_functions import TranslationFunctions
from tfk_transformer.search.scoring import Scores
from tfk_transformer.search.search_state import Hypotheses, Limits

IDS = tf.TensorSpec([None, None], tf.int32)
# The search settings, scalars in the order of `SearchSettings`.
SETTING_SPECS = [tf.TensorSpec([], tf.as_dtype(dtype)) for dtype in SETTING_DTYPES.values()]


# Grappler's passes of which a first run waits for results that it does not need.
SLOW_PASSES = (
    "layout_optimizer",
    "constant_folding",
    "shape_optimization",
    "remapping",
    "dependency_optimization",
    "loop_optimization",
    "function_optimization",
    "implementation_selector",
)


@contextlib.contextmanager
def without_graph_optimizer(is_large: bool = False) -> Iterator[None]:
    """Disable Grappler, TensorFlow's graph optimizer, while functions run for the first time.

    Grappler takes about half of the time that TensorFlow needs before the first run of a function.
    Without it, results only differ by rounding. For a large vocabulary or width, it still folds
    transpositions into products: a search would otherwise copy the transposed table of embeddings
    at each step, which takes longer.
    """
    options = tf.config.optimizer.get_experimental_options()
    enabled = {"disable_meta_optimizer": False, **dict.fromkeys(SLOW_PASSES, True)}
    disabled = dict.fromkeys(SLOW_PASSES, False) if is_large else {"disable_meta_optimizer": True}
    tf.config.optimizer.set_experimental_options(disabled)
    try:
        yield
    finally:
        # An option without a value has its default, which is the same as True.
        restored = {name: options.get(name, enabled[name]) for name in disabled}
        tf.config.optimizer.set_experimental_options(restored)


class SharedFunctions(TranslationFunctions):
    """The functions of a translator, for the reference results and SavedModels.

    In a SavedModel, three signatures search and three signatures score. With a copy of the graph
    for each signature, writing and loading a SavedModel would take twice as long.
    """

    def __init__(self, functions: TranslationFunctions) -> None:
        super().__init__(
            functions.model,
            functions.source_tokenizer,
            functions.target_tokenizer,
            functions.shortlist,
            search=functions.search,
        )
        self._functions = functions

    # Concrete functions: TensorFlow traces a `tf.function` again while it saves a SavedModel.

    @functools.cached_property
    def _search_once(self) -> Tensor:
        def search(source: Tensor, prefix: Tensor, *settings: Tensor) -> Hypotheses:
            return self._functions.generate(source, Limits(*settings), prefix=prefix)

        search_function: Tensor = tf.function(
            search, autograph=False, input_signature=[IDS, IDS, *SETTING_SPECS]
        )
        return search_function.get_concrete_function()

    @functools.cached_property
    def _score_once(self) -> Tensor:
        score_function: Tensor = tf.function(
            self._functions.score_ids, autograph=False, input_signature=[IDS, IDS]
        )
        return score_function.get_concrete_function()

    def generate(self, source: Tensor, limits: Limits, prefix: Tensor | None = None) -> Hypotheses:
        """Translate ids; see `TranslationFunctions.generate`."""
        settings = [
            tf.cast(value, spec.dtype) for value, spec in zip(limits, SETTING_SPECS, strict=True)
        ]
        prefix = tf.zeros([1, 0], tf.int32) if prefix is None else prefix
        hypotheses: Hypotheses = self._search_once(source, prefix, *settings)
        return hypotheses

    def score_ids(self, source: Tensor, target: Tensor) -> Scores:
        """Score pairs of ids; see `TranslationFunctions.score_ids`."""
        scores: Scores = self._score_once(source, target)
        return scores
