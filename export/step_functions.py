"""The functions for hosts that run the decoding loop themselves: `tokenize`, `encode` and `decoder_step`, as `tf.function`s by name."""

from collections.abc import Mapping

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import TokenConfig
from tfk_transformer.export import signatures
from tfk_transformer.export.functions import TensorFlowFunction, tf_function
from tfk_transformer.export.signatures import Signature
from tfk_transformer.generation.decoder_step import StepFunctions
from tfk_transformer.models.base import TokenModel
from tfk_transformer.pipelines.translator import Translator


def step_signatures(config: TokenConfig) -> dict[str, Signature]:
    """Return the signatures over ids by name. A model without an encoder has no "encode"."""
    found = {"encode": signatures.encode(config), "decoder_step": signatures.decoder_step(config)}
    return {name: signature for name, signature in found.items() if signature}


def step_functions(model: TokenModel, signatures: Mapping[str, Signature]) -> dict[str, TensorFlowFunction]:
    """Return the `tf.function` of each of the `step_signatures` of a model."""
    steps = StepFunctions(model)
    return {name: tf_function(getattr(steps, name), signature) for name, signature in signatures.items()}


def host_functions(translator: Translator) -> dict[str, TensorFlowFunction]:
    """Return the functions of `step_functions`, and "tokenize", the `tf.function` of `signatures.TOKENIZE`."""

    def tokenize(text: Tensor) -> dict[str, Tensor]:
        return {"source_ids": translator.source_tokenizer.graph_encode(text)}

    steps = step_functions(translator.model, step_signatures(translator.model.config))
    return {"tokenize": tf_function(tokenize, signatures.TOKENIZE), **steps}
