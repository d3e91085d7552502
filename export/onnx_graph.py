"""ONNX: the whole search, or a classifier, as one graph over ids, and the same graph with tokenizers and labels at its ends."""

import numpy as np
import onnx_ir as ir
from onnx_ir import tape

from tfk_transformer.config import SearchSettings
from tfk_transformer.export.conversion import from_tensorflow
from tfk_transformer.export.optimize import optimize
from tfk_transformer.export.signatures import CLASSIFY_IDS, CLASSIFY_TEXT, GENERATE, TEXT, TRANSLATE, Signature, Tensor
from tfk_transformer.text_classifier import TextClassifier
from tfk_transformer.tokenizers import SubwordTokenizer
from tfk_transformer.translator import Translator

TEXT_OPERATORS = "ai.onnx.contrib"  # the domain of onnxruntime-extensions


def generate_graph(translator: Translator) -> ir.Model:
    """Convert the search to a graph from source ids to target ids, `signatures.GENERATE`, with standard operators alone."""
    model = _converted(translator.graph, "generate", GENERATE)
    _set_defaults(model.graph)
    return model


def translate_graph(generate: ir.Model, translator: Translator) -> ir.Model:
    """Join tokenizers to a clone of the graph over ids: `signatures.TRANSLATE`, with operators of onnxruntime-extensions."""
    model, op = _reading_text(generate, "translate", translator.source_tokenizer)
    outputs = model.graph.outputs
    outputs[0] = _declare(_decode(op, outputs[0], translator.target_tokenizer.pieces()), TRANSLATE.outputs[0])
    model.graph.sort()
    return model


def probabilities_graph(classifier: TextClassifier) -> ir.Model:
    """Convert a classifier to a graph from ids to probabilities, `signatures.CLASSIFY_IDS`, with standard operators alone."""
    return _converted(classifier.graph, "probabilities", CLASSIFY_IDS)


def classify_graph(probabilities: ir.Model, classifier: TextClassifier) -> ir.Model:
    """Join tokenizer and labels to a clone of the graph over ids: `signatures.CLASSIFY_TEXT`, as in `translate_graph`."""
    model, op = _reading_text(probabilities, "classify", classifier.tokenizer)
    outputs = model.graph.outputs
    found = [*_best(op, outputs[0], classifier.labels), outputs[0]]
    outputs.clear()
    outputs.extend(map(_declare, found, CLASSIFY_TEXT.outputs))
    model.graph.sort()
    return model


def _converted(graph, name: str, signature: Signature) -> ir.Model:
    """Convert a function of a `TranslationGraph` or `ClassificationGraph`."""
    from tfk_transformer.export.functions import traced_over_weights

    model = from_tensorflow(traced_over_weights(graph, signature).get_concrete_function())
    _give_weights(model.graph, graph.model.weights)
    model = optimize(model)
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
    return op.initializer(tensor, name=f"text/{name}")


def _arrange(values, tensors) -> None:
    """Put a graph's inputs or outputs into the signature's order, with its dtypes and shapes."""
    by_name = {value.name: value for value in values}
    values.clear()
    values.extend(_declare(by_name[tensor.name], tensor) for tensor in tensors)


def _declare(value: ir.Value, tensor: Tensor) -> ir.Value:
    value.name, value.shape = tensor.name, ir.Shape(tensor.shape)
    value.dtype = {"string": ir.DataType.STRING, "int32": ir.DataType.INT32, "float32": ir.DataType.FLOAT}[tensor.dtype]
    return value


def _set_defaults(graph: ir.Graph) -> None:
    """Make the search settings optional: an input that is an initializer too has it as its default."""
    defaults = SearchSettings().model_dump()
    for value in graph.inputs:
        if value.name in defaults:
            value.const_value = ir.tensor(np.array(defaults[value.name], value.dtype.numpy()), name=value.name)
            graph.register_initializer(value)
