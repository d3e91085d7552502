"""Rewrite converted graphs, with onnx-ir."""

import itertools
from collections.abc import Iterator, Sequence

import onnx_ir as ir
from onnx_ir.passes import common as passes
from onnxscript import optimizer

from tfk_transformer.export.to_onnx.simplify import share, simplify

# The passes of `onnxscript.optimizer.optimize` without its rewriting rules, which take the longest
# time and match nothing here.
CLEAN_UP = ir.passes.Sequential(
    passes.RemoveUnusedNodesPass(),
    passes.RemoveUnusedOpsetsPass(),  # tf2onnx declares ai.onnx.ml in every file
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
    passes.LiftSubgraphInitializersToMainGraphPass(),
    passes.DeduplicateInitializersPass(),
    passes.CommonSubexpressionEliminationPass(),
    passes.OutputFixPass(),
    passes.NameFixPass(),
)
MAX_REPEATED_ELEMENTS = 64  # elements of constants that may be in a file more than once


def optimize(model: ir.Model) -> ir.Model:
    """Move invariants out of loops, fold constants and remove unused nodes. Results do not
    change.
    """
    for loop in [node for node in model.graph.all_nodes() if node.op_type == "Loop"]:
        _declare_scalars(loop)
        _hoist_invariants(loop)
    _fold_constants(model)
    simplify(model)
    share(model.graph)
    _hoist_nodes(model.graph)
    _fold_constants(model)
    _give_constants(model.graph)
    # The constants of which every reader now has a copy: onnxruntime warns of each.
    passes.RemoveUnusedNodesPass()(model)
    _move_inside(model.graph)
    _shorten_names(model.graph)
    return model


def _fold_constants(model: ir.Model) -> None:
    optimizer.fold_constants(
        model, onnx_shape_inference=False, input_size_limit=2**40, output_size_limit=2**40
    )
    CLEAN_UP(model)


def _hoist_nodes(graph: ir.Graph) -> None:
    """Move operators that read no value of a loop's body before the loop, also those in branches.
    Start with the innermost loop.
    """
    for loop in list(graph):
        for body in _bodies(loop):
            _hoist_nodes(body)
        if loop.op_type == "Loop":
            inside = list(_with_branches(loop.attributes["body"].as_graph()))
            for node in [node for part in inside for node in part]:
                if (
                    not _bodies(node)
                    and not _reads(node, inside)
                    and not node.outputs[0].is_graph_output()
                ):
                    node.graph.remove(node)
                    graph.insert_before(loop, node)


def _bodies(node: ir.Node) -> list[ir.Graph]:
    return [
        attribute.as_graph()
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.GRAPH
    ]


def _with_branches(body: ir.Graph) -> Iterator[ir.Graph]:
    """Yield a body and the branches in it, outer ones before inner ones."""
    yield body
    for node in body:
        for branch in _bodies(node) if node.op_type == "If" else ():
            yield from _with_branches(branch)


def _reads(node: ir.Node, graphs: list[ir.Graph]) -> bool:
    """Return whether an operator reads a value of one of these graphs."""
    return any(
        value is not None and value.graph is graph for value in node.inputs for graph in graphs
    )


def _move_inside(graph: ir.Graph) -> None:
    """Move weights that only one loop body reads into it: onnxruntime prepacks weights only for
    nodes of the same graph.
    """
    for name, weight in list(graph.initializers.items()):
        readers = {id(node.graph): node.graph for node, _ in weight.uses()}
        if (
            len(readers) == 1
            and (reader := next(iter(readers.values()))) is not graph
            and not weight.is_graph_input()
        ):
            del graph.initializers[name]
            reader.register_initializer(weight)


def _give_constants(graph: ir.Graph) -> None:
    """Copy small constants into the branches that read them: values from outside cost onnxruntime
    time whenever it branches.
    """
    branches = [
        branch for node in graph.all_nodes() if node.op_type == "If" for branch in _bodies(node)
    ]
    for number, branch in enumerate(branches):
        for node in branch:
            for i, value in enumerate(node.inputs):
                if value is not None and value.graph is not branch and _is_small(value):
                    node.replace_input_with(
                        i, _copy_of(value, branch, f"{value.name}/branch_{number}")
                    )


def _is_small(value: ir.Value) -> bool:
    """Return whether a value is a small constant, and not the default of an input."""
    return (
        value.is_initializer()
        and not value.is_graph_input()
        and value.const_value.size <= MAX_REPEATED_ELEMENTS
    )


def _copy_of(constant: ir.Value, graph: ir.Graph, name: str) -> ir.Value:
    if name not in graph.initializers:
        graph.register_initializer(ir.Value(name=name, const_value=constant.const_value))
    return graph.initializers[name]


def _shorten_names(graph: ir.Graph) -> None:
    """Remove the suffixes that TensorFlow's inlining appends to names: they are a fifth of a small
    file.
    """
    kept = (*graph.inputs, *graph.outputs)
    weights = [
        value for part in (graph, *graph.subgraphs()) for value in part.initializers.values()
    ]
    taken, done = {value.name for value in kept}, {id(value) for value in kept}
    inner = [value for node in graph.all_nodes() for value in (*node.outputs, *_body_inputs(node))]
    for value in (*weights, *inner):
        if value.name and id(value) not in done:
            value.name = _short_name(value.name, taken)
            done.add(id(value))
    for node in graph.all_nodes():
        node.name = None


def _body_inputs(node: ir.Node) -> list[ir.Value]:
    return [value for body in _bodies(node) for value in body.inputs]


def _short_name(name: str, taken: set[str]) -> str:
    short = name.partition("_tfg_")[0]
    unique = next(
        candidate
        for candidate in itertools.chain([short], map(f"{short}.{{}}".format, itertools.count(1)))
        if candidate not in taken
    )
    taken.add(unique)
    return unique


def _declare_scalars(loop: ir.Node) -> None:
    """Declare a body's iteration and condition as scalars: onnxruntime requires it, and conversion
    loses it for nested loops.
    """
    for value in loop.attributes["body"].as_graph().inputs[:2]:
        value.shape = ir.Shape(())


def _hoist_invariants(loop: ir.Node) -> None:
    """Remove loop state that does not change; the body reads it from the outer graph.

    tf2onnx makes weights and the source's keys and values part of the state, which onnxruntime
    passes on in every iteration.
    """
    body = loop.attributes["body"].as_graph()
    # Inputs of a loop: (count, condition, state…); of its body: (iteration, condition, state…)
    state = range(len(loop.inputs) - 2)
    fixed = [i for i in state if body.outputs[i + 1] is body.inputs[i + 2]]
    kept = [i for i in state if i not in fixed]
    inside = {i: body.inputs[i + 2] for i in fixed}
    for values, offset in ((body.inputs, 2), (body.outputs, 1)):
        changing = [
            *values[:offset],
            *(values[i + offset] for i in kept),
            *values[len(state) + offset :],
        ]
        values.clear()
        values.extend(changing)
    for i in fixed:
        ir.convenience.replace_all_uses_with(
            (inside[i], loop.outputs[i]), (loop.inputs[i + 2],) * 2
        )
    _replace(
        loop,
        [*loop.inputs[:2], *(loop.inputs[i + 2] for i in kept)],
        [*(loop.outputs[i] for i in kept), *loop.outputs[len(state) :]],
    )


def _replace(node: ir.Node, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> None:
    """Replace a node by a copy with other inputs and fewer outputs."""
    copy = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        list(node.attributes.values()),
        num_outputs=len(outputs),
        name=node.name,
    )
    ir.convenience.replace_nodes_and_values(node.graph, node, [node], [copy], outputs, copy.outputs)
