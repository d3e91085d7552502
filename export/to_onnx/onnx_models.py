"""Build the ONNX models for search, scoring, decoding steps and classification.

Each model is one graph over ids. With a tokenizer and a detokenizer or labels, the same graph works
on texts.
"""

import base64
import itertools
from collections.abc import Iterable, Mapping, MutableSequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from onnx_ir import tape
from onnx_ir.passes.common import NameFixPass

from tfk_transformer.config.search_settings import Rules, default_numbers
from tfk_transformer.constants import PAD_ID
from tfk_transformer.export.runtime.onnx_runtime import (
    CHARACTERS,
    SOURCE_TOKENIZER,
    TARGET_TOKENIZER,
)
from tfk_transformer.export.runtime.text_session import TEXT_OPERATORS
from tfk_transformer.export.to_onnx.conversion import IR_VERSION, OPSET
from tfk_transformer.export.to_onnx.layer_operators.layer_nodes import (
    PORTABLE,
    Profile,
    insert_layers,
)
from tfk_transformer.export.to_onnx.optimize import optimize
from tfk_transformer.export.to_onnx.templates.expansion import (
    Template,
    expand,
    ints,
    mean,
    split_memory,
    write_read_nodes,
    write_step_nodes,
)
from tfk_transformer.export.to_onnx.text_operators import (
    write_best_label,
    write_detokenizer,
    write_tokenizer,
)
from tfk_transformer.export.to_onnx.traced_layers import insert_traced_layers
from tfk_transformer.inference import signatures
from tfk_transformer.inference.signatures import (
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
from tfk_transformer.inference.step_tensors import cache_shapes, memory_shapes
from tfk_transformer.models.token_model import TokenModel
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

if TYPE_CHECKING:
    from tfk_transformer.config.model_options import TokenConfig
    from tfk_transformer.models.configured_model import ConfiguredModel


def generate_graph(translator: Translator, profile: Profile | None = PORTABLE) -> ir.Model:
    """Return the model from source ids to target ids, `signatures.GENERATE`.

    The profile is `layer_nodes.PORTABLE`, or a result of `layer_nodes.int8_profile`. None: the
    layers are not this package's, see `traced_layers`.
    """
    outer = _expand("search", translator)
    model = _add_layers(outer, "generate", GENERATE, translator.model, profile)
    _set_defaults(model.graph, translator.runtime.rules)
    return model


def translate_graph(generate: ir.Model, translator: Translator) -> ir.Model:
    """Return the model from texts to translations, `signatures.TRANSLATE`.

    The model is a clone of the model over ids with tokenizers from onnxruntime-extensions.
    """
    model, op = _add_tokenizer(generate, "translate", translator.source_tokenizer)
    _tokenize_prefix(model.graph, op, translator.target_tokenizer)
    outputs = model.graph.outputs
    texts = write_detokenizer(op, outputs[0], translator.target_tokenizer.pieces())
    outputs[0] = _declare(texts, TRANSLATE.outputs[0])
    _sort_and_name(model)
    return model


def score_graph(translator: Translator, profile: Profile | None = PORTABLE) -> ir.Model:
    """Return the model that scores pairs of ids, `signatures.SCORE_AND_ATTEND`.

    It has only standard operators. The tokenizers are in the metadata, so that `OnnxScorer` can
    also score texts.
    """
    outer = _expand("score", translator, shortlist=False, blocks=False)
    model = _add_layers(outer, "score", SCORE_AND_ATTEND, translator.model, profile)
    tokenizers = {
        SOURCE_TOKENIZER: translator.source_tokenizer,
        TARGET_TOKENIZER: translator.target_tokenizer,
    }
    for name, tokenizer in tokenizers.items():
        model.metadata_props[name] = base64.b64encode(tokenizer.model).decode()
    return model


def probabilities_graph(classifier: TextClassifier, profile: Profile | None = PORTABLE) -> ir.Model:
    """Return the classifier over ids, `signatures.CLASSIFY_IDS`, with standard operators."""
    config = classifier.model.config
    sizes = {
        "source_vocab_size": config.vocab_size,
        "target_vocab_size": 0,
        "max_length": config.max_length,
    }
    outer = expand(Template("probabilities"), sizes)
    return _add_layers(outer, "probabilities", CLASSIFY_IDS, classifier.model, profile)


def classify_graph(probabilities: ir.Model, classifier: TextClassifier) -> ir.Model:
    """Return the classifier over texts, `signatures.CLASSIFY_TEXT`.

    The model is a clone of the classifier over ids with the tokenizer and the labels.
    """
    model, op = _add_tokenizer(probabilities, "classify", classifier.tokenizer)
    outputs = model.graph.outputs
    results = [*write_best_label(op, outputs[0], classifier.labels), outputs[0]]
    outputs.clear()
    outputs.extend(map(_declare, results, CLASSIFY_TEXT.outputs))
    _sort_and_name(model)
    return model


def step_graphs(translator: Translator, profile: Profile | None = PORTABLE) -> dict[str, ir.Model]:
    """Return the models of the functions "encode" and "decoder_step", with standard operators.

    A model without an encoder has only "decoder_step".
    """
    config = translator.model.config
    models = {}
    if encode := signatures.encode(config):
        outer = _encoder_graph(encode, config)
        models["encode"] = _add_layers(outer, "encode", encode, translator.model, profile)
    decoder_step = signatures.decoder_step(config)
    outer = _step_graph(decoder_step, translator)
    step = _add_layers(outer, "decoder_step", decoder_step, translator.model, profile)
    _set_defaults(step.graph, translator.runtime.rules)
    models["decoder_step"] = step
    return models


def _encoder_graph(signature: Signature, config: "TokenConfig") -> ir.Model:
    source_ids = _declare(ir.Value(), SOURCE_IDS)
    graph = ir.Graph([source_ids], [], nodes=[], opset_imports={"": OPSET})
    op = tape.Tape(graph)
    memory = _copy_values(op, write_read_nodes(op, config.members, source_ids))
    members = split_memory(config.members, memory)
    layers = [value for member in members for value in member[:-1]]
    mask = members[0][-1]  # the same for all members
    graph.outputs.extend(map(_declare, (*layers, mask), signature.outputs))
    return ir.Model(graph, ir_version=IR_VERSION)


def _step_graph(signature: Signature, translator: Translator) -> ir.Model:
    config = translator.model.config
    inputs = {tensor.name: _declare(ir.Value(), tensor) for tensor in signature.inputs}
    cache = [inputs[name] for name in cache_shapes(config)]
    layers = iter(memory_shapes(config))
    memory = []
    for member in config.members if "source_mask" in inputs else ():
        names = itertools.islice(layers, 2 * member.decoder_layers)
        memory += [*(inputs[name] for name in names), inputs["source_mask"]]
    op = tape.Tape()
    step_tensors = _step_tensors(op, inputs["target_ids"])
    logits, _, next_cache = write_step_nodes(op, config.members, step_tensors, cache, memory)
    output = logits[0]
    if len(logits) > 1:
        output = mean(op, [op.op("LogSoftmax", [values], {"axis": -1}) for values in logits])
    output = op.op("Squeeze", [output, ints(op, 1)])

    model = _expand("choice", translator, {"logits": logits}, has_source=True, shortlist=False)
    graph = model.graph
    for value in graph.inputs:
        ir.convenience.replace_all_uses_with(value, inputs[value.name])
    graph.inputs.clear()
    graph.inputs.extend(inputs.values())
    graph.extend(op.nodes)
    template_outputs = ("next_token", "log_prob")
    next_cache = _copy_values(tape.Tape(graph), next_cache)
    tensors = [tensor for tensor in signature.outputs if tensor.name not in template_outputs]
    graph.outputs.extend(map(_declare, (output, *next_cache), tensors))
    graph.sort()
    return model


def _step_tensors(op: tape.Tape, ids: ir.Value) -> list[ir.Value]:
    """Return the inputs of a step for ids (N, T), each row of which is one hypothesis: the last
    tokens (N, 1), their position (), and a lineage that hides nothing (N, 1, 1, T).
    """
    last = op.op("Slice", [ids, ints(op, -1), ints(op, np.iinfo("int64").max), ints(op, 1)])
    rows, length = (op.op("Shape", [ids], {"start": axis, "end": axis + 1}) for axis in range(2))
    position = op.op("Squeeze", [op.op("Sub", [length, ints(op, 1)])])
    shape = op.op("Concat", [rows, ints(op, 1, 1), length], {"axis": 0})
    position = op.op("Cast", [position], {"to": ir.DataType.INT32.value})
    return [last, position, op.op("ConstantOfShape", [shape])]


def _copy_values(op: tape.Tape, values: Iterable[ir.Value]) -> list[ir.Value]:
    """Copy values for outputs, since the keys and values of a layer can be the same value."""
    return [op.op("Identity", [value]) for value in values]


def tokenizer_graph(tokenizer: SubwordTokenizer) -> ir.Model:
    """Return the model from texts to source ids, `signatures.TOKENIZE`.

    Its operators are from onnxruntime-extensions.
    """
    text = _declare(ir.Value(), TEXT)
    opsets = {"": OPSET, TEXT_OPERATORS: 1}
    graph = ir.Graph([text], [], nodes=[], opset_imports=opsets, name="tokenize")
    ids = write_tokenizer(tape.Tape(graph), text, tokenizer.model)
    graph.outputs.append(_declare(ids, SOURCE_IDS))
    model = ir.Model(graph, ir_version=IR_VERSION)
    _add_characters(model, tokenizer)
    return model


def _expand(
    task: str,
    translator: Translator,
    packed: Mapping[str, list[ir.Value]] | None = None,
    **options: Any,
) -> ir.Model:
    """Return the graph of a task around the layers of a translator's model; see `expand`.

    The options are those of `Template` that do not follow from the translator.
    """
    config = translator.model.config
    functions = translator.functions
    shortlist = functions.shortlist
    template = Template(
        task,
        has_source=config.has_encoder,
        shortlist=shortlist is not None,
        blocks=functions.vocabulary.block_size is not None,
    )
    tables = {} if shortlist is None else {"likely": shortlist.likely, "always": shortlist.always}
    arrays = {
        "source_vocab_size": config.source_vocab_size,
        "target_vocab_size": config.target_vocab_size,
        "max_length": config.max_length,
        "block": functions.vocabulary.block_size,
        **tables,
    }
    return expand(template._replace(**options), arrays, config, packed)


def _add_layers(
    outer: ir.Model,
    name: str,
    signature: Signature,
    model: "ConfiguredModel",
    profile: Profile | None,
) -> ir.Model:
    """Insert a model's layers into a graph, and give the graph a name and a signature."""
    members = model.named_members() if isinstance(model, TokenModel) else {"": model}
    if profile is None:
        insert_traced_layers(outer, members)
    else:
        insert_layers(outer, members, profile)
    optimize(outer)
    _apply_signature(outer.graph.inputs, signature.inputs)
    _apply_signature(outer.graph.outputs, signature.outputs)
    outer.graph.name = name
    return outer


def _add_tokenizer(
    over_ids: ir.Model, name: str, tokenizer: SubwordTokenizer
) -> tuple[ir.Model, tape.Tape]:
    """Return a clone of a model over ids that tokenizes texts, and the tape that adds more
    operators to it.
    """
    model = over_ids.clone()
    graph = model.graph
    graph.name = name
    op = tape.Tape(graph)
    text = _declare(ir.Value(), TEXT)
    source_ids = write_tokenizer(op, text, tokenizer.model)
    _add_characters(model, tokenizer)
    ir.convenience.replace_all_uses_with(graph.inputs[0], source_ids)
    graph.inputs[0] = text
    model.opset_imports[TEXT_OPERATORS] = 1
    return model, op


def _add_characters(model: ir.Model, tokenizer: SubwordTokenizer) -> None:
    """Write the characters that the vocabulary represents to the metadata, if it lacks some."""
    characters = tokenizer.characters()
    if characters is not None:
        model.metadata_props[CHARACTERS] = characters.as_text()


def _sort_and_name(model: ir.Model) -> None:
    """Sort added operators by their inputs, and give them names that no loop body has."""
    model.graph.sort()
    NameFixPass()(model)


def _tokenize_prefix(graph: ir.Graph, op: tape.Tape, tokenizer: SubwordTokenizer) -> None:
    """Replace the input of prefix ids by an input of prefix texts, whose default is empty."""
    prefix = _declare(ir.Value(), PREFIX)
    graph.initializers.pop(graph.inputs[1].name)
    prefix_ids = write_tokenizer(op, prefix, tokenizer.model)
    ir.convenience.replace_all_uses_with(graph.inputs[1], prefix_ids)
    graph.inputs[1] = prefix
    _set_default(graph, prefix, ir.StringTensor([b""], shape=ir.Shape([1])))


def _apply_signature(values: MutableSequence[ir.Value], tensors: Iterable[TensorSignature]) -> None:
    """Sort a graph's inputs or outputs as in the signature, and set their dtypes and shapes."""
    by_name = {value.name: value for value in values}
    values.clear()
    values.extend(_declare(by_name[tensor.name], tensor) for tensor in tensors)


def _declare(value: ir.Value, tensor: TensorSignature) -> ir.Value:
    value.name = tensor.name
    value.shape = ir.Shape(tensor.shape)
    value.dtype = {
        "string": ir.DataType.STRING,
        "int32": ir.DataType.INT32,
        "float32": ir.DataType.FLOAT,
    }[tensor.dtype]
    return value


def _set_defaults(graph: ir.Graph, rules: Rules) -> None:
    """Make the search settings and the prefix optional, with the defaults of a model's rules."""
    # A prefix of padding forces nothing, like a prefix without tokens, but OpenVINO does not read a
    # default without elements.
    defaults = {**default_numbers(rules), PREFIX_IDS.name: [[PAD_ID]]}
    for value in graph.inputs:
        if value.name in defaults:
            array = np.array(defaults[value.name], value.dtype.numpy())
            _set_default(graph, value, ir.tensor(array))


def _set_default(graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol) -> None:
    """Give an input a default: an initializer of the same name."""
    tensor.name = value.name
    value.const_value = tensor
    graph.register_initializer(value)
