"""A translator's graph functions under the names and shapes of `signatures`."""

import tensorflow as tf

from tfk_transformer.config import SearchSettings
from tfk_transformer.export.signatures import SAVED_MODEL, Signature
from tfk_transformer.search import Limits


def specs(signature: Signature) -> list[tf.TensorSpec]:
    """Return a signature's inputs for `tf.function`."""
    return [tf.TensorSpec([None] * len(tensor.shape), tensor.dtype, tensor.name) for tensor in signature.inputs]


def traced(graph, name: str):
    """Return the exported function `name` of a `TranslationGraph`, a `tf.function` from tensors to a dictionary."""
    signature, body = SAVED_MODEL[name], _BODIES[name]

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


_BODIES = {"serving_default": _serving_default, "translate": _translate, "generate": _generate, "score": _score}
