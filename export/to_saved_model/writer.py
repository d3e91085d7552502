"""Write SavedModels from strings to strings, and the requests that warm them up."""

import contextlib
import functools
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.inference.signatures import SAVED_MODEL, Signature
from tfk_transformer.search.model_functions import Scores, TranslationFunctions
from tfk_transformer.search.search_state import Hypotheses, Limits
from tfk_transformer.search.signature_functions import TensorFlowFunction, signature_function

if TYPE_CHECKING:
    from tfk_transformer.pipelines.text_classifier import TextClassifier
    from tfk_transformer.pipelines.translator import Translator
    from tfk_transformer.search.model_functions import ClassificationFunctions

# The path that TensorFlow Serving reads, in the folder of a SavedModel.
WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"
BATCH_SIZES = (1, 8)  # of the warm-up requests
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


def write_saved_model(
    fitted: "Translator | TextClassifier",
    functions: "TranslationFunctions | ClassificationFunctions",
    folder: str | os.PathLike[str],
    signatures: Mapping[str, Signature] = SAVED_MODEL,
    more: Mapping[str, TensorFlowFunction] | None = None,
    **constants: object,
) -> None:
    """Write the SavedModel of a model, with its functions for `signatures`, into a new folder.

    `more` are further `tf.function`s by signature name. `constants` are the results of functions
    without arguments, in addition to `max_length` and `config` (JSON); None: no such function.
    """
    module = tf.Module()
    # Plain variables, not the Keras model: the SavedModel must load without Keras and without this
    # package.
    module.weights = [variable.value for variable in fitted.model.variables]
    config = fitted.model.config
    constants = {"max_length": config.max_length, "config": config.to_json(), **constants}
    for name, value in constants.items():
        if value is not None:
            constant = functools.partial(tf.constant, value)
            setattr(module, name, tf.function(constant, autograph=False, input_signature=[]))
    traced_functions = {
        name: signature_function(functions, signature) for name, signature in signatures.items()
    }
    tf.saved_model.save(module, str(folder), signatures={**traced_functions, **(more or {})})


def write_warm_up(folder: Path, signatures: Mapping[str, Signature], texts: Sequence[str]) -> None:
    """Write the requests that TensorFlow Serving runs before it answers the first request.

    Only signatures whose inputs are all texts get requests: a server with batching refuses scalars,
    and does not serve a model whose warm-up fails.
    """
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    path = folder / WARM_UP
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for (name, signature), size in itertools.product(signatures.items(), BATCH_SIZES):
            specs = ((tensor.dtype, len(tensor.shape)) for tensor in signature.inputs)
            if any(spec != ("string", 1) for spec in specs):
                continue
            log = PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for tensor in signature.inputs:
                request.inputs[tensor.name].CopyFrom(tf.make_tensor_proto(texts[:size], tf.string))
            file.write(log.SerializeToString())


@contextlib.contextmanager
def without_graph_optimizer(is_large: bool = False) -> Iterator[None]:
    """Disable Grappler, TensorFlow's graph optimizer, while functions run for the first time.

    It takes about half of the time before the first run of a function. Without it, results only
    differ by rounding. For a large vocabulary or width, it still folds transpositions into
    products: a search would otherwise copy the transposed table of embeddings at each step.
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
    """The functions of a translator, with search and scoring traced only once.

    In a SavedModel, three signatures search and three score. With a copy of the graph for each
    signature, writing and loading a SavedModel would take twice as long.
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

        signature = [IDS, IDS, *SETTING_SPECS]
        traced = tf.function(search, autograph=False, input_signature=signature)
        return traced.get_concrete_function()

    @functools.cached_property
    def _score_once(self) -> Tensor:
        score = self._functions.score_ids
        traced = tf.function(score, autograph=False, input_signature=[IDS, IDS])
        return traced.get_concrete_function()

    def generate(self, source: Tensor, limits: Limits, prefix: Tensor | None = None) -> Hypotheses:
        """Translate ids; see `TranslationFunctions.generate`."""
        pairs = zip(limits, SETTING_SPECS, strict=True)
        settings = [tf.cast(value, spec.dtype) for value, spec in pairs]
        prefix = tf.zeros([1, 0], tf.int32) if prefix is None else prefix
        return self._search_once(source, prefix, *settings)

    def score_ids(self, source: Tensor, target: Tensor) -> Scores:
        """Score pairs of ids; see `TranslationFunctions.score_ids`."""
        return self._score_once(source, target)
