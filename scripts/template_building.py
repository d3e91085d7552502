"""Convert the templates of ONNX files from TensorFlow. At export, `expansion` expands them."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.export.to_onnx import conversion
from tfk_transformer.export.to_onnx.optimize import bodies, optimize
from tfk_transformer.export.to_onnx.templates.expansion import MODEL_INPUT_PREFIX
from tfk_transformer.inference import signatures
from tfk_transformer.inference.signatures import STEP_SETTINGS, Signature, TensorSignature
from tfk_transformer.layers.decoder import Decoded
from tfk_transformer.models.token_model import Beams, Step, Stepper
from tfk_transformer.search.decoder_step import choose_one
from tfk_transformer.search.model_functions import (
    ClassificationFunctions,
    ContinuationFunctions,
    TranslationFunctions,
)
from tfk_transformer.search.signature_functions import BODIES, Body, tf_function
from tfk_transformer.search.vocabulary import VocabularyBlocks

# The signature of the function that chooses the next token in a decoding step.
CHOICE = Signature(
    (
        signatures.TARGET_IDS,
        TensorSignature("logits", "float32", ("N", 1, "V")),
        *(TensorSignature(name, SETTING_DTYPES[name], ()) for name in STEP_SETTINGS),
    ),
    (
        TensorSignature("log_prob", "float32", ("N",)),
        TensorSignature("next_token", "int32", ("N",)),
    ),
)
SIGNATURES = {
    "search": signatures.GENERATE,
    "score": signatures.SCORE_AND_ATTEND,
    "choice": CHOICE,
    "probabilities": signatures.CLASSIFY_IDS,
}
SEARCH_TEMPLATES = ("choice", "search", "search_continuation", "search_shortlist")
TEMPLATES = (
    "probabilities",
    "score",
    "score_continuation",
    *SEARCH_TEMPLATES,
    *(f"{name}_blocks" for name in SEARCH_TEMPLATES),
)
# The options of a model's configuration that its TensorFlow functions use, int32 ().
SIZES = ("source_vocab_size", "target_vocab_size", "max_length")


class PlaceholderModel:
    """A model for tracing: it has the methods that TensorFlow functions use, but no layers.

    Its nodes are the following. A packed value is one tensor of float32 that stands for a list of
    values of the same rank. `expansion` replaces it by these values.

    - `Read`: from source (B, S) to the memory, packed: for each member the keys (B, H, S, K) and
      values (B, H, S, V) of each decoder layer, then the additive mask (B, 1, 1, S) of the source.
    - `Cache`: from the batch size B to the first cache, packed: the keys and values of each decoder
      layer of each member, or its states, without positions.
    - `Step`: from the last tokens (A, M) and their position (), lineage (A, 1, M, (t+1)*M), the
      cache, and the memory if the model has an encoder, for the A sentences whose search is not
      finished; then tokens (n,) if the search has a shortlist. To logits (A, M, V), or (A, M, n)
      with a shortlist, packed by member; attention (A, M, S); and the longer cache.
    - `GreedyStep`: the same with M = 1, without a lineage.
    - `Decode`: from target ids (B, T), which begin with the start token, and the memory to the
      decoder's output (B, T, D), packed by member; the attention weights of the first layer; and
      the attention weights of all other layers, packed. The weights are to the source
      (B, H, T, S), or to the target (B, H, T, T) in a model without an encoder.
    - `Logits`: from the decoder's output (B, T, D) to logits (B, T, V), both packed by member.
    - `Classify`, of a classifier: from ids (B, S) to logits (B, C).
    """

    def __init__(self, config: SimpleNamespace, has_source: bool = True) -> None:
        self.config = config
        self.has_source = has_source

    def start_search(
        self, source: Tensor, use_cache: bool = True, tokens: Tensor = None
    ) -> Stepper:
        """See `Transformer.start_search`."""
        candidates = [] if tokens is None else [tokens]

        def step(beams: Beams, cache: Tensor, memory: Sequence[Tensor]) -> Step:
            is_greedy = beams.lineage is None
            lineage = [] if is_greedy else [beams.lineage]
            inputs = [beams.last, beams.position, *lineage, cache, *memory, *candidates]
            operator = conversion.GREEDY_STEP if is_greedy else conversion.STEP
            logits, attention, next_cache = _node(operator, inputs, ranks=(3, 3, 4))
            return Step(logits, next_cache, attention)

        return Stepper(
            step, lambda batch: _node(conversion.CACHE, [batch], [4])[0], self._memory(source)
        )

    def decode(self, inputs: Tensor, training: bool | None = None) -> Decoded:
        """See `TokenModel.decode`."""
        target = inputs["target"] if self.has_source else inputs
        memory = self._memory(inputs["source"]) if self.has_source else []
        output, *weights = _node(conversion.DECODE, [target, *memory], ranks=(3, 4, 4))
        return Decoded(output, [], weights) if self.has_source else Decoded(output, weights, [])

    def logits(self, decoded: Tensor) -> Tensor:
        """Return the logits of decoder outputs (B, T, D)."""
        return _node(conversion.LOGITS, [decoded], ranks=[3])[0]

    def __call__(self, ids: Tensor, training: bool | None = None) -> Tensor:
        """Return the logits (B, C) that a classifier gives ids (B, S)."""
        return _node(conversion.CLASSIFY_OPERATOR, [ids], ranks=[2])[0]

    def _memory(self, source: Tensor) -> list[Tensor]:
        return _node(conversion.READ, [source], ranks=[4]) if self.has_source else []


def _node(operator: str, inputs: Sequence[Tensor], ranks: Sequence[int]) -> list[Tensor]:
    # A Python function may have any number of inputs and outputs. Its token would say which
    # function runs; here it is the operator to which `conversion` converts the node.
    outputs = tf.raw_ops.PyFuncStateless(
        input=inputs, token=operator, Tout=[tf.float32] * len(ranks)
    )
    for output, rank in zip(outputs, ranks, strict=True):
        output.set_shape([None] * rank)
    return outputs


def build(name: str, folder: Path) -> Path:
    """Convert the template of this name and write its file to a folder."""
    task, *options = name.split("_")
    signature = SIGNATURES[task]
    sizes = [*SIZES, "block"] if "blocks" in options else SIZES
    model_inputs = [TensorSignature(MODEL_INPUT_PREFIX + size, "int32", ()) for size in sizes]
    if "shortlist" in options:
        model_inputs += [
            TensorSignature(f"{MODEL_INPUT_PREFIX}likely", "int32", ("V", "L")),
            TensorSignature(f"{MODEL_INPUT_PREFIX}always", "float32", ("V",)),
        ]

    def body(**tensors: Tensor) -> Mapping[str, Tensor]:
        arrays = {
            tensor.name.removeprefix(MODEL_INPUT_PREFIX): tensors.pop(tensor.name)
            for tensor in model_inputs
        }
        return _function(task, options, arrays)(**tensors)

    inputs = (*signature.inputs, *model_inputs)
    function = tf_function(body, Signature(inputs, signature.outputs))
    model = optimize(conversion.from_tensorflow(function.get_concrete_function()))
    _make_reproducible(model.graph)
    path = folder / f"{name}.onnx"
    ir.save(model, path)
    return path


def _function(task: str, options: Sequence[str], arrays: Mapping[str, Tensor]) -> Body:
    """Return the function of a template's signature, from a model's sizes and shortlist by name."""
    sizes = SimpleNamespace(**{name: arrays[name] for name in SIZES})
    sizes.vocab_size = sizes.source_vocab_size  # the name in a classifier's configuration
    vocabulary = VocabularyBlocks(sizes.target_vocab_size, arrays.get("block"))
    if task == "choice":
        return functools.partial(choose_one, vocabulary)
    has_source = "continuation" not in options
    no_tokenizer: Any = None  # templates take and return ids
    model: Any = PlaceholderModel(sizes, has_source)
    functions: ClassificationFunctions | TranslationFunctions
    if task == "probabilities":
        functions = ClassificationFunctions(model, no_tokenizer, ())
    else:
        functions_class = TranslationFunctions if has_source else ContinuationFunctions
        shortlist: Any = None
        if "shortlist" in options:
            shortlist = SimpleNamespace(likely=arrays["likely"], always=arrays["always"])
        functions = functions_class(
            model,
            no_tokenizer,
            no_tokenizer,
            shortlist,
            vocabulary,
            has_greedy_loop=has_source,  # a prompt is a prefix, with which no search is greedy
        )
    return functools.partial(BODIES[SIGNATURES[task]], functions)


def _make_reproducible(graph: ir.Graph) -> None:
    """Sort nodes and constants, number all values, and remove metadata."""
    # The conversion generates names that differ from process to process, and the order of nodes
    # and constants depends on the names.
    _sort(graph)
    declared = {id(value) for value in (*graph.inputs, *graph.outputs)}
    numbers = itertools.count()
    for part in (graph, *graph.subgraphs()):
        part.name = f"g{next(numbers)}"
        part.doc_string = None
        values = [*part.initializers.values(), *part.inputs]
        for node in part:
            values += node.outputs
            node.name = None
            if node.domain == conversion.DOMAIN:
                node.attributes.clear()  # those of TensorFlow's operator
        for item in (part, *part, *values):
            item.metadata_props.clear()
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

    def visit(value: ir.Value) -> None:
        node = value.producer()
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
    constants = [value for value in read if value.is_initializer() and value.graph is graph]
    graph.initializers.clear()
    for constant in constants:
        graph.register_initializer(constant)


def _values_read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node and the nodes of its bodies read."""
    yield from (value for value in node.inputs if value is not None)
    for body in bodies(node):
        for inner in body:
            yield from _values_read(inner)
        yield from body.outputs
