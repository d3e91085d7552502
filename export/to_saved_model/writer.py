"""Write SavedModels from strings to strings, with operators of TensorFlow and TensorFlow Text, and
the requests that warm them up.
"""

import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from tfk_transformer.inference.signatures import SAVED_MODEL, Signature
from tfk_transformer.search.signature_functions import TensorFlowFunction, signature_function

if TYPE_CHECKING:
    from tfk_transformer.pipelines.text_classifier import TextClassifier
    from tfk_transformer.pipelines.translator import Translator
    from tfk_transformer.search.model_functions import ClassificationFunctions, TranslationFunctions

# The path that TensorFlow Serving reads, in the folder of a SavedModel.
WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"
BATCH_SIZES = (1, 8)  # of the warm-up requests


def write_saved_model(
    fitted: "Translator | TextClassifier",
    functions: "TranslationFunctions | ClassificationFunctions",
    folder: str | os.PathLike[str],
    signatures: Mapping[str, Signature] = SAVED_MODEL,
    more: Mapping[str, TensorFlowFunction] | None = None,
    **constants: object,
) -> None:
    """Write the SavedModel of a model into a new folder.

    Args:
        fitted: the translator or classifier.
        functions: its TensorFlow functions, for `signatures`.
        folder: the folder.
        signatures: signatures of `inference.signatures` by name.
        more: further `tf.function`s of `fitted`, by signature name.
        **constants: results of further functions without arguments, by name; None: no such
            function. The functions `max_length` and `config` (JSON) always exist.
    """
    module = tf.Module()
    # Plain variables, not the Keras model: the SavedModel must load without Keras and without this
    # package.
    module.weights = [variable.value for variable in fitted.model.variables]
    config = fitted.model.config
    constants = {"max_length": config.max_length, "config": config.to_json(), **constants}
    for name, value in constants.items():
        if value is None:
            continue
        constant = functools.partial(tf.constant, value)
        setattr(module, name, tf.function(constant, autograph=False, input_signature=[]))
    traced_functions = {
        name: signature_function(functions, signature) for name, signature in signatures.items()
    }
    tf.saved_model.save(module, str(folder), signatures={**traced_functions, **(more or {})})


def write_warm_up(folder: Path, signatures: Mapping[str, Signature], texts: Sequence[str]) -> None:
    """Write the requests that TensorFlow Serving runs before it answers the first request.

    Only signatures whose inputs are all texts get requests. A server with batching refuses scalars,
    and a server does not serve a model whose warm-up fails.
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
