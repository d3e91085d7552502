"""Write SavedModels from strings to strings, with operators of TensorFlow and TensorFlow Text."""

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from tfk_transformer.inference.signatures import SAVED_MODEL, Signature
from tfk_transformer.search.signature_functions import TensorFlowFunction, signature_function

if TYPE_CHECKING:
    from tfk_transformer.pipelines.text_classifier import TextClassifier
    from tfk_transformer.pipelines.translator import Translator
    from tfk_transformer.search.classification_functions import ClassificationFunctions
    from tfk_transformer.search.translation_functions import TranslationFunctions


def write_saved_model(
    fitted: "Translator | TextClassifier",
    functions: "TranslationFunctions | ClassificationFunctions",
    folder: str | os.PathLike[str],
    signatures: Mapping[str, Signature] = SAVED_MODEL,
    more: Mapping[str, TensorFlowFunction] | None = None,
    **constants: object,
) -> None:
    """Write a SavedModel.

    Args:
        fitted: the translator or classifier to export.
        functions: its TensorFlow functions.
        folder: folder to write; it must not exist.
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
