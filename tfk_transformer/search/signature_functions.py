"""The functions of models as `tf.function`s with the signatures of `inference.signatures`."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import default_numbers, setting_rules
from tfk_transformer.constants import PAD_ID
from tfk_transformer.inference import signatures
from tfk_transformer.inference.signatures import Signature
from tfk_transformer.search.model_functions import (
    ClassificationFunctions,
    TranslationFunctions,
    encode_texts,
)
from tfk_transformer.search.search_state import Limits

TensorFlowFunction: TypeAlias = tf.types.experimental.PolymorphicFunction
# Maps the inputs of a signature, by name, to its outputs and possibly more tensors.
Body = Callable[..., Mapping[str, Tensor]]


def signature_function(
    functions: TranslationFunctions | ClassificationFunctions, signature: Signature
) -> TensorFlowFunction:
    """Return the `tf.function` of one of the signatures over texts or ids.

    Search settings and prefixes have defaults, which a SavedModel keeps for its signatures and for
    TensorFlow Serving.
    """
    defaults = {
        **_default_settings(functions),
        signatures.PREFIX.name: [""],
        signatures.PREFIX_IDS.name: [[PAD_ID]],
    }
    return tf_function(functools.partial(BODIES[signature], functions), signature, defaults)


def _default_settings(
    functions: TranslationFunctions | ClassificationFunctions,
) -> dict[str, int | float]:
    own = getattr(functions, "search", None)  # a classifier has no search settings
    return default_numbers(setting_rules(functions.model.config.max_length, search=own))


def tf_function(
    body: Body, signature: Signature, defaults: Mapping[str, object] | None = None
) -> TensorFlowFunction:
    """Return a `tf.function` from tensors, in the order of a signature, to its outputs by name.

    The body maps tensors by name to tensors by name. The `defaults` are values of inputs that a
    caller may leave out.
    """
    defaults = defaults or {}
    names = [tensor.name for tensor in signature.inputs]
    specs = []
    parameters = []
    for tensor in signature.inputs:
        shape = [size if isinstance(size, int) else None for size in tensor.shape]
        specs.append(tf.TensorSpec(shape, tensor.dtype, tensor.name))
        default: Any = inspect.Parameter.empty
        if tensor.name in defaults:
            default = tf.constant(defaults[tensor.name], tensor.dtype)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(tensor.name, kind, default=default))

    def function(*tensors: Tensor) -> dict[str, Tensor]:
        results = body(**dict(zip(names, tensors, strict=True)))
        return {tensor.name: results[tensor.name] for tensor in signature.outputs}

    # tf.function reads the names and the defaults of inputs from the Python signature.
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return tf.function(function, autograph=False, input_signature=specs)


def _serving_default(functions: TranslationFunctions, text: Tensor) -> dict[str, Tensor]:
    texts, scores = functions.translate(text, Limits(**_default_settings(functions)))
    return {"translation": texts[:, 0], "score": scores[:, 0]}


def _translate(
    functions: TranslationFunctions, text: Tensor, prefix: Tensor, **settings: Tensor
) -> dict[str, Tensor]:
    texts, scores = functions.translate(text, Limits(**settings), prefix=prefix)
    return {"translations": texts, "scores": scores}


def _score(functions: TranslationFunctions, source: Tensor, target: Tensor) -> dict[str, Tensor]:
    target_ids = encode_texts(functions.target_tokenizer, target)
    source_ids = encode_texts(functions.source_tokenizer, source)
    tokens = functions.target_tokenizer.graph_pieces(target_ids)
    return {"tokens": tokens, **_score_and_attend(functions, source_ids, target_ids)}


def _score_and_attend(
    functions: TranslationFunctions, source_ids: Tensor, target_ids: Tensor
) -> dict[str, Tensor]:
    scores = functions.score_ids(source_ids, target_ids)
    return {**scores._asdict(), "log_probability": scores.log_probability}


BODIES: dict[Signature, Body] = {
    signatures.SERVING_DEFAULT: _serving_default,
    signatures.TRANSLATE: _translate,
    signatures.GENERATE: lambda functions, source_ids, prefix_ids, **settings: functions.generate(
        source_ids, Limits(**settings), prefix=prefix_ids
    )._asdict(),
    signatures.SCORE: _score,
    signatures.SCORE_IDS: _score_and_attend,
    signatures.ATTEND: _score_and_attend,
    signatures.SCORE_AND_ATTEND: _score_and_attend,
    signatures.TOKENIZE: lambda functions, text: {
        "source_ids": functions.source_tokenizer.graph_encode(text)
    },
    signatures.SERVING_LABEL: ClassificationFunctions.classify,
    signatures.CLASSIFY_TEXT: ClassificationFunctions.classify,
    signatures.CLASSIFY_IDS: lambda functions, source_ids: {
        "probabilities": functions.probabilities(source_ids)
    },
}
