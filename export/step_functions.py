"""The functions for hosts that run the decoding loop: `tokenize`, `encode` and `decoder_step`."""

from tfk_transformer.array_types import Tensor
from tfk_transformer.export import signatures
from tfk_transformer.export.functions import TensorFlowFunction, tf_function
from tfk_transformer.generation.decoder_step import StepFunctions
from tfk_transformer.pipelines.translator import Translator


def host_functions(translator: Translator) -> dict[str, TensorFlowFunction]:
    """Return the `tf.function`s by name. A model without an encoder has no "encode"."""

    def tokenize(text: Tensor) -> dict[str, Tensor]:
        return {"source_ids": translator.source_tokenizer.graph_encode(text)}

    config = translator.model.config
    steps = StepFunctions(translator.model)
    functions = {"tokenize": tf_function(tokenize, signatures.TOKENIZE)}
    if encode := signatures.encode(config):
        functions["encode"] = tf_function(steps.encode, encode)
    functions["decoder_step"] = tf_function(steps.decoder_step, signatures.decoder_step(config))
    return functions
