"""The graph functions of translators and classifiers under the names and shapes of `signatures`."""

import keras
import tensorflow as tf

from tfk_transformer.config import SearchSettings
from tfk_transformer.export.signatures import (
    CLASSIFY_IDS,
    CLASSIFY_TEXT,
    GENERATE,
    SCORE,
    SERVING_DEFAULT,
    SERVING_LABEL,
    TRANSLATE,
    Signature,
)
from tfk_transformer.search import Limits


def specs(signature: Signature) -> list[tf.TensorSpec]:
    """Return a signature's inputs for `tf.function`."""
    return [tf.TensorSpec([None] * len(tensor.shape), tensor.dtype, tensor.name) for tensor in signature.inputs]


def traced(graph, signature: Signature):
    """Return the `tf.function` of a signature, from tensors to a dictionary, made of a `TranslationGraph` or `ClassificationGraph`."""
    body = _BODIES[signature]

    @tf.function(autograph=False, input_signature=specs(signature))
    def function(*inputs):
        outputs = body(graph, *inputs)
        return {tensor.name: value for tensor, value in zip(signature.outputs, outputs, strict=True)}

    return function


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


def _translate(graph, text, *settings):
    return graph.translate(text, Limits(*settings))


def _generate(graph, source_ids, *settings):
    return graph.generate(source_ids, Limits(*settings))


def _score(graph, source, target):
    return (graph.score(source, target),)


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
    SERVING_LABEL: _serving_label,
    CLASSIFY_TEXT: _classify_text,
    CLASSIFY_IDS: _classify_ids,
}
