"""Simplify patterns in which tf2onnx writes more operators than necessary."""

import numpy as np
import onnx_ir as ir

INT32_OPERATORS = ("Shape", "Size", "TopK", "ArgMax")  # operators whose integers fit into 32 bits
COMPARABLE = (int, float, str, tuple)  # types of attributes that can be compared
MIN_OPEN_END = 10**9  # tf2onnx writes a larger number if a slice has no end


def bodies(node: ir.Node) -> list[ir.Graph]:
    """Return the bodies of a loop or the branches of an If, in the order of their names."""
    attributes = [attribute for _, attribute in sorted(node.attributes.items())]
    return [
        attribute.as_graph() for attribute in attributes if attribute.type == ir.AttributeType.GRAPH
    ]


def simplify(model: ir.Model) -> None:
    """Remove slices of whole axes, and casts to 32 bits and back. Results do not change."""
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Slice" and _is_whole_slice(node):
            _drop(node)
        elif node.op_type == "Cast" and _is_cast_back(node):
            node.replace_input_with(0, node.inputs[0].producer().inputs[0])
            _drop(node)


def share(graph: ir.Graph) -> None:
    """Merge nodes of a graph that compute the same from the same values.

    Nodes of different loop bodies and branches are not merged.
    """
    first_nodes: dict[tuple[object, ...], ir.Node] = {}
    for node in list(graph):
        for body in bodies(node):
            share(body)
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        is_comparable = all(isinstance(value, COMPARABLE) for value in attributes.values())
        if not is_comparable or any(value.is_graph_output() for value in node.outputs):
            continue
        inputs = tuple(map(id, node.inputs))
        key = (node.domain, node.op_type, inputs, tuple(sorted(attributes.items())))
        first = first_nodes.setdefault(key, node)
        if first is not node:
            ir.convenience.replace_all_uses_with(node.outputs, first.outputs)
            graph.remove(node, safe=True)


def _drop(node: ir.Node) -> None:
    """Replace a node's output by its input."""
    if not node.outputs[0].is_graph_output():
        ir.convenience.replace_all_uses_with(node.outputs[0], node.inputs[0])
        node.graph.remove(node, safe=True)


def _is_whole_slice(node: ir.Node) -> bool:
    starts, ends, _, *steps = [_constant(value) for value in node.inputs[1:]]
    if starts is None or ends is None:
        return False
    if not all(step is not None and np.all(step == 1) for step in steps):
        return False
    return bool(np.all(starts == 0) and np.all(ends >= MIN_OPEN_END))


def _is_cast_back(node: ir.Node) -> bool:
    """Return whether a node casts a size or an index from 32 bits back to 64 bits."""
    before = node.inputs[0].producer()
    if not (_casts_to(node, ir.DataType.INT64) and before and _casts_to(before, ir.DataType.INT32)):
        return False
    origin = before.inputs[0].producer()
    return origin is not None and origin.op_type in INT32_OPERATORS


def _casts_to(node: ir.Node, dtype: ir.DataType) -> bool:
    return node.op_type == "Cast" and node.attributes["to"].as_int() == dtype


def _constant(value: ir.Value | None) -> np.ndarray | None:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()
