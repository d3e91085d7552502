"""Convert the templates from TensorFlow at build time. At export, `expansion` expands them."""

import functools
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import onnx_ir as ir

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.export.to_onnx.conversion import DOMAIN, from_tensorflow
from tfk_transformer.export.to_onnx.optimize import optimize
from tfk_transformer.export.to_onnx.simplify import bodies
from tfk_transformer.export.to_onnx.templates.expansion import MODEL_INPUT_PREFIX, Template
from tfk_transformer.export.to_onnx.templates.placeholder_model import (
    PlaceholderModel,
    Sizes,
)
from tfk_transformer.inference.signatures import (
    CLASSIFY_IDS,
    GENERATE,
    SCORE_AND_ATTEND,
    TARGET_IDS,
    Signature,
    TensorSignature,
)
from tfk_transformer.inference.step_tensors import STEP_SETTINGS
from tfk_transformer.search.classification_functions import ClassificationFunctions
from tfk_transformer.search.decoder_step import choose_one
from tfk_transformer.search.signature_functions import BODIES, Body, tf_function
from tfk_transformer.search.top_k import VocabularyBlocks
from tfk_transformer.search.translation_functions import (
    ContinuationFunctions,
    TranslationFunctions,
)

# The signature of the function that chooses the next token in a decoding step.
CHOICE = Signature(
    (
        TARGET_IDS,
        TensorSignature("logits", "float32", ("N", 1, "V")),
        *(TensorSignature(name, SETTING_DTYPES[name], ()) for name in STEP_SETTINGS),
    ),
    (
        TensorSignature("log_prob", "float32", ("N",)),
        TensorSignature("next_token", "int32", ("N",)),
    ),
)
SIGNATURES = {
    "search": GENERATE,
    "score": SCORE_AND_ATTEND,
    "choice": CHOICE,
    "probabilities": CLASSIFY_IDS,
}
SEARCH_TEMPLATES = (
    Template("choice"),
    Template("search"),
    Template("search", has_source=False),
    Template("search", shortlist=True),
)
TEMPLATES = (
    Template("probabilities"),
    Template("score"),
    Template("score", has_source=False),
    *SEARCH_TEMPLATES,
    *(template._replace(blocks=True) for template in SEARCH_TEMPLATES),
)


class _Shortlist(NamedTuple):
    """The arrays of a shortlist as tensors; see `Shortlist`."""

    likely: Tensor
    always: Tensor


def build(template: Template, folder: Path) -> Path:
    """Convert a template and write its file to a folder."""
    signature = SIGNATURES[template.task]
    model_inputs = _model_inputs(template)

    def body(**tensors: Tensor) -> Mapping[str, Tensor]:
        arrays = {
            tensor.name.removeprefix(MODEL_INPUT_PREFIX): tensors.pop(tensor.name)
            for tensor in model_inputs
        }
        return _function(template, arrays)(**tensors)

    inputs = (*signature.inputs, *model_inputs)
    function = tf_function(body, Signature(inputs, signature.outputs))
    model = optimize(from_tensorflow(function.get_concrete_function()))
    _make_reproducible(model.graph)
    path = folder / template.file_name
    ir.save(model, path)
    return path


def _model_inputs(template: Template) -> list[TensorSignature]:
    """Return the inputs that `expansion` replaces by a model's arrays."""
    names = [*Sizes._fields]
    if template.blocks:
        names.append("block")
    sizes = [TensorSignature(MODEL_INPUT_PREFIX + name, "int32", ()) for name in names]
    if not template.shortlist:
        return sizes
    likely = TensorSignature(f"{MODEL_INPUT_PREFIX}likely", "int32", ("V", "L"))
    return [*sizes, likely, TensorSignature(f"{MODEL_INPUT_PREFIX}always", "float32", ("V",))]


def _function(template: Template, arrays: Mapping[str, Tensor]) -> Body:
    """Return the function of a template's signature, from tensors by name."""
    sizes = Sizes(*(arrays[name] for name in Sizes._fields))
    vocabulary = VocabularyBlocks(sizes.target_vocab_size, arrays.get("block"))
    if template.task == "choice":
        return functools.partial(_choose, vocabulary)
    no_tokenizer: Any = None  # templates take and return ids
    model: Any = PlaceholderModel(sizes, template.has_source)
    functions: ClassificationFunctions | TranslationFunctions
    if template.task == "probabilities":
        functions = ClassificationFunctions(model, no_tokenizer, ())
    else:
        functions_class = TranslationFunctions if template.has_source else ContinuationFunctions
        shortlist: Any = None
        if template.shortlist:
            shortlist = _Shortlist(arrays["likely"], arrays["always"])
        functions = functions_class(model, no_tokenizer, no_tokenizer, shortlist, vocabulary)
    return functools.partial(BODIES[SIGNATURES[template.task]], functions)


def _choose(
    vocabulary: VocabularyBlocks, target_ids: Tensor, logits: Tensor, **settings: Tensor
) -> dict[str, Tensor]:
    log_prob, token = choose_one(logits, target_ids[:, None], settings, vocabulary)
    return {"log_prob": log_prob, "next_token": token}


def _make_reproducible(graph: ir.Graph) -> None:
    """Sort nodes and constants, number all values, and remove metadata.

    The conversion generates names that differ from process to process, and the order of nodes and
    constants depends on the names.
    """
    _sort(graph)
    declared = {id(value) for value in (*graph.inputs, *graph.outputs)}
    numbers = itertools.count()
    for part in (graph, *graph.subgraphs()):
        part.name = f"g{next(numbers)}"
        part.doc_string = None
        values = [*part.initializers.values(), *part.inputs]
        for node in part:
            values += node.outputs
        for item in (part, *part, *values):
            item.metadata_props.clear()
        for node in part:
            node.name = None
            if node.domain == DOMAIN:
                node.attributes.clear()  # the number of a Python function
        for value in values:
            if value.shape is not None:
                sizes = [size if isinstance(size, int) else None for size in value.shape]
                value.shape = ir.Shape(sizes)
            if id(value) not in declared:
                value.name = f"v{next(numbers)}"


def _sort(graph: ir.Graph) -> None:
    """Sort the nodes of a graph and of its bodies by their outputs, and constants by their use."""
    for node in graph:
        for body in bodies(node):
            _sort(body)
    order: list[ir.Node] = []
    seen: set[ir.Node] = set()

    def visit(value: ir.Value | None) -> None:
        node = None if value is None else value.producer()
        if node is not None and node.graph is graph and node not in seen:
            seen.add(node)
            for read in _values_read(node):
                visit(read)
            order.append(node)

    for output in graph.outputs:
        visit(output)
    graph.remove(list(graph))
    graph.extend(order)
    read = dict.fromkeys(itertools.chain.from_iterable(map(_values_read, order)))
    constants = [value for value in read if value is not None and value.is_initializer()]
    constants = [value for value in constants if value.graph is graph]
    graph.initializers.clear()
    for constant in constants:
        graph.register_initializer(constant)


def _values_read(node: ir.Node) -> Iterator[ir.Value | None]:
    """Yield the values that a node and the nodes of its bodies read."""
    yield from node.inputs
    for body in bodies(node):
        for inner in body:
            yield from _values_read(inner)
        yield from body.outputs
