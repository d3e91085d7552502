"""Make models of the templates: give them a model's sizes, and one node for each member's layers.

A template is a graph around a `PlaceholderModel`. Its sizes are inputs, and a list of values whose
length depends on the model, such as the keys and values of all layers, is a single packed value.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir import tape

from tfk_transformer.export.to_onnx.conversion import (
    CACHE,
    CLASSIFY_OPERATOR,
    DECODE,
    DOMAIN,
    LOGITS,
    READ,
    STEP,
)

if TYPE_CHECKING:
    from tfk_transformer.config.model_options import (
        LanguageModelConfig,
        TokenConfig,
        TransformerConfig,
    )

Member: TypeAlias = "TransformerConfig | LanguageModelConfig"
Members: TypeAlias = Sequence["TransformerConfig | LanguageModelConfig"]
Results = list[Any]  # a value, or the list of values that a packed one stands for, for each output
Shape = tuple[int | None, ...]
Packed = dict[ir.Value, list[ir.Value]]  # the values that each packed value stands for

MODEL_INPUT_PREFIX = "model_"  # begins the names of the inputs that become constants


class Template(NamedTuple):
    """A graph in this folder."""

    kind: str  # "search", "score", "choice" or "probabilities"
    has_source: bool = True  # False for models without an encoder
    shortlist: bool = False
    blocks: bool = False  # whether the vocabulary has blocks; see `Vocabulary`

    @property
    def file_name(self) -> str:
        """The name of the template's file."""
        options = {"continuation": not self.has_source, "shortlist": self.shortlist}
        chosen = [name for name, value in {**options, "blocks": self.blocks}.items() if value]
        return "_".join([self.kind, *chosen]) + ".onnx"


def expand(
    template: Template,
    arrays: Mapping[str, np.ndarray | int | None],
    config: "TokenConfig | None" = None,
    packed: Mapping[str, list[ir.Value]] | None = None,
) -> ir.Model:
    """Return a graph around the layers of a model, whose nodes are named as in `onnx_layers`.

    Args:
        template: the template.
        arrays: the values of the inputs whose names begin with `MODEL_INPUT_PREFIX`, by the rest of
            the name.
        config: the configuration of the model. None: the graph is around a classifier.
        packed: the values that inputs stand for, by the name of the input.
    """
    model = ir.load(Path(__file__).with_name(template.file_name))
    inputs = {value.name: value for value in model.graph.inputs}
    constants = [value for name, value in inputs.items() if name.startswith(MODEL_INPUT_PREFIX)]
    for value in constants:
        array = np.asarray(arrays[value.name.removeprefix(MODEL_INPUT_PREFIX)], value.dtype.numpy())
        value.const_value = ir.tensor(array, name=value.name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    known = {inputs[name]: values for name, values in (packed or {}).items()}
    for value in known:
        model.graph.inputs.remove(value)
    _Expansion(model.graph, config, known)
    return model


class _Expansion:
    """Replaces the packed values of a graph, in its order.

    Args:
        graph: the graph of a template; it is changed.
        config: see `expand`.
        packed: the values that are packed at the beginning.
    """

    def __init__(self, graph: ir.Graph, config: "TokenConfig | None", packed: Packed) -> None:
        self.members: Members = config.members if config else ()
        self.architecture = config.architecture if config else ""
        self.packed = packed
        self.replaced: list[ir.Node] = []
        self._expand(graph)
        for node in reversed(self.replaced):  # first those that read the others
            node.graph.remove(node, safe=True)

    def _expand(self, graph: ir.Graph) -> None:
        for node in list(graph):
            if node.domain == DOMAIN:
                self._name_members(node)
            elif node.op_type == "Loop":
                self._expand_loop(node)
            elif node.op_type == "If":
                for branch in ("then_branch", "else_branch"):
                    self._expand(node.attributes[branch].as_graph())
            elif any(value in self.packed for value in node.inputs):
                self._expand_node(node)

    def _expand_loop(self, loop: ir.Node) -> None:
        """Replace packed state of a loop."""
        body = loop.attributes["body"].as_graph()
        # A loop's inputs are (count, condition, state…), its body's (iteration, condition, state…).
        for outer, inner in zip(loop.inputs, tuple(body.inputs), strict=True):
            if outer in self.packed:
                shapes = [value.shape for value in self.packed[outer]]
                self.packed[inner] = [ir.Value(type=inner.type, shape=shape) for shape in shapes]
        _set_all(body.inputs, self._unpacked(body.inputs))
        self._expand(body)
        _, *state = [self.packed.get(value) for value in body.outputs]
        _set_all(body.outputs, self._unpacked(body.outputs))
        op = tape.Tape()
        outputs = iter(
            op.op_multi_out(
                "Loop",
                self._unpacked(loop.inputs),
                {"body": body},
                num_outputs=len(body.outputs) - 1,
            )
        )
        results: Results = []
        for values in state:
            if values is None:
                results.append(next(outputs))
            else:
                results.append(list(itertools.islice(outputs, len(values))))
        self._replace(loop, op.nodes, results)

    def _expand_node(self, node: ir.Node) -> None:
        """Repeat a node for each of the values that its inputs stand for.

        Concat reads all of them. LogSoftmax reads the logits of the members, whose predictions are
        the mean of its results.
        """
        op, attributes = tape.Tape(), node.attributes
        if node.op_type == "Concat":
            result = op.op("Concat", self._unpacked(node.inputs), attributes)
            self._replace(node, op.nodes, [result])
            return
        lists = [self.packed.get(value) for value in node.inputs]
        count = max(len(values) for values in lists if values is not None)
        results = []
        for number in range(count):
            pairs = zip(node.inputs, lists, strict=True)
            inputs = [value if values is None else values[number] for value, values in pairs]
            results.append(op.op(node.op_type, inputs, attributes))
            if node.op_type in ("Gather", "Identity"):  # of rows: other sizes stay the same
                results[-1].type, results[-1].shape = inputs[0].type, inputs[0].shape
        result = mean(op, results) if node.op_type == "LogSoftmax" else results
        self._replace(node, op.nodes, [result])

    def _name_members(self, node: ir.Node) -> None:
        """Replace a node that stands for the layers of all members by one for each."""
        if node.op_type == CLASSIFY_OPERATOR:
            node.op_type = f"{CLASSIFY_OPERATOR}_0"
            return
        write: dict[str, Callable[..., Results]] = {
            READ: self._read,
            CACHE: self._cache,
            STEP: self._step,
            DECODE: self._decode,
            LOGITS: self._logits,
        }
        op = tape.Tape()
        inputs = (self.packed.get(value, value) for value in node.inputs)
        results = write[node.op_type](op, *inputs)
        self._replace(node, op.nodes, results)

    def _read(self, op: tape.Tape, source: ir.Value) -> Results:
        return [write_read_nodes(op, self.members, source)]

    def _cache(self, op: tape.Tape, batch: ir.Value) -> Results:
        rows = op.op("Reshape", [batch, _constant(op, np.array([1], "int64"))])
        rows = op.op("Cast", [rows], {"to": ir.DataType.INT64.value})
        values = []
        for shape in [shape for member in self.members for shape in _layer_shapes(member)]:
            _, heads, _, width = shape
            sizes = _constant(op, np.array([heads, 0, width], "int64"))
            first = op.op("ConstantOfShape", [op.op("Concat", [rows, sizes], {"axis": 0})])
            values.append(_declared(first, shape))
        return [values]

    def _step(
        self,
        op: tape.Tape,
        tokens: ir.Value,
        position: ir.Value,
        lineage: ir.Value,
        cache: list[ir.Value],
        *rest: Any,
    ) -> Results:
        has_source = self.architecture != "decoder"
        memory, candidates = (rest[0], rest[1:]) if has_source else ((), rest)
        given = [tokens, position, lineage]
        logits, attention, grown = write_step_nodes(
            op, self.members, given, cache, memory, candidates
        )
        return [logits, mean(op, attention), grown]

    def _decode(
        self,
        op: tape.Tape,
        target: ir.Value,
        memory: Sequence[ir.Value] = (),
    ) -> Results:
        remembered = iter(memory)
        outputs, weights = [], []
        for number, member in enumerate(self.members):
            layers = member.decoder_layers
            inputs = [target, *itertools.islice(remembered, 2 * layers + 1)]
            output, *own_weights = _layers(op, DECODE, number, inputs, 1 + layers)
            outputs.append(output)
            weights.append(own_weights)
        if self.architecture != "ensemble":
            first, *others = weights[0]
            return [outputs, first, others]
        heads = _constant(op, np.array([1], "int64"))  # see `models.ensemble.joined_decoded`
        means = [op.op("ReduceMean", [own[-1], heads], {"keepdims": 1}) for own in weights]
        return [outputs, mean(op, means), []]

    def _logits(self, op: tape.Tape, outputs: list[ir.Value]) -> Results:
        numbered = enumerate(outputs)
        return [[_layers(op, LOGITS, number, [output], 1)[0] for number, output in numbered]]

    def _unpacked(self, values: Iterable[ir.Value | None]) -> list[ir.Value | None]:
        """Return values with those that packed ones stand for in their places."""
        return [one for value in values for one in self.packed.get(value, [value])]

    def _replace(
        self,
        node: ir.Node,
        nodes: Sequence[ir.Node],
        results: Results,
    ) -> None:
        """Insert nodes before a node, and results for its outputs: lists for packed ones."""
        node.graph.insert_before(node, nodes)
        for old, new in zip(node.outputs, results, strict=True):
            if isinstance(new, list):
                self.packed[old] = new
            else:
                new.name, new.type, new.shape = old.name, old.type, old.shape
                ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        self.replaced.append(node)


def write_read_nodes(op: tape.Tape, members: Members, source: ir.Value) -> list[ir.Value]:
    """Write the `Read` nodes of all members, and return the memory."""
    memory: list[ir.Value] = []
    for number, member in enumerate(members):
        sizes = _layer_shapes(member)
        *layers, mask = _layers(op, READ, number, [source], len(sizes) + 1)
        memory += map(_declared, layers, sizes)
        memory.append(_declared(mask, (None, 1, 1, None)))
    return memory


def write_step_nodes(
    op: tape.Tape,
    members: Members,
    given: Sequence[ir.Value],
    cache: Iterable[ir.Value],
    memory: Iterable[ir.Value] = (),
    candidates: Sequence[ir.Value] = (),
) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value]]:
    """Write the `Step` nodes of all members.

    Args:
        op: writes operators.
        members: the configurations of the members.
        given: the last tokens, their position, and the lineage.
        cache: the keys and values of all layers.
        memory: the result of `write_read_nodes`; nothing without an encoder.
        candidates: the tokens of a search with a shortlist, or nothing.

    Returns:
        The logits and the attention of each member, and the longer cache.
    """
    cache, memory = iter(cache), iter(memory)
    logits: list[ir.Value] = []
    attention: list[ir.Value] = []
    grown: list[ir.Value] = []
    for number, member in enumerate(members):
        count = 2 * member.decoder_layers
        own = [*itertools.islice(cache, count), *itertools.islice(memory, count + 1)]
        inputs = [*given, *own, *candidates]
        results = _layers(op, STEP, number, inputs, count + 2)
        logits.append(results[0])
        attention.append(results[1])
        grown += results[2:]
    return logits, attention, grown


def mean(op: tape.Tape, values: Sequence[ir.Value]) -> ir.Value:
    """Write the mean of values, in the order of `models.base.mean_of`."""
    if len(values) == 1:
        return values[0]
    total = functools.reduce(lambda one, other: op.op("Add", [one, other]), values)
    return op.op("Div", [total, _constant(op, np.array(len(values), "float32"))])


def _layer_shapes(member: Member) -> list[Shape]:
    """Return the shapes of the keys and values of each decoder layer."""
    widths = member.decoder_layers * (member.query_width, member.value_width)
    return [(None, member.num_heads, None, width) for width in widths]


def _declared(value: ir.Value, shape: Shape) -> ir.Value:
    value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(shape)
    return value


def _layers(
    op: tape.Tape,
    name: str,
    member: int,
    inputs: Sequence[ir.Value],
    outputs: int,
) -> Sequence[ir.Value]:
    return op.op_multi_out(f"{name}_{member}", inputs, num_outputs=outputs, domain=DOMAIN)


def _constant(op: tape.Tape, array: np.ndarray) -> ir.Value:
    return op.op("Constant", [], {"value": ir.tensor(array)})


def _set_all(values: MutableSequence[ir.Value], others: Sequence[ir.Value]) -> None:
    values.clear()
    values.extend(others)
