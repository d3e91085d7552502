"""The graph functions of translators and classifiers under the names and shapes of `signatures`."""

import inspect

import keras
import tensorflow as tf

from tfk_transformer.config.search_settings import SearchSettings, default_settings
from tfk_transformer.constants import PAD_ID
from tfk_transformer.export.signatures import (
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
    TRANSLATE,
    Signature,
    Tensor,
)
from tfk_transformer.generation.beam_search import Limits

NO_PREFIX = {PREFIX.name: [""], PREFIX_IDS.name: [[PAD_ID]]}


def specs(signature: Signature) -> list[tf.TensorSpec]:
    """Return a signature's inputs for `tf.function`."""
    return [tf.TensorSpec([_size(size) for size in tensor.shape], tensor.dtype, tensor.name) for tensor in signature.inputs]


def _size(size) -> int | None:
    return size if isinstance(size, int) else None


def traced(graph, signature: Signature):
    """Return the `tf.function` of a signature, from tensors to a dictionary, made of a `TranslationFunctions` or `ClassificationFunctions`.

    Search settings and prefixes have their defaults, which a SavedModel keeps for sessions and for TensorFlow Serving.
    """
    body = _BODIES[signature]

    def function(*inputs):
        outputs = body(graph, *inputs)
        return {tensor.name: value for tensor, value in zip(signature.outputs, outputs, strict=True)}

    function.__signature__ = inspect.Signature([_parameter(tensor, graph.model.config.max_length) for tensor in signature.inputs])
    return tf.function(function, autograph=False, input_signature=specs(signature))


def _parameter(tensor: Tensor, model_max_length: int) -> inspect.Parameter:
    defaults = {**default_settings(model_max_length), **NO_PREFIX}
    default = tf.constant(defaults[tensor.name], tensor.dtype) if tensor.name in defaults else inspect.Parameter.empty
    return inspect.Parameter(tensor.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def traced_over_weights(graph, signature: Signature):
    """Return the same function with the weights of `graph.model` as further inputs, `weight_0` and so on.

    Where they are constants instead, TensorFlow copies them several times, and refuses more than 2 GB.
    """
    body, weights, count = _BODIES[signature], graph.model.weights, len(signature.inputs)
    weight_specs = [tf.TensorSpec(weight.shape, weight.dtype, f"weight_{i}") for i, weight in enumerate(weights)]

    @tf.function(autograph=False, input_signature=[*specs(signature), *weight_specs])
    def function(*inputs):
        with keras.StatelessScope(state_mapping=zip(weights, inputs[count:], strict=True)):
            outputs = body(graph, *inputs[:count])
        return {tensor.name: value for tensor, value in zip(signature.outputs, outputs, strict=True)}

    return function


def _serving_default(graph, text):
    found = graph.translate(text, Limits(**SearchSettings().model_dump()))
    return found.texts[:, 0], found.scores[:, 0]


def _translate(graph, text, prefix, *settings):
    return graph.translate(text, Limits(*settings), prefix=prefix)


def _generate(graph, source_ids, prefix_ids, *settings):
    return graph.generate(source_ids, Limits(*settings), prefix=prefix_ids)


def _score(graph, source, target):
    _, target_ids, scores = graph.score(source, target)
    return scores.log_probability, graph.target_tokenizer.graph_pieces(target_ids), scores.token_log_probs


def _score_ids(graph, source_ids, target_ids):
    return _score_and_attend(graph, source_ids, target_ids)[:2]


def _attend(graph, source_ids, target_ids):
    return _score_and_attend(graph, source_ids, target_ids)[2:]


def _score_and_attend(graph, source_ids, target_ids):
    scores = graph.score_ids(source_ids, target_ids)
    return scores.token_log_probs, scores.log_probability, scores.attention


def _serving_label(graph, text):
    found = graph.classify(text)
    return found.label, found.probability


def _classify_text(graph, text):
    return graph.classify(text)


def _classify_ids(graph, source_ids):
    return (graph.probabilities(source_ids),)


_BODIES = {
    SERVING_DEFAULT: _serving_default,
    TRANSLATE: _translate,
    GENERATE: _generate,
    SCORE: _score,
    SCORE_IDS: _score_ids,
    ATTEND: _attend,
    SCORE_AND_ATTEND: _score_and_attend,
    SERVING_LABEL: _serving_label,
    CLASSIFY_TEXT: _classify_text,
    CLASSIFY_IDS: _classify_ids,
}
