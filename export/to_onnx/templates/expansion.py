"""Expand templates to the graphs of a model, with one node for the layers of each member.

A template is a graph around a `PlaceholderModel` of `scripts/template_building.py`. Its inputs
include the model's sizes. A list of values whose length depends on the model, such as the keys of
all layers, is a single packed value.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir import Value, tape

from tfk_transformer.config.model_options import LanguageModelConfig, TokenConfig, TransformerConfig
from tfk_transformer.export.to_onnx import conversion
from tfk_transformer.export.to_onnx.conversion import DOMAIN, MEMBER
from tfk_transformer.inference.signatures import cache_shapes, memory_shapes

Members: TypeAlias = Sequence[TransformerConfig | LanguageModelConfig]
Results = list[Any]  # for each output: a value, or the list of values of a packed output
Packed = dict[Value, list[Value]]  # the values that each packed value stands for

MODEL_INPUT_PREFIX = "model_"  # of the names of the inputs that become constants


def expand(
    template: str,
    arrays: Mapping[str, np.ndarray | int | None],
    config: TokenConfig | None = None,
    packed: Mapping[str, list[Value]] | None = None,
) -> ir.Model:
    """Return a graph with a node for the layers of each member, with its number as an attribute.

    Args:
        template: the name of a graph in this folder, such as "search_continuation_blocks": its task
            and its options. A "continuation" is of a model without an encoder.
        arrays: the values of the inputs `MODEL_INPUT_PREFIX`*, by the rest of the name.
        config: the configuration of the model. None: the graph is around a classifier.
        packed: the values that packed inputs stand for, by the name of the input.
    """
    model = ir.load(Path(__file__).with_name(f"{template}.onnx"))
    inputs = {value.name: value for value in model.graph.inputs}
    constants = [value for name, value in inputs.items() if name.startswith(MODEL_INPUT_PREFIX)]
    for value in constants:
        array = np.asarray(arrays[value.name.removeprefix(MODEL_INPUT_PREFIX)], value.dtype.numpy())
        value.const_value = ir.tensor(array, name=value.name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    packed_inputs = {inputs[name]: values for name, values in (packed or {}).items()}
    for value in packed_inputs:
        model.graph.inputs.remove(value)
    _Expansion(model.graph, config, packed_inputs)
    return model


class _Expansion:
    """Replaces the packed values of a template's graph, in the order of its nodes."""

    def __init__(self, graph: ir.Graph, config: TokenConfig | None, packed: Packed) -> None:
        self.members: Members = config.members if config else ()
        self.architecture = config.architecture if config else ""
        self.packed = packed
        self.replaced: list[ir.Node] = []
        self._expand(graph)
        for node in reversed(self.replaced):  # readers before the nodes that they read
            node.graph.remove(node, safe=True)

    def _expand(self, graph: ir.Graph) -> None:
        for node in list(graph):
            if node.domain == DOMAIN:
                self._expand_layers(node)
            elif node.op_type == "Loop":
                self._expand_loop(node)
            elif node.op_type == "If":
                for branch in ("then_branch", "else_branch"):
                    self._expand(node.attributes[branch].as_graph())
            elif any(value in self.packed for value in node.inputs):
                self._expand_node(node)

    def _expand_loop(self, loop: ir.Node) -> None:
        """Replace the packed state of a loop."""
        body = loop.attributes["body"].as_graph()
        # A loop's inputs are (count, condition, state…), its body's (iteration, condition, state…).
        for outer, inner in zip(loop.inputs, tuple(body.inputs), strict=True):
            if outer in self.packed:
                shapes = [value.shape for value in self.packed[outer]]
                self.packed[inner] = [Value(type=inner.type, shape=shape) for shape in shapes]
        body.inputs[:] = self._unpacked(body.inputs)
        self._expand(body)
        _, *state = [self.packed.get(value) for value in body.outputs]
        body.outputs[:] = self._unpacked(body.outputs)
        op = tape.Tape()
        inputs = self._unpacked(loop.inputs)
        count = len(body.outputs) - 1
        outputs = iter(op.op_multi_out("Loop", inputs, {"body": body}, num_outputs=count))
        results: Results = [
            next(outputs) if values is None else list(itertools.islice(outputs, len(values)))
            for values in state
        ]
        self._replace(loop, op.nodes, results)

    def _expand_node(self, node: ir.Node) -> None:
        """Repeat a node for each value of its packed inputs; a Concat node reads all at once."""
        op = tape.Tape()
        if node.op_type == "Concat":
            result = op.op("Concat", self._unpacked(node.inputs), node.attributes)
            self._replace(node, op.nodes, [result])
            return
        lists = [self.packed.get(value) for value in node.inputs]
        count = max(len(values) for values in lists if values is not None)
        results = []
        for number in range(count):
            pairs = zip(node.inputs, lists, strict=True)
            inputs = [value if values is None else values[number] for value, values in pairs]
            result = op.op(node.op_type, inputs, node.attributes)
            # Of rows or of positions, whose number is unknown: other sizes stay the same.
            if node.op_type in ("Gather", "Identity", "Slice"):
                result.type = inputs[0].type
                result.shape = inputs[0].shape
            results.append(result)
        # The mean of the members' LogSoftmax is the prediction of the ensemble.
        result = mean(op, results) if node.op_type == "LogSoftmax" else results
        self._replace(node, op.nodes, [result])

    def _expand_layers(self, node: ir.Node) -> None:
        """Replace a node for the layers of all members by one node for each member."""
        write: dict[str, Callable[..., Results]] = {
            conversion.READ: lambda op, source: [write_read_nodes(op, self.members, source)],
            conversion.CACHE: self._cache,
            conversion.STEP: functools.partial(self._step, conversion.STEP, 3),
            conversion.GREEDY_STEP: functools.partial(self._step, conversion.GREEDY_STEP, 2),
            conversion.DECODE: self._decode,
            conversion.LOGITS: lambda op, outputs: [
                [_layers(op, node.op_type, i, [output], 1)[0] for i, output in enumerate(outputs)]
            ],
            conversion.CLASSIFY_OPERATOR: lambda op, source: [
                *_layers(op, node.op_type, 0, [source], 1)
            ],
        }
        op = tape.Tape()
        inputs = (self.packed.get(value, value) for value in node.inputs)
        results = write[node.op_type](op, *inputs)
        self._replace(node, op.nodes, results)

    def _cache(self, op: tape.Tape, batch: Value) -> Results:
        rows = op.op("Reshape", [batch, ints(op, 1)])
        rows = op.op("Cast", [rows], {"to": ir.DataType.INT64.value})
        values = []
        for shape in (shape for member in self.members for shape in cache_shapes(member).values()):
            sizes = ints(op, *(size if isinstance(size, int) else 0 for size in shape[1:]))
            empty = op.op("ConstantOfShape", [op.op("Concat", [rows, sizes], {"axis": 0})])
            values.append(_declare_float(empty, shape))
        return [values]

    def _step(self, operator: str, count: int, op: tape.Tape, *inputs: Any) -> Results:
        step_tensors, cache, rest = inputs[:count], inputs[count], inputs[count + 1 :]
        memory, candidates = ((), rest) if self.architecture == "decoder" else (rest[0], rest[1:])
        logits, attention, next_cache = write_step_nodes(
            op, self.members, step_tensors, cache, memory, candidates, operator
        )
        return [logits, mean(op, attention), next_cache]

    def _decode(self, op: tape.Tape, target: Value, memory: Sequence[Value] = ()) -> Results:
        outputs = []
        member_weights = []
        for number, member_memory in enumerate(split_memory(self.members, memory)):
            count = 1 + self.members[number].decoder_layers
            inputs = [target, *member_memory]
            output, *weights = _layers(op, conversion.DECODE, number, inputs, count)
            outputs.append(output)
            member_weights.append(weights)
        if self.architecture != "ensemble":
            first_layer, *other_layers = member_weights[0]
            return [outputs, first_layer, other_layers]
        heads = ints(op, 1)  # see `models.ensemble.Ensemble.decode`
        means = [
            op.op("ReduceMean", [weights[-1], heads], {"keepdims": 1}) for weights in member_weights
        ]
        return [outputs, mean(op, means), []]

    def _unpacked(self, values: Iterable[Value | None]) -> list[Value | None]:
        """Return values, with packed values replaced by the values that they stand for."""
        unpacked = (self.packed.get(value, [value]) for value in values)
        return list(itertools.chain.from_iterable(unpacked))

    def _replace(self, node: ir.Node, nodes: Sequence[ir.Node], results: Results) -> None:
        """Insert nodes before a node, and replace its outputs by results: lists for packed ones."""
        node.graph.insert_before(node, nodes)
        for old, new in zip(node.outputs, results, strict=True):
            if isinstance(new, list):
                self.packed[old] = new
            else:
                new.name = old.name
                new.type = old.type
                new.shape = old.shape
                ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        self.replaced.append(node)


def write_read_nodes(op: tape.Tape, members: Members, source: Value) -> list[Value]:
    """Write the `Read` nodes of all members, and return the memory."""
    memory: list[Value] = []
    for number, member in enumerate(members):
        shapes = memory_shapes(member).values()
        values = _layers(op, conversion.READ, number, [source], len(shapes))
        memory += map(_declare_float, values, shapes)
    return memory


def split_memory(members: Members, memory: Iterable[Value]) -> list[list[Value]]:
    """Return the keys and values of each member's layers, and its mask; empty without a memory."""
    values = iter(memory)
    return [list(itertools.islice(values, len(memory_shapes(member)))) for member in members]


def write_step_nodes(
    op: tape.Tape,
    members: Members,
    step_tensors: Sequence[Value],
    cache: Iterable[Value],
    memory: Iterable[Value] = (),
    candidates: Sequence[Value] = (),
    operator: str = conversion.STEP,
) -> tuple[list[Value], list[Value], list[Value]]:
    """Write the `Step` nodes of all members, from the last tokens, their position and the lineage.

    A `GREEDY_STEP` has no lineage. Return the logits and the attention of each member, and the
    longer cache.
    """
    remaining_cache = iter(cache)
    logits: list[Value] = []
    attention: list[Value] = []
    next_cache: list[Value] = []
    for number, member_memory in enumerate(split_memory(members, memory)):
        count = len(cache_shapes(members[number]))
        member_cache = itertools.islice(remaining_cache, count)
        inputs = [*step_tensors, *member_cache, *member_memory, *candidates]
        results = _layers(op, operator, number, inputs, count + 2)
        logits.append(results[0])
        attention.append(results[1])
        next_cache += results[2:]
    return logits, attention, next_cache


def mean(op: tape.Tape, values: Sequence[Value]) -> Value:
    """Write the mean of values, in the order of `models.token_model.mean_of`."""
    if len(values) == 1:
        return values[0]
    total = functools.reduce(lambda one, other: op.op("Add", [one, other]), values)
    return op.op("Div", [total, op.op("Constant", [], {"value_float": float(len(values))})])


def _declare_float(value: Value, shape: Sequence[int | str]) -> Value:
    """Give a value the shape of a signature, whose letters are unknown sizes."""
    value.type = ir.TensorType(ir.DataType.FLOAT)
    value.shape = ir.Shape([size if isinstance(size, int) else None for size in shape])
    return value


def _layers(
    op: tape.Tape, operator: str, member: int, inputs: Sequence[Value], outputs: int
) -> Sequence[Value]:
    """Write a node that represents layers of the member of this number."""
    return op.op_multi_out(operator, inputs, {MEMBER: member}, num_outputs=outputs, domain=DOMAIN)


def ints(op: tape.Tape, *values: int) -> Value:
    """Write an int64 vector."""
    return op.op("Constant", [], {"value_ints": values})
