"""Rewriting of converted graphs, with onnx-ir."""

import itertools

import numpy as np
import onnx_ir as ir
from onnxscript import optimizer


def optimize(model: ir.Model) -> ir.Model:
    """Take what does not change out of loops, fold constants and drop what nothing reads; the result stays the same."""
    for loop in [node for node in model.graph.all_nodes() if node.op_type == "Loop"]:
        _declare_scalars(loop)
        _hoist_invariants(loop)
    for product in [node for node in model.graph.all_nodes() if node.op_type == "MatMul"]:
        _unfold_transposed(product)
        _read_transposed(product)
    optimizer.optimize(model, onnx_shape_inference=False, input_size_limit=2**40, output_size_limit=2**40)
    _move_inside(model.graph)
    _shorten_names(model.graph)
    return model


def _read_transposed(product: ir.Node) -> None:
    """Multiply by a transposed weight as it lies: a table that embeds tokens and predicts them stands in the file once."""
    rows, transposed = product.inputs
    transpose = transposed.producer()
    if not (transpose and transpose.op_type == "Transpose" and transpose.inputs[0].is_initializer() and _is_matrix(rows)):
        return
    gemm = ir.Node("", "Gemm", [rows, transpose.inputs[0]], [ir.AttrInt64("transB", 1)])
    ir.convenience.replace_nodes_and_values(product.graph, product, [product], [gemm], product.outputs, gemm.outputs)
    if not transposed.uses():
        transpose.graph.remove(transpose, safe=True)  # or it would be folded into a second table


def _unfold_transposed(product: ir.Node) -> None:
    """Multiply by the transpose of a weight, where TensorFlow has stored that transpose as a second weight."""
    weight = product.inputs[1]
    if weight.const_value is None or len(weight.shape) != 2 or weight.shape[0] == weight.shape[1]:
        return
    for other in product.graph.initializers.values():
        if other.shape == weight.shape[::-1] and np.array_equal(other.const_value.numpy().T, weight.const_value.numpy()):
            transpose = ir.node("Transpose", [other], {"perm": [1, 0]})
            product.graph.insert_before(product, transpose)
            product.replace_input_with(1, transpose.outputs[0])
            return


def _is_matrix(value: ir.Value) -> bool:
    """Tell whether a value is reshaped to two dimensions."""
    reshape = value.producer()
    shape = reshape.inputs[1] if reshape and reshape.op_type == "Reshape" else None
    known = ir.convenience.get_const_tensor(shape) if shape is not None else None
    return known is not None and known.size == 2


def _move_inside(graph: ir.Graph) -> None:
    """Give a weight that one body alone reads to that body: onnxruntime packs weights for its products once where they stand."""
    for name, weight in list(graph.initializers.items()):
        readers = {id(node.graph): node.graph for node, _ in weight.uses()}
        if len(readers) == 1 and (reader := next(iter(readers.values()))) is not graph and not weight.is_graph_input():
            del graph.initializers[name]
            reader.register_initializer(weight)


def _shorten_names(graph: ir.Graph) -> None:
    """Cut from names what TensorFlow's inlining wrote behind them, once a loop and more: in all a fifth of a small file."""
    kept = (*graph.inputs, *graph.outputs)
    weights = [value for part in (graph, *graph.subgraphs()) for value in part.initializers.values()]
    taken, done = {value.name for value in kept}, {id(value) for value in kept}
    inner = [value for node in graph.all_nodes() for value in (*node.outputs, *_body_inputs(node))]
    for value in (*weights, *inner):
        if value.name and id(value) not in done:
            value.name = _short_name(value.name, taken)
            done.add(id(value))
    for node in graph.all_nodes():
        node.name = None


def _body_inputs(node: ir.Node):
    bodies = [attribute.as_graph() for attribute in node.attributes.values() if attribute.type == ir.AttributeType.GRAPH]
    return [value for body in bodies for value in body.inputs]


def _short_name(name: str, taken: set[str]) -> str:
    short = name.partition("_tfg_")[0]
    unique = next(
        candidate for candidate in itertools.chain([short], map(f"{short}.{{}}".format, itertools.count(1))) if candidate not in taken
    )
    taken.add(unique)
    return unique


def _declare_scalars(loop: ir.Node) -> None:
    """Say that a body's iteration and condition are scalars: onnxruntime asks for it, and a loop in a loop lost it on the way."""
    for value in loop.attributes["body"].as_graph().inputs[:2]:
        value.shape = ir.Shape(())


def _hoist_invariants(loop: ir.Node) -> None:
    """Let a loop's body read unchanging state from the outer graph.

    tf2onnx hands weights and the source's keys and values through the loop as state, and onnxruntime passes state on in
    every iteration.
    """
    body = loop.attributes["body"].as_graph()
    state = range(len(loop.inputs) - 2)  # a loop reads (count, condition, state…); its body (iteration, condition, state…)
    fixed = [i for i in state if body.outputs[i + 1] is body.inputs[i + 2]]
    kept = [i for i in state if i not in fixed]
    inside = {i: body.inputs[i + 2] for i in fixed}
    for values, offset in ((body.inputs, 2), (body.outputs, 1)):
        changing = [*values[:offset], *(values[i + offset] for i in kept), *values[len(state) + offset :]]
        values.clear()
        values.extend(changing)
    for i in fixed:
        ir.convenience.replace_all_uses_with((inside[i], loop.outputs[i]), (loop.inputs[i + 2],) * 2)
    _replace(loop, [*loop.inputs[:2], *(loop.inputs[i + 2] for i in kept)], [*(loop.outputs[i] for i in kept), *loop.outputs[len(state) :]])


def _replace(node: ir.Node, inputs, outputs) -> None:
    """Put a copy of a node in its place that has other inputs, and fewer outputs."""
    copy = ir.Node(node.domain, node.op_type, inputs, list(node.attributes.values()), num_outputs=len(outputs), name=node.name)
    ir.convenience.replace_nodes_and_values(node.graph, node, [node], [copy], outputs, copy.outputs)
