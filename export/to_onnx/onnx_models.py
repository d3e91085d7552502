"""ONNX models of whole searches, of scoring, of decoding steps and of classifiers.

Each is one graph over ids. The same graph with tokenizers and labels at its ends works on texts.
"""

import base64
import itertools
from collections.abc import Iterable, MutableSequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from onnx_ir import tape
from onnx_ir.passes.common import NameFixPass

from tfk_transformer.config.search_settings import search_defaults
from tfk_transformer.constants import PAD_ID
from tfk_transformer.export import signatures
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
from tfk_transformer.export.to_onnx.conversion import IR_VERSION, OPSET
from tfk_transformer.export.to_onnx.onnx_layers import PORTABLE, Profile, insert_layers
from tfk_transformer.export.to_onnx.optimize import optimize
from tfk_transformer.export.to_onnx.templates.expansion import (
    Template,
    expand,
    mean,
    write_read_nodes,
    write_step_nodes,
)
from tfk_transformer.export.to_onnx.text_operators import (
    TEXT_OPERATORS,
    write_best_label,
    write_detokenizer,
    write_tokenizer,
)
from tfk_transformer.inference.step_tensors import cache_shapes, memory_shapes
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

if TYPE_CHECKING:
    from tfk_transformer.config.model_options import TokenConfig
    from tfk_transformer.models.base import ConfiguredModel


def generate_graph(translator: Translator, profile: Profile = PORTABLE) -> ir.Model:
    """Return the model from source ids to target ids, `signatures.GENERATE`.

    Args:
        translator: the translator.
        profile: `onnx_layers.PORTABLE`, or a result of `onnx_layers.int8_profile`.
    """
    config = translator.model.config
    around = expand(_template("search", translator), _arrays(translator), config)
    model = _with_layers(around, "generate", GENERATE, translator.model, profile)
    _set_defaults(model.graph, config.max_length)
    return model


def translate_graph(generate: ir.Model, translator: Translator) -> ir.Model:
    """Add tokenizers to a clone of the model over ids: `signatures.TRANSLATE`, with operators of
    onnxruntime-extensions.
    """
    model, op = _reading_text(generate, "translate", translator.source_tokenizer)
    _read_prefix(model.graph, op, translator.target_tokenizer)
    outputs = model.graph.outputs
    outputs[0] = _declare(
        write_detokenizer(op, outputs[0], translator.target_tokenizer.pieces()),
        TRANSLATE.outputs[0],
    )
    _settle(model)
    return model


def score_graph(translator: Translator) -> ir.Model:
    """Return the model that scores pairs of ids, `signatures.SCORE_AND_ATTEND`, of standard
    operators.

    The tokenizers are in the metadata, with which `OnnxScorer` scores texts too.
    """
    template = _template("score", translator)._replace(shortlist=False, blocks=False)
    around = expand(template, _arrays(translator), translator.model.config)
    model = _with_layers(around, "score", SCORE_AND_ATTEND, translator.model)
    tokenizers = {
        SOURCE_TOKENIZER: translator.source_tokenizer,
        TARGET_TOKENIZER: translator.target_tokenizer,
    }
    for name, tokenizer in tokenizers.items():
        model.metadata_props[name] = base64.b64encode(tokenizer.model).decode()
    return model


def probabilities_graph(classifier: TextClassifier) -> ir.Model:
    """Return the classifier over ids, `signatures.CLASSIFY_IDS`, of standard operators."""
    config = classifier.model.config
    sizes = {
        "source_vocab_size": config.vocab_size,
        "target_vocab_size": 0,
        "max_length": config.max_length,
    }
    around = expand(Template("probabilities"), sizes)
    return _with_layers(around, "probabilities", CLASSIFY_IDS, classifier.model)


def classify_graph(probabilities: ir.Model, classifier: TextClassifier) -> ir.Model:
    """Add the tokenizer and the labels to a clone of the model over ids:
    `signatures.CLASSIFY_TEXT`, as in `translate_graph`.
    """
    model, op = _reading_text(probabilities, "classify", classifier.tokenizer)
    outputs = model.graph.outputs
    found = [*write_best_label(op, outputs[0], classifier.labels), outputs[0]]
    outputs.clear()
    outputs.extend(map(_declare, found, CLASSIFY_TEXT.outputs))
    _settle(model)
    return model


def step_graphs(translator: Translator) -> dict[str, ir.Model]:
    """Return the encoder and the decoder step, `signatures.encode` and `signatures.decoder_step`,
    of standard operators.

    Returns:
        The models by the name of their function. A model without an encoder has no "encode".
    """
    config = translator.model.config
    encode, decoder_step = signatures.encode(config), signatures.decoder_step(config)
    models = {}
    if encode is not None:
        around = _around_encoder(encode, config)
        models["encode"] = _with_layers(around, "encode", encode, translator.model)
    around = _around_step(decoder_step, translator)
    model = _with_layers(around, "decoder_step", decoder_step, translator.model)
    _set_defaults(model.graph, config.max_length)
    return {**models, "decoder_step": model}


def _around_encoder(signature: Signature, config: "TokenConfig") -> ir.Model:
    source_ids = _declare(ir.Value(), SOURCE_IDS)
    graph = ir.Graph([source_ids], [], nodes=[], opset_imports={"": OPSET})
    op = tape.Tape(graph)
    memory = iter(_copied(op, write_read_nodes(op, config.members, source_ids)))
    layers: list[ir.Value] = []
    masks: list[ir.Value] = []
    for member in config.members:
        layers += itertools.islice(memory, 2 * member.decoder_layers)
        masks.append(next(memory))
    graph.outputs.extend(map(_declare, (*layers, masks[0]), signature.outputs))
    return ir.Model(graph, ir_version=IR_VERSION)


def _around_step(signature: Signature, translator: Translator) -> ir.Model:
    config = translator.model.config
    inputs = {tensor.name: _declare(ir.Value(), tensor) for tensor in signature.inputs}
    cache, layers = [inputs[name] for name in cache_shapes(config)], iter(memory_shapes(config))
    memory = []
    for member in config.members if "source_mask" in inputs else ():
        names = itertools.islice(layers, 2 * member.decoder_layers)
        memory += [*(inputs[name] for name in names), inputs["source_mask"]]
    op = tape.Tape()
    given = _last_position(op, inputs["target_ids"])
    logits, _, grown = write_step_nodes(op, config.members, given, cache, memory)
    if len(logits) == 1:
        shown = logits[0]
    else:
        shown = mean(op, [op.op("LogSoftmax", [one], {"axis": -1}) for one in logits])
    shown = op.op("Squeeze", [shown, _ints(op, 1)])

    template = _template("choice", translator)._replace(has_source=True, shortlist=False)
    model = expand(template, _arrays(translator), config, {"logits": logits})
    graph = model.graph
    for value in graph.inputs:
        ir.convenience.replace_all_uses_with(value, inputs[value.name])
    graph.inputs.clear()
    graph.inputs.extend(inputs.values())
    graph.extend(op.nodes)
    chosen = ("next_token", "log_prob")
    grown = _copied(tape.Tape(graph), grown)
    others = [tensor for tensor in signature.outputs if tensor.name not in chosen]
    graph.outputs.extend(map(_declare, (shown, *grown), others))
    graph.sort()
    return model


def _last_position(op: tape.Tape, ids: ir.Value) -> list[ir.Value]:
    """Return what a step reads of ids (N, T), each row of which is one hypothesis.

    Returns:
        The last tokens (N, 1), their position (), and a lineage that hides nothing (N, 1, 1, T).
    """
    last = op.op("Slice", [ids, _ints(op, -1), _ints(op, np.iinfo("int64").max), _ints(op, 1)])
    rows, length = (op.op("Shape", [ids], {"start": axis, "end": axis + 1}) for axis in range(2))
    position = op.op("Squeeze", [op.op("Sub", [length, _ints(op, 1)])])
    shape = op.op("Concat", [rows, _ints(op, 1, 1), length], {"axis": 0})
    position = op.op("Cast", [position], {"to": ir.DataType.INT32.value})
    return [last, position, op.op("ConstantOfShape", [shape])]


def _copied(op: tape.Tape, values: Iterable[ir.Value]) -> list[ir.Value]:
    """Return values for outputs: in some models, a layer's keys and values are the same."""
    return [op.op("Identity", [value]) for value in values]


def _ints(op: tape.Tape, *values: int) -> ir.Value:
    return op.op("Constant", [], {"value_ints": values})


def tokenizer_graph(tokenizer: SubwordTokenizer) -> ir.Model:
    """Return the model from texts to source ids, `signatures.TOKENIZE`, with operators of
    onnxruntime-extensions.
    """
    text = _declare(ir.Value(), TEXT)
    graph = ir.Graph(
        [text], [], nodes=[], opset_imports={"": OPSET, TEXT_OPERATORS: 1}, name="tokenize"
    )
    graph.outputs.append(
        _declare(write_tokenizer(tape.Tape(graph), text, tokenizer.model), SOURCE_IDS)
    )
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="tfk_transformer")


def _template(kind: str, translator: Translator) -> Template:
    """Return the template of a graph around a translator's model."""
    functions = translator.functions
    return Template(
        kind,
        has_source=translator.model.config.architecture != "decoder",
        shortlist=functions.shortlist is not None,
        blocks=functions.vocabulary.block is not None,
    )


def _arrays(translator: Translator) -> dict[str, np.ndarray | int | None]:
    """Return what graphs around a translator's model know of it; see `expand`."""
    config, functions = translator.model.config, translator.functions
    shortlist = functions.shortlist
    tables = {} if shortlist is None else {"likely": shortlist.likely, "always": shortlist.always}
    return {
        "source_vocab_size": config.source_vocab_size,
        "target_vocab_size": config.target_vocab_size,
        "max_length": config.max_length,
        "block": functions.vocabulary.block,
        **tables,
    }


def _with_layers(
    around: ir.Model,
    name: str,
    signature: Signature,
    model: "ConfiguredModel",
    profile: Profile = PORTABLE,
) -> ir.Model:
    """Insert a model's layers into the graph around them, and give it a name and a signature."""
    insert_layers(around, model, profile)
    optimize(around)
    _arrange(around.graph.inputs, signature.inputs)
    _arrange(around.graph.outputs, signature.outputs)
    around.producer_name, around.graph.name = "tfk_transformer", name
    return around


def _reading_text(
    over_ids: ir.Model, name: str, tokenizer: SubwordTokenizer
) -> tuple[ir.Model, tape.Tape]:
    """Return a clone of a model over ids that tokenizes texts, and the tape that adds more
    operators to it.
    """
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
    value.dtype = {
        "string": ir.DataType.STRING,
        "int32": ir.DataType.INT32,
        "float32": ir.DataType.FLOAT,
    }[tensor.dtype]
    return value


def _set_defaults(graph: ir.Graph, max_length: int) -> None:
    """Make the search settings and the prefix optional; `max_length` is the model's."""
    # Padding forces nothing, as no column would; OpenVINO does not read a default without elements.
    defaults = {**search_defaults(max_length).model_dump(), PREFIX_IDS.name: [[PAD_ID]]}
    for value in graph.inputs:
        if value.name in defaults:
            _set_default(
                graph, value, ir.tensor(np.array(defaults[value.name], value.dtype.numpy()))
            )


def _set_default(graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol) -> None:
    """Give an input a default: an initializer of the same name."""
    tensor.name = value.name
    value.const_value = tensor
    graph.register_initializer(value)
