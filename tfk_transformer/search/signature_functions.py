"""The functions of translators and classifiers as `tf.function`s with the names, dtypes and shapes
of `inference.signatures`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import default_numbers, setting_rules
from tfk_transformer.constants import PAD_ID
from tfk_transformer.inference.signatures import (
    ATTEND,
    CLASSIFY_IDS,
    CLASSIFY_TEXT,
    GENERATE,
    PREFIX,
    PREFIX_IDS,
    SCORE,
    SCORE_AND_ATTEND,
    SCORE_IDS,
    SERVING_DEFAULT,
    SERVING_LABEL,
    TOKENIZE,
    TRANSLATE,
    Signature,
    TensorSignature,
)
from tfk_transformer.search.limits import Limits

if TYPE_CHECKING:
    from tfk_transformer.search.classification_functions import ClassificationFunctions
    from tfk_transformer.search.translation_functions import TranslationFunctions

TensorFlowFunction: TypeAlias = tf.types.experimental.PolymorphicFunction
# Maps the inputs of a signature, by name, to its outputs and possibly more tensors.
Body = Callable[..., Mapping[str, Tensor]]


def signature_function(
    functions: "TranslationFunctions | ClassificationFunctions", signature: Signature
) -> TensorFlowFunction:
    """Return the `tf.function` of a signature.

    Args:
        functions: the TensorFlow functions of a translator or a classifier.
        signature: one of the signatures over texts or ids in `signatures`.

    Returns:
        A function from tensors, in the order of the signature, to a dictionary of tensors. Search
        settings and prefixes have defaults, which a SavedModel keeps for its signatures and for
        TensorFlow Serving.
    """
    defaults = {
        **_default_settings(functions),
        PREFIX.name: [""],
        PREFIX_IDS.name: [[PAD_ID]],
    }
    return tf_function(functools.partial(BODIES[signature], functions), signature, defaults)


def _default_settings(
    functions: "TranslationFunctions | ClassificationFunctions",
) -> dict[str, int | float]:
    """Return the defaults of the search settings as numbers; a classifier does not use them."""
    own = getattr(functions, "search", None)
    return default_numbers(setting_rules(functions.model.config.max_length, search=own))


def tf_function(
    body: Body, signature: Signature, defaults: Mapping[str, object] | None = None
) -> TensorFlowFunction:
    """Return a `tf.function` from tensors, in the order of a signature, to a dictionary of the
    signature's outputs.

    Args:
        body: the body of the function. It maps tensors by name to tensors by name.
        signature: the names, dtypes and shapes of inputs and outputs.
        defaults: values of inputs that a caller may leave out.
    """
    names = [tensor.name for tensor in signature.inputs]
    specs = [_tensor_spec(tensor) for tensor in signature.inputs]

    def function(*tensors: Tensor) -> dict[str, Tensor]:
        results = body(**dict(zip(names, tensors, strict=True)))
        return {tensor.name: results[tensor.name] for tensor in signature.outputs}

    # tf.function reads the names and the defaults of inputs from the Python signature.
    parameters = [_parameter(spec, defaults or {}) for spec in specs]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return tf.function(function, autograph=False, input_signature=specs)


def _tensor_spec(tensor: TensorSignature) -> tf.TensorSpec:
    shape = [size if isinstance(size, int) else None for size in tensor.shape]
    return tf.TensorSpec(shape, tensor.dtype, tensor.name)


def _parameter(spec: tf.TensorSpec, defaults: Mapping[str, object]) -> inspect.Parameter:
    default = inspect.Parameter.empty
    if spec.name in defaults:
        default = tf.constant(defaults[spec.name], spec.dtype)
    return inspect.Parameter(spec.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def _serving_default(functions: "TranslationFunctions", text: Tensor) -> dict[str, Tensor]:
    translations = functions.translate(text, Limits(**_default_settings(functions)))
    return {"translation": translations.texts[:, 0], "score": translations.scores[:, 0]}


def _translate(
    functions: "TranslationFunctions", text: Tensor, prefix: Tensor, **settings: Tensor
) -> dict[str, Tensor]:
    translations = functions.translate(text, Limits(**settings), prefix=prefix)
    return {"translations": translations.texts, "scores": translations.scores}


def _score(functions: "TranslationFunctions", source: Tensor, target: Tensor) -> dict[str, Tensor]:
    _, target_ids, scores = functions.score(source, target)
    tokens = functions.target_tokenizer.graph_pieces(target_ids)
    return {
        "log_probability": scores.log_probability,
        "tokens": tokens,
        "token_log_probs": scores.token_log_probs,
    }


def _score_and_attend(
    functions: "TranslationFunctions", source_ids: Tensor, target_ids: Tensor
) -> dict[str, Tensor]:
    scores = functions.score_ids(source_ids, target_ids)
    return {**scores._asdict(), "log_probability": scores.log_probability}


def _classify_text(functions: "ClassificationFunctions", text: Tensor) -> dict[str, Tensor]:
    return functions.classify(text)._asdict()


BODIES: dict[Signature, Body] = {
    SERVING_DEFAULT: _serving_default,
    TRANSLATE: _translate,
    GENERATE: lambda functions, source_ids, prefix_ids, **settings: functions.generate(
        source_ids, Limits(**settings), prefix=prefix_ids
    )._asdict(),
    SCORE: _score,
    SCORE_IDS: _score_and_attend,
    ATTEND: _score_and_attend,
    SCORE_AND_ATTEND: _score_and_attend,
    TOKENIZE: lambda functions, text: {"source_ids": functions.source_tokenizer.graph_encode(text)},
    SERVING_LABEL: _classify_text,
    CLASSIFY_TEXT: _classify_text,
    CLASSIFY_IDS: lambda functions, source_ids: {
        "probabilities": functions.probabilities(source_ids)
    },
}
