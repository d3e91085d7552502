"""Build the ONNX models for search, scoring, decoding steps and classification.

Each model is one graph over ids. With tokenizers or labels, the same graph works on texts.
"""

import base64
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import Value, tape
from onnx_ir.passes.common import NameFixPass

from tfk_transformer.config.search_settings import Rules, default_numbers
from tfk_transformer.constants import PAD_ID
from tfk_transformer.export.runtime import onnx_runtime
from tfk_transformer.export.runtime.text_session import TEXT_OPERATORS
from tfk_transformer.export.to_onnx import text_operators
from tfk_transformer.export.to_onnx.conversion import IR_VERSION, OPSET
from tfk_transformer.export.to_onnx.layer_operators.layer_nodes import insert_layers
from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import WeightRounding
from tfk_transformer.export.to_onnx.optimize import optimize
from tfk_transformer.export.to_onnx.templates import expansion
from tfk_transformer.export.to_onnx.templates.expansion import ints, mean
from tfk_transformer.export.to_onnx.traced_layers import insert_traced_layers
from tfk_transformer.inference import signatures
from tfk_transformer.inference.signatures import Signature, TensorSignature
from tfk_transformer.models.configured_model import ConfiguredModel
from tfk_transformer.models.token_model import TokenModel
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

DTYPES = {"string": ir.DataType.STRING, "int32": ir.DataType.INT32, "float32": ir.DataType.FLOAT}


def generate_graph(
    translator: Translator, traced: bool = False, rounding: WeightRounding | None = None
) -> ir.Model:
    """Return the model from source ids to target ids, `signatures.GENERATE`.

    If `traced`, the layers are not this package's. `rounding` rounds the weights to 8 bits.
    """
    outer = _expand("search", translator)
    model = _add_layers(outer, "generate", signatures.GENERATE, translator.model, traced, rounding)
    _set_defaults(model.graph, translator.runtime.rules)
    return model


def translate_graph(generate: ir.Model, translator: Translator) -> ir.Model:
    """Return a clone of the model over ids from texts to translations, `signatures.TRANSLATE`."""
    # The prefix becomes a text, too. It is empty by default.
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    model, op = _add_tokenizers(generate, "translate", tokenizers)
    graph = model.graph
    prefix = graph.inputs[1]
    _set_default(graph, prefix, ir.StringTensor([b""], shape=ir.Shape([1])))
    texts = text_operators.write_detokenizer(
        op, graph.outputs[0], translator.target_tokenizer.pieces()
    )
    graph.outputs[0] = _declare(texts, signatures.TRANSLATE.outputs[0])
    graph.sort()
    NameFixPass()(model)  # names that no loop body has
    return model


def score_graph(translator: Translator, traced: bool = False) -> ir.Model:
    """Return the model that scores pairs of ids, `signatures.SCORE_AND_ATTEND`.

    The tokenizers are in the metadata, so that `OnnxScorer` can also score texts.
    """
    outer = _expand("score", translator)
    model = _add_layers(outer, "score", signatures.SCORE_AND_ATTEND, translator.model, traced)
    for name, tokenizer in (
        (onnx_runtime.SOURCE_TOKENIZER, translator.source_tokenizer),
        (onnx_runtime.TARGET_TOKENIZER, translator.target_tokenizer),
    ):
        model.metadata_props[name] = base64.b64encode(tokenizer.model).decode()
    return model


def probabilities_graph(classifier: TextClassifier, traced: bool = False) -> ir.Model:
    """Return the classifier over ids, `signatures.CLASSIFY_IDS`."""
    config = classifier.model.config
    sizes = {
        "source_vocab_size": config.vocab_size,
        "target_vocab_size": 0,
        "max_length": config.max_length,
    }
    outer = expansion.expand("probabilities", sizes)
    return _add_layers(outer, "probabilities", signatures.CLASSIFY_IDS, classifier.model, traced)


def classify_graph(probabilities: ir.Model, classifier: TextClassifier) -> ir.Model:
    """Return a clone of a classifier over ids for texts, `signatures.CLASSIFY_TEXT`."""
    model, op = _add_tokenizers(probabilities, "classify", [classifier.tokenizer])
    outputs = model.graph.outputs
    results = [*text_operators.write_best_label(op, outputs[0], classifier.labels), outputs[0]]
    outputs.clear()
    outputs.extend(map(_declare, results, signatures.CLASSIFY_TEXT.outputs))
    model.graph.sort()
    NameFixPass()(model)  # names that no loop body has
    return model


def step_graphs(translator: Translator, traced: bool = False) -> dict[str, ir.Model]:
    """Return the models of "encode", if the model has an encoder, and of "decoder_step"."""
    config = translator.model.config
    models = {}
    if encode := signatures.encode(config):
        source_ids = _declare(Value(), signatures.SOURCE_IDS)
        graph = ir.Graph([source_ids], [], nodes=[], opset_imports={"": OPSET})
        op = tape.Tape(graph)
        memory = [
            op.op("Identity", [value])  # the keys and values of a layer can be the same value
            for value in expansion.write_read_nodes(op, config.members, source_ids)
        ]
        members = expansion.split_memory(config.members, memory)
        layers = [value for member in members for value in member[:-1]]
        mask = members[0][-1]  # the same for all members
        graph.outputs.extend(map(_declare, (*layers, mask), encode.outputs))
        outer = ir.Model(graph, ir_version=IR_VERSION)
        models["encode"] = _add_layers(outer, "encode", encode, translator.model, traced)
    decoder_step = signatures.decoder_step(config)
    outer = _step_graph(decoder_step, translator)
    step = _add_layers(outer, "decoder_step", decoder_step, translator.model, traced)
    _set_defaults(step.graph, translator.runtime.rules)
    models["decoder_step"] = step
    return models


def _step_graph(signature: Signature, translator: Translator) -> ir.Model:
    config = translator.model.config
    inputs = {tensor.name: _declare(Value(), tensor) for tensor in signature.inputs}
    cache = [inputs[name] for name in signatures.cache_shapes(config)]
    layers = iter(signatures.memory_shapes(config))
    memory = []
    for member in config.members if "source_mask" in inputs else ():
        names = itertools.islice(layers, 2 * member.decoder_layers)
        memory += [*(inputs[name] for name in names), inputs["source_mask"]]
    op = tape.Tape()
    ids = inputs["target_ids"]  # (N, T): each row is one hypothesis
    last = op.op("Slice", [ids, ints(op, -1), ints(op, np.iinfo("int64").max), ints(op, 1)])
    rows, length = (op.op("Shape", [ids], {"start": axis, "end": axis + 1}) for axis in range(2))
    position = op.op("Squeeze", [op.op("Sub", [length, ints(op, 1)])])
    shape = op.op("Concat", [rows, ints(op, 1, 1), length], {"axis": 0})
    position = op.op("Cast", [position], {"to": ir.DataType.INT32.value})
    step_tensors = [last, position, op.op("ConstantOfShape", [shape])]  # the lineage hides nothing
    logits, _, next_cache = expansion.write_step_nodes(
        op, config.members, step_tensors, cache, memory
    )
    output = logits[0]
    if len(logits) > 1:
        output = mean(op, [op.op("LogSoftmax", [values], {"axis": -1}) for values in logits])
    output = op.op("Squeeze", [output, ints(op, 1)])

    model = _expand("choice", translator, {"logits": logits})
    graph = model.graph
    for value in graph.inputs:
        ir.convenience.replace_all_uses_with(value, inputs[value.name])
    graph.inputs[:] = inputs.values()
    graph.extend(op.nodes)
    template_outputs = ("next_token", "log_prob")
    op = tape.Tape(graph)
    next_cache = [op.op("Identity", [value]) for value in next_cache]  # as in "encode"
    tensors = [tensor for tensor in signature.outputs if tensor.name not in template_outputs]
    graph.outputs.extend(map(_declare, (output, *next_cache), tensors))
    graph.sort()
    return model


def tokenizer_graph(tokenizer: SubwordTokenizer) -> ir.Model:
    """Return the model from texts to source ids, `signatures.TOKENIZE`."""
    text = _declare(Value(), signatures.TEXT)
    opsets = {"": OPSET, TEXT_OPERATORS: 1}
    graph = ir.Graph([text], [], nodes=[], opset_imports=opsets, name="tokenize")
    (ids,) = text_operators.write_tokenizer(tape.Tape(graph), [text], tokenizer.graph_model)
    graph.outputs.append(_declare(ids, signatures.SOURCE_IDS))
    model = ir.Model(graph, ir_version=IR_VERSION)
    _add_characters(model, tokenizer)
    return model


def _expand(
    task: str, translator: Translator, packed: Mapping[str, list[Value]] | None = None
) -> ir.Model:
    """Return the graph of a task around the layers of a translator's model; see `expand`."""
    config = translator.model.config
    functions = translator.functions
    shortlist = functions.shortlist
    options = {
        "continuation": task != "choice" and not config.has_encoder,
        "shortlist": task == "search" and shortlist is not None,
        "blocks": task != "score" and functions.vocabulary.block_size is not None,
    }
    template = "_".join([task, *(name for name, is_used in options.items() if is_used)])
    tables = {} if shortlist is None else {"likely": shortlist.likely, "always": shortlist.always}
    arrays = {
        "source_vocab_size": config.source_vocab_size,
        "target_vocab_size": config.target_vocab_size,
        "max_length": config.max_length,
        "block": functions.vocabulary.block_size,
        **tables,
    }
    return expansion.expand(template, arrays, config, packed)


def _add_layers(
    outer: ir.Model,
    name: str,
    signature: Signature,
    model: ConfiguredModel,
    traced: bool,
    rounding: WeightRounding | None = None,
) -> ir.Model:
    """Insert a model's layers into a graph, and give the graph a name and a signature."""
    members = model.named_members() if isinstance(model, TokenModel) else {"": model}
    if traced:
        insert_traced_layers(outer, members)
    else:
        insert_layers(outer, members, rounding)
    optimize(outer)
    graph = outer.graph
    for values, tensors in ((graph.inputs, signature.inputs), (graph.outputs, signature.outputs)):
        by_name = {value.name: value for value in values}
        values[:] = [_declare(by_name[tensor.name], tensor) for tensor in tensors]
    graph.name = name
    return outer


def _add_tokenizers(
    over_ids: ir.Model, name: str, tokenizers: Sequence[SubwordTokenizer]
) -> tuple[ir.Model, tape.Tape]:
    """Return a clone of a model over ids whose first inputs are texts, and the tape that extends
    it.

    Equal tokenizers become one operator: its SentencePiece model is in the file once.
    """
    model = over_ids.clone()
    graph = model.graph
    graph.name = name
    op = tape.Tape(graph)
    inputs: dict[bytes, list[int]] = {}
    for number, tokenizer in enumerate(tokenizers):
        inputs.setdefault(tokenizer.graph_model, []).append(number)
    for tokenizer_model, numbers in inputs.items():
        texts = [_declare(Value(), (signatures.TEXT, signatures.PREFIX)[i]) for i in numbers]
        all_ids = text_operators.write_tokenizer(op, texts, tokenizer_model)
        for number, text, ids in zip(numbers, texts, all_ids, strict=True):
            graph.initializers.pop(graph.inputs[number].name, None)  # the default
            ir.convenience.replace_all_uses_with(graph.inputs[number], ids)
            graph.inputs[number] = text
    _add_characters(model, tokenizers[0])
    model.opset_imports[TEXT_OPERATORS] = 1
    return model, op


def _add_characters(model: ir.Model, tokenizer: SubwordTokenizer) -> None:
    # The metadata has the characters that the vocabulary represents, if it lacks some.
    characters = tokenizer.characters()
    if characters is not None:
        model.metadata_props[onnx_runtime.CHARACTERS] = characters.as_text()


def _declare(value: Value, tensor: TensorSignature) -> Value:
    value.name = tensor.name
    value.shape = ir.Shape(tensor.shape)
    value.dtype = DTYPES[tensor.dtype]
    return value


def _set_defaults(graph: ir.Graph, rules: Rules) -> None:
    """Make the search settings and the prefix optional, with the defaults of a model's rules."""
    # A prefix of padding forces nothing, like a prefix without tokens, but OpenVINO does not read a
    # default without elements.
    defaults = {**default_numbers(rules), signatures.PREFIX_IDS.name: [[PAD_ID]]}
    for value in graph.inputs:
        if value.name in defaults:
            array = np.array(defaults[value.name], value.dtype.numpy())
            _set_default(graph, value, ir.tensor(array))


def _set_default(graph: ir.Graph, value: Value, tensor: ir.TensorProtocol) -> None:
    tensor.name = value.name
    value.const_value = tensor
    graph.register_initializer(value)
