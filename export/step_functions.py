"""The functions of hosts that loop themselves, `tokenize`, `encode` and `decoder_step`, as `tf.function`s by name."""

import tensorflow as tf

from tfk_transformer.export import signatures
from tfk_transformer.export.functions import specs
from tfk_transformer.export.signatures import Signature
from tfk_transformer.generation.decoder_step import StepFunctions
from tfk_transformer.pipelines.translator import Translator


def step_signatures(config) -> dict[str, Signature]:
    """Return the signatures over ids of a model that has steps, by name; "encode" only if it has an encoder."""
    found = {"encode": signatures.encode(config), "decoder_step": signatures.decoder_step(config)}
    return {name: signature for name, signature in found.items() if signature}


def step_functions(translator: Translator) -> dict:
    """Return the `tf.function` of each of `step_signatures`."""
    graph = StepFunctions(translator.model)
    return {name: _named(getattr(graph, name), signature) for name, signature in step_signatures(translator.model.config).items()}


def host_functions(translator: Translator) -> dict:
    """Return these, and "tokenize", the `tf.function` of `signatures.TOKENIZE`."""
    tokenize = _named(lambda text: {"source_ids": translator.source_tokenizer.graph_encode(text)}, signatures.TOKENIZE)
    return {"tokenize": tokenize, **step_functions(translator)}


def _named(function, signature: Signature):
    """Return the `tf.function` of a function from tensors, in the signature's order, to tensors by name."""
    names = [tensor.name for tensor in signature.inputs]

    @tf.function(autograph=False, input_signature=specs(signature))
    def named(first, *others):
        found = function(first, **dict(zip(names[1:], others, strict=True)))
        return {tensor.name: found[tensor.name] for tensor in signature.outputs}

    return named
