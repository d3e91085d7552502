"""The functions for hosts that run the decoding loop themselves: `tokenize`, `encode` and
`decoder_step`, as `tf.function`s by name.
"""

from tfk_transformer.array_types import Tensor
from tfk_transformer.export import signatures
from tfk_transformer.export.functions import TensorFlowFunction, tf_function
from tfk_transformer.generation.decoder_step import StepFunctions
from tfk_transformer.pipelines.translator import Translator


def host_functions(translator: Translator) -> dict[str, TensorFlowFunction]:
    """Return the `tf.function` of each of these signatures. A model without an encoder has no
    "encode".
    """

    def tokenize(text: Tensor) -> dict[str, Tensor]:
        return {"source_ids": translator.source_tokenizer.graph_encode(text)}

    model, steps = translator.model, StepFunctions(translator.model)
    functions = {"tokenize": tf_function(tokenize, signatures.TOKENIZE)}
    if encode := signatures.encode(model.config):
        functions["encode"] = tf_function(steps.encode, encode)
    functions["decoder_step"] = tf_function(
        steps.decoder_step, signatures.decoder_step(model.config)
    )
    return functions
