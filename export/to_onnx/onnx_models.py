"""ONNX: the whole search, or a classifier, as one graph over ids, and the same graph with tokenizers and labels at its ends."""

import base64
import string

import numpy as np
import onnx_ir as ir
from onnx_ir import tape
from onnx_ir.passes.common import NameFixPass

from tfk_transformer.config.search_settings import default_settings
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
    Tensor,
)
from tfk_transformer.export.to_onnx.conversion import OPSET, from_tensorflow
from tfk_transformer.export.to_onnx.onnx_layers import PROFILES, Profile, write_layers
from tfk_transformer.export.to_onnx.optimize import optimize
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

IR_VERSION = 8  # as tf2onnx writes
TEXT_OPERATORS = "ai.onnx.contrib"  # the domain of onnxruntime-extensions


def search_graph(translator: Translator) -> ir.Model:
    """Convert the search alone, around nodes that stand for the model's layers, for `generate_graph`."""
    from tfk_transformer.export.functions import traced
    from tfk_transformer.export.to_onnx.placeholder_model import StandIn

    around = type(translator.functions)(StandIn(translator.model), translator.source_tokenizer, translator.target_tokenizer)
    return from_tensorflow(traced(around, GENERATE).get_concrete_function())


def generate_graph(search: ir.Model, translator: Translator, profile: Profile = PROFILES["portable"]) -> ir.Model:
    """Return a graph from source ids to target ids, `signatures.GENERATE`.

    Args:
        search: from `search_graph`; it is left as it is.
        translator: whose layers these are.
        profile: of `lean.PROFILES`; "portable" has standard operators alone.
    """
    model = search.clone()
    write_layers(model, translator.model, profile)
    model = _finished(model, "generate", GENERATE)
    _set_defaults(model.graph, translator.model.config.max_length)
    return model


def translate_graph(generate: ir.Model, translator: Translator) -> ir.Model:
    """Join tokenizers to a clone of the graph over ids: `signatures.TRANSLATE`, with operators of onnxruntime-extensions."""
    model, op = _reading_text(generate, "translate", translator.source_tokenizer)
    _read_prefix(model.graph, op, translator.target_tokenizer)
    outputs = model.graph.outputs
    outputs[0] = _declare(_decode(op, outputs[0], translator.target_tokenizer.pieces()), TRANSLATE.outputs[0])
    _settle(model)
    return model


def score_graph(translator: Translator) -> ir.Model:
    """Convert the scoring of pairs of ids, `signatures.SCORE_AND_ATTEND`, with standard operators alone.

    The tokenizers ride along as metadata, so that `OnnxScorer` takes texts too.
    """
    model = _converted(translator.functions, "score", SCORE_AND_ATTEND)
    tokenizers = {SOURCE_TOKENIZER: translator.source_tokenizer, TARGET_TOKENIZER: translator.target_tokenizer}
    for name, tokenizer in tokenizers.items():
        model.metadata_props[name] = base64.b64encode(tokenizer.model).decode()
    return model


def probabilities_graph(classifier: TextClassifier) -> ir.Model:
    """Convert a classifier to a graph from ids to probabilities, `signatures.CLASSIFY_IDS`, with standard operators alone."""
    return _converted(classifier.functions, "probabilities", CLASSIFY_IDS)


def classify_graph(probabilities: ir.Model, classifier: TextClassifier) -> ir.Model:
    """Join tokenizer and labels to a clone of the graph over ids: `signatures.CLASSIFY_TEXT`, as in `translate_graph`."""
    model, op = _reading_text(probabilities, "classify", classifier.tokenizer)
    outputs = model.graph.outputs
    found = [*_best(op, outputs[0], classifier.labels), outputs[0]]
    outputs.clear()
    outputs.extend(map(_declare, found, CLASSIFY_TEXT.outputs))
    _settle(model)
    return model


def step_graphs(translator: Translator) -> dict[str, ir.Model]:
    """Convert encoder and decoder step, `signatures.encode` and `signatures.decoder_step`, by name, with standard operators alone."""
    from tfk_transformer.export.step_functions import step_functions, step_signatures

    functions = step_functions(translator)
    graphs = {name: _to_onnx(functions[name], name, signature) for name, signature in step_signatures(translator.model.config).items()}
    _set_defaults(graphs["decoder_step"].graph, translator.model.config.max_length)
    return graphs


def tokenizer_graph(tokenizer: SubwordTokenizer) -> ir.Model:
    """Return a graph from text to source ids, `signatures.TOKENIZE`, with operators of onnxruntime-extensions."""
    text = _declare(ir.Value(), TEXT)
    graph = ir.Graph([text], [], nodes=[], opset_imports={"": OPSET, TEXT_OPERATORS: 1}, name="tokenize")
    graph.outputs.append(_declare(_encode(tape.Tape(graph), text, tokenizer.model), SOURCE_IDS))
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="tfk_transformer")


def _converted(graph, name: str, signature: Signature) -> ir.Model:
    """Convert a function of a `TranslationFunctions` or `ClassificationFunctions`."""
    from tfk_transformer.export.functions import traced_over_weights

    model = from_tensorflow(traced_over_weights(graph, signature).get_concrete_function())
    _give_weights(model.graph, graph.model.weights)
    return _finished(model, name, signature)


def _to_onnx(function, name: str, signature: Signature) -> ir.Model:
    return _finished(from_tensorflow(function.get_concrete_function()), name, signature)


def _finished(converted: ir.Model, name: str, signature: Signature) -> ir.Model:
    model = optimize(converted)
    _arrange(model.graph.inputs, signature.inputs)
    _arrange(model.graph.outputs, signature.outputs)
    model.producer_name, model.graph.name = "tfk_transformer", name
    return model


def _give_weights(graph: ir.Graph, weights) -> None:
    """Turn the inputs `weight_0` and so on into initializers with the names that the weights have in Keras."""
    inputs = {value.name: value for value in graph.inputs}
    for i, weight in enumerate(weights):
        value = inputs[f"weight_{i}"]
        graph.inputs.remove(value)
        value.name = weight.path.partition("/")[2]  # below the model, as in its `named_weights`
        value.const_value = ir.tensor(np.asarray(weight), name=value.name)
        graph.register_initializer(value)


def _reading_text(over_ids: ir.Model, name: str, tokenizer: SubwordTokenizer) -> tuple[ir.Model, tape.Tape]:
    """Return a clone of a graph over ids that tokenizes texts, and the tape to add more operators to it."""
    model = over_ids.clone()
    graph = model.graph
    graph.name = name
    op = tape.Tape(graph)
    text, source_ids = _declare(ir.Value(), TEXT), graph.inputs[0]
    ir.convenience.replace_all_uses_with(source_ids, _encode(op, text, tokenizer.model))
    graph.inputs[0] = text
    model.opset_imports[TEXT_OPERATORS] = 1
    return model, op


def _settle(model: ir.Model) -> None:
    """Put added operators where they belong, and give them names that no loop's body has."""
    model.graph.sort()
    NameFixPass()(model)


def _read_prefix(graph: ir.Graph, op: tape.Tape, tokenizer: SubwordTokenizer) -> None:
    """Put a text in the place of the prefix's ids; its default is the empty one."""
    prefix, prefix_ids = _declare(ir.Value(), PREFIX), graph.inputs[1]
    graph.initializers.pop(prefix_ids.name)
    ir.convenience.replace_all_uses_with(prefix_ids, _encode(op, prefix, tokenizer.model))
    graph.inputs[1] = prefix
    _set_default(graph, prefix, ir.StringTensor([b""], shape=ir.Shape([1])))


def _encode(op: tape.Tape, text, tokenizer: bytes):
    """Tokenize texts (N,) to int32 ids (N, S): tokens, end, padding."""
    zero, one, last = (_constant(op, name, [value]) for name, value in (("zero", 0), ("one", 1), ("last", -1)))
    no, yes = _constant(op, "no", [False]), _constant(op, "yes", [True])
    alpha = _constant(op, "alpha", np.zeros(1, "float32"))
    tokens, starts, _ = op.op_multi_out(
        "SentencepieceTokenizer",
        [text, zero, alpha, no, yes, no, no],  # nbest_size, alpha, add_bos, add_eos, reverse, fairseq
        attributes={"model": ir.Attr("model", ir.AttributeType.STRING, tokenizer)},
        num_outputs=3,
        domain=TEXT_OPERATORS,
    )
    # starts: the place of each text's first token in `tokens`, and at the end the number of tokens.
    first = op.op("Unsqueeze", [op.op("Slice", [starts, zero, last]), one])  # (N, 1)
    after = op.op("Unsqueeze", [op.op("Slice", [starts, one, _constant(op, "to_the_end", [2**62])]), one])
    lengths = op.op("Concat", [op.op("Sub", [after, first]), _constant(op, "no_tokens", [[0]])], {"axis": 0})  # for no texts at all
    longest = op.op("ReduceMax", [lengths], {"keepdims": 0})
    steps = op.op("Range", [_constant(op, "zero_scalar", 0), longest, _constant(op, "one_scalar", 1)])
    places = op.op("Add", [first, steps])  # (N, S)
    padded = op.op("Concat", [tokens, _constant(op, "padding", np.zeros(1, "int32"))], {"axis": 0})  # its last element is padding
    return op.op("Gather", [padded, op.op("Where", [op.op("Less", [places, after]), places, last])])


def _decode(op: tape.Tape, ids, pieces: list[str]):
    """Join the pieces of ids (N, n_best, T) to texts (N, n_best); pieces of end and padding are empty."""
    # A blank sentence more, of one more blank piece: StringJoin crashes the process where there is none to join.
    longer = op.op("Pad", [ids, _constant(op, "one_more", [0, 0, 0, 1, 0, 1])])
    # StringStrip leaves a text of blanks alone as it is, so such a text has no pieces instead; id 0 is padding.
    blank = _constant(op, "blank_pieces", np.array([not piece.strip(string.whitespace) for piece in pieces], "int32"))
    nothing = op.op("ReduceMin", [op.op("Gather", [blank, longer]), _constant(op, "last_axis", [2])])  # (N+1, n_best, 1)
    longer = op.op("Mul", [longer, op.op("Sub", [_constant(op, "one_id", np.array(1, "int32")), nothing])])
    texts = op.op("Gather", [_constant(op, "pieces", np.array(pieces, object)), longer])
    joined = op.op(
        "StringJoin", [texts, _constant(op, "no_separator", np.array([""], object)), _constant(op, "last_axis", [2])], domain=TEXT_OPERATORS
    )
    stripped = op.op("StringStrip", [joined], domain=TEXT_OPERATORS)
    return op.op("Slice", [stripped, _constant(op, "from", [0]), _constant(op, "to", [-1])])


def _best(op: tape.Tape, probabilities, labels: list[str]):
    """Return the labels (N,) of the highest probabilities (N, C), and these (N,); the empty label where none is above 0."""
    one, none = _constant(op, "next", [1]), _constant(op, "no_label", [0])
    best = op.op("ArgMax", [probabilities], {"axis": 1})  # (N, 1)
    highest = op.op("GatherElements", [probabilities, best], {"axis": 1})  # (N, 1)
    above = op.op("Greater", [highest, _constant(op, "nothing", np.zeros(1, "float32"))])
    named = op.op("Where", [above, op.op("Add", [best, one]), none])
    names = _constant(op, "labels", np.array(["", *labels], object))
    return op.op("Gather", [names, op.op("Squeeze", [named, one])]), op.op("Squeeze", [highest, one])


def _constant(op: tape.Tape, name: str, value):
    value = np.asarray(value)
    if value.dtype == object:
        tensor = ir.StringTensor(np.vectorize(str.encode, otypes=[object])(value), shape=ir.Shape(value.shape))
    else:
        tensor = ir.tensor(value)
    known = op.graph_like.initializers.get(f"text/{name}")  # two tokenizers share what they need
    return known or op.initializer(tensor, name=f"text/{name}")


def _arrange(values, tensors) -> None:
    """Put a graph's inputs or outputs into the signature's order, with its dtypes and shapes."""
    by_name = {value.name: value for value in values}
    values.clear()
    values.extend(_declare(by_name[tensor.name], tensor) for tensor in tensors)


def _declare(value: ir.Value, tensor: Tensor) -> ir.Value:
    value.name, value.shape = tensor.name, ir.Shape(tensor.shape)
    value.dtype = {"string": ir.DataType.STRING, "int32": ir.DataType.INT32, "float32": ir.DataType.FLOAT}[tensor.dtype]
    return value


def _set_defaults(graph: ir.Graph, model_max_length: int) -> None:
    """Make the search settings and the prefix optional."""
    defaults = {**default_settings(model_max_length), PREFIX_IDS.name: np.zeros((1, 0))}
    for value in graph.inputs:
        if value.name in defaults:
            _set_default(graph, value, ir.tensor(np.array(defaults[value.name], value.dtype.numpy())))


def _set_default(graph: ir.Graph, value: ir.Value, tensor) -> None:
    """Give an input a default: it is an initializer too."""
    tensor.name = value.name
    value.const_value = tensor
    graph.register_initializer(value)
