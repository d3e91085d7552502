"""Rewrite patterns for which tf2onnx writes more operators than necessary."""

import numpy as np
import onnx_ir as ir

INT32_OPERATORS = ("Shape", "Size", "TopK", "ArgMax")  # operators whose integers fit into 32 bits
COMPARABLE = (int, float, str, tuple)  # types of attributes that can be compared
THE_END = 10**9  # tf2onnx writes a larger number if a slice has no end


def simplify(model: ir.Model) -> None:
    """Remove slices of everything, and casts to 32 bits and back. Results do not change."""
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Slice" and _takes_all(node):
            _drop(node)
        elif node.op_type == "Cast" and _goes_back(node):
            node.replace_input_with(0, node.inputs[0].producer().inputs[0])
            _drop(node)


def share(graph: ir.Graph) -> None:
    """Merge nodes of a graph that compute the same from the same values. Each loop body and branch
    is treated on its own.
    """
    found: dict[tuple[object, ...], ir.Node] = {}
    for node in list(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                share(attribute.as_graph())
        plain = all(
            isinstance(attribute.value, COMPARABLE) for attribute in node.attributes.values()
        )
        if not plain or any(value.is_graph_output() for value in node.outputs):
            continue
        attributes = tuple(
            sorted((name, attribute.value) for name, attribute in node.attributes.items())
        )
        first = found.setdefault(
            (node.domain, node.op_type, tuple(map(id, node.inputs)), attributes), node
        )
        if first is not node:
            ir.convenience.replace_all_uses_with(node.outputs, first.outputs)
            graph.remove(node, safe=True)


def _drop(node: ir.Node) -> None:
    """Replace a node's output by its input."""
    if not node.outputs[0].is_graph_output():
        ir.convenience.replace_all_uses_with(node.outputs[0], node.inputs[0])
        node.graph.remove(node, safe=True)


def _takes_all(node: ir.Node) -> bool:
    starts, ends, _, *steps = [_constant(value) for value in node.inputs[1:]]
    if (
        starts is None
        or ends is None
        or not all(step is not None and np.all(step == 1) for step in steps)
    ):
        return False
    return bool(np.all(starts == 0) and np.all(ends >= THE_END))


def _goes_back(node: ir.Node) -> bool:
    """Return whether a node casts a size or an index to 64 bits that was cast to 32 bits before."""
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
