"""The graph functions of translators and classifiers under the names and shapes of `signatures`."""

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
    return [tf.TensorSpec([_size(size) for size in tensor.shape], tensor.dtype, tensor.name) for tensor in signature.inputs]


def _size(size) -> int | None:
    return size if isinstance(size, int) else None


def traced(graph, signature: Signature):
    """Return the `tf.function` of a signature, from tensors to a dictionary, made of a `TranslationGraph` or `ClassificationGraph`."""
    body = _BODIES[signature]

    @tf.function(autograph=False, input_signature=specs(signature))
    def function(*inputs):
        outputs = body(graph, *inputs)
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
