"""ONNX models of whole searches, of scoring, of decoding steps and of classifiers.

Each is one graph over ids. The same graph with tokenizers and labels at its ends works on texts.
"""

import base64
import functools
from collections.abc import Iterable, MutableSequence
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx_ir as ir
from onnx_ir import tape
from onnx_ir.passes.common import NameFixPass

from tfk_transformer.config.search_settings import search_defaults
from tfk_transformer.constants import PAD_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.export.functions import traced
from tfk_transformer.export.runtime.onnx_scorer import SOURCE_TOKENIZER, TARGET_TOKENIZER
from tfk_transformer.export.signatures import (
    CLASSIFY_IDS,
    CLASSIFY_TEXT,
    GENERATE,
    PREFIX,
    PREFIX_IDS,
    SCORE_AND_ATTEND,
    SOURCE_IDS,
    TEXT,
    TRANSLATE,
    Signature,
    TensorSignature,
)
from tfk_transformer.export.step_functions import step_functions, step_signatures
from tfk_transformer.export.to_onnx.conversion import IR_VERSION, OPSET, from_tensorflow
from tfk_transformer.export.to_onnx.onnx_layers import PORTABLE, Profile, insert_layers
from tfk_transformer.export.to_onnx.optimize import optimize
from tfk_transformer.export.to_onnx.placeholder_model import PlaceholderClassifier, PlaceholderModel, Structure
from tfk_transformer.export.to_onnx.text_operators import TEXT_OPERATORS, write_best_label, write_detokenizer, write_tokenizer
from tfk_transformer.generation.translation_functions import TranslationFunctions
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

if TYPE_CHECKING:
    from tfk_transformer.models.base import ConfiguredModel, TokenModel
    from tfk_transformer.models.classifier import Classifier


# A graph around placeholders reads no weights: models of one structure share it. Converting one
# takes seconds, and it is small.
@functools.lru_cache(maxsize=32)
def _around(
    functions: type[TranslationFunctions], structure: Structure, signature: Signature, shortlist: Shortlist | None = None
) -> ir.Model:
    """Convert a function of a translator without the model's layers, which single nodes represent. The result must not be changed."""
    placeholder, no_tokenizer = cast("TokenModel", PlaceholderModel(structure)), cast(SubwordTokenizer, None)
    around = functions(placeholder, no_tokenizer, no_tokenizer, shortlist)
    return from_tensorflow(traced(around, signature).get_concrete_function())


@functools.lru_cache(maxsize=32)
def _step_around(structure: Structure, name: str, signature: Signature) -> ir.Model:
    """Convert "encode" or "decoder_step" as `_around` does."""
    placeholder = cast("TokenModel", PlaceholderModel(structure))
    return from_tensorflow(step_functions(placeholder, {name: signature})[name].get_concrete_function())


def generate_graph(translator: Translator, profile: Profile = PORTABLE) -> ir.Model:
    """Return the model from source ids to target ids, `signatures.GENERATE`.

    Args:
        translator: the translator.
        profile: `onnx_layers.PORTABLE`, or a result of `onnx_layers.int8_profile`.
    """
    functions = translator.functions
    around = _around(type(functions), Structure.of(translator.model), GENERATE, functions.shortlist)  # type: ignore[arg-type]
    model = _with_layers(around, "generate", GENERATE, translator.model, profile)
    _set_defaults(model.graph, translator.model.config.max_length)
    return model


def translate_graph(generate: ir.Model, translator: Translator) -> ir.Model:
    """Add tokenizers to a clone of the model over ids: `signatures.TRANSLATE`, with operators of onnxruntime-extensions."""
    model, op = _reading_text(generate, "translate", translator.source_tokenizer)
    _read_prefix(model.graph, op, translator.target_tokenizer)
    outputs = model.graph.outputs
    outputs[0] = _declare(write_detokenizer(op, outputs[0], translator.target_tokenizer.pieces()), TRANSLATE.outputs[0])
    _settle(model)
    return model


def score_graph(translator: Translator) -> ir.Model:
    """Return the model that scores pairs of ids, `signatures.SCORE_AND_ATTEND`, of standard operators.

    The tokenizers are in the metadata, with which `OnnxScorer` scores texts too.
    """
    around = _around(type(translator.functions), Structure.of(translator.model), SCORE_AND_ATTEND)  # type: ignore[arg-type]
    model = _with_layers(around, "score", SCORE_AND_ATTEND, translator.model)
    tokenizers = {SOURCE_TOKENIZER: translator.source_tokenizer, TARGET_TOKENIZER: translator.target_tokenizer}
    for name, tokenizer in tokenizers.items():
        model.metadata_props[name] = base64.b64encode(tokenizer.model).decode()
    return model


def probabilities_graph(classifier: TextClassifier) -> ir.Model:
    """Return the classifier over ids, `signatures.CLASSIFY_IDS`, of standard operators."""
    placeholder = cast("Classifier", PlaceholderClassifier(classifier.model))
    around = type(classifier.functions)(placeholder, classifier.tokenizer, classifier.labels)
    converted = from_tensorflow(traced(around, CLASSIFY_IDS).get_concrete_function())
    return _with_layers(converted, "probabilities", CLASSIFY_IDS, classifier.model)


def classify_graph(probabilities: ir.Model, classifier: TextClassifier) -> ir.Model:
    """Add the tokenizer and the labels to a clone of the model over ids: `signatures.CLASSIFY_TEXT`, as in `translate_graph`."""
    model, op = _reading_text(probabilities, "classify", classifier.tokenizer)
    outputs = model.graph.outputs
    found = [*write_best_label(op, outputs[0], classifier.labels), outputs[0]]
    outputs.clear()
    outputs.extend(map(_declare, found, CLASSIFY_TEXT.outputs))
    _settle(model)
    return model


def step_graphs(translator: Translator) -> dict[str, ir.Model]:
    """Return the encoder and the decoder step, `signatures.encode` and `signatures.decoder_step`, of standard operators.

    Returns:
        The models by the name of their function. A model without an encoder has no "encode".
    """
    config = translator.model.config
    structure = Structure.of(translator.model)
    models = {
        name: _with_layers(_step_around(structure, name, signature), name, signature, translator.model)
        for name, signature in step_signatures(config).items()
    }
    _set_defaults(models["decoder_step"].graph, config.max_length)
    return models


def tokenizer_graph(tokenizer: SubwordTokenizer) -> ir.Model:
    """Return the model from texts to source ids, `signatures.TOKENIZE`, with operators of onnxruntime-extensions."""
    text = _declare(ir.Value(), TEXT)
    graph = ir.Graph([text], [], nodes=[], opset_imports={"": OPSET, TEXT_OPERATORS: 1}, name="tokenize")
    graph.outputs.append(_declare(write_tokenizer(tape.Tape(graph), text, tokenizer.model), SOURCE_IDS))
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="tfk_transformer")


def _with_layers(
    converted: ir.Model,
    name: str,
    signature: Signature,
    model: "ConfiguredModel",
    profile: Profile = PORTABLE,
) -> ir.Model:
    """Return a copy of a graph around placeholders with a model's layers, a name, and the names and shapes of a signature."""
    finished = converted.clone()
    insert_layers(finished, model, profile)
    optimize(finished)
    _arrange(finished.graph.inputs, signature.inputs)
    _arrange(finished.graph.outputs, signature.outputs)
    finished.producer_name, finished.graph.name = "tfk_transformer", name
    return finished


def _reading_text(over_ids: ir.Model, name: str, tokenizer: SubwordTokenizer) -> tuple[ir.Model, tape.Tape]:
    """Return a clone of a model over ids that tokenizes texts, and the tape that adds more operators to it."""
    model = over_ids.clone()
    graph = model.graph
    graph.name = name
    op = tape.Tape(graph)
    text, source_ids = _declare(ir.Value(), TEXT), graph.inputs[0]
    ir.convenience.replace_all_uses_with(source_ids, write_tokenizer(op, text, tokenizer.model))
    graph.inputs[0] = text
    model.opset_imports[TEXT_OPERATORS] = 1
    return model, op


def _settle(model: ir.Model) -> None:
    """Sort added operators by their inputs, and give them names that no loop body has."""
    model.graph.sort()
    NameFixPass()(model)


def _read_prefix(graph: ir.Graph, op: tape.Tape, tokenizer: SubwordTokenizer) -> None:
    """Replace the input of prefix ids by one of prefix texts, whose default is empty."""
    prefix, prefix_ids = _declare(ir.Value(), PREFIX), graph.inputs[1]
    graph.initializers.pop(prefix_ids.name)
    ir.convenience.replace_all_uses_with(prefix_ids, write_tokenizer(op, prefix, tokenizer.model))
    graph.inputs[1] = prefix
    _set_default(graph, prefix, ir.StringTensor([b""], shape=ir.Shape([1])))


def _arrange(values: MutableSequence[ir.Value], tensors: Iterable[TensorSignature]) -> None:
    """Sort a graph's inputs or outputs as the signature does, and set its dtypes and shapes."""
    by_name = {value.name: value for value in values}
    values.clear()
    values.extend(_declare(by_name[tensor.name], tensor) for tensor in tensors)


def _declare(value: ir.Value, tensor: TensorSignature) -> ir.Value:
    value.name, value.shape = tensor.name, ir.Shape(tensor.shape)
    value.dtype = {"string": ir.DataType.STRING, "int32": ir.DataType.INT32, "float32": ir.DataType.FLOAT}[tensor.dtype]
    return value


def _set_defaults(graph: ir.Graph, max_length: int) -> None:
    """Make the search settings and the prefix optional; `max_length` is the model's."""
    # Padding forces nothing, as no column would; OpenVINO does not read a default without elements.
    defaults = {**search_defaults(max_length).model_dump(), PREFIX_IDS.name: [[PAD_ID]]}
    for value in graph.inputs:
        if value.name in defaults:
            _set_default(graph, value, ir.tensor(np.array(defaults[value.name], value.dtype.numpy())))


def _set_default(graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol) -> None:
    """Give an input a default: an initializer of the same name."""
    tensor.name = value.name
    value.const_value = tensor
    graph.register_initializer(value)
