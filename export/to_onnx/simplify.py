"""Rewriting of what tf2onnx writes in more operators than it takes."""

import numpy as np
import onnx_ir as ir

SIZES = ("Shape", "Size", "TopK", "ArgMax")  # whose integers fit into 32 bits
PLAIN = (int, float, str, tuple)  # attributes that can be compared
THE_END = 10**9  # what tf2onnx writes where a slice has no end


def simplify(model: ir.Model) -> None:
    """Drop slices that take all, casts there and back, and what is computed twice; the result stays the same."""
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Slice" and _takes_all(node):
            _drop(node)
        elif node.op_type == "Cast" and _goes_back(node):
            node.replace_input_with(0, node.inputs[0].producer().inputs[0])
            _drop(node)


def share(graph: ir.Graph) -> None:
    """Let what a graph computes twice, of the same values, be computed once; its loops and branches each for themselves."""
    found = {}
    for node in list(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                share(attribute.as_graph())
        plain = all(isinstance(attribute.value, PLAIN) for attribute in node.attributes.values())
        if not plain or any(value.is_graph_output() for value in node.outputs):
            continue
        attributes = tuple(sorted((name, attribute.value) for name, attribute in node.attributes.items()))
        first = found.setdefault((node.domain, node.op_type, tuple(map(id, node.inputs)), attributes), node)
        if first is not node:
            ir.convenience.replace_all_uses_with(node.outputs, first.outputs)
            graph.remove(node, safe=True)


def _drop(node: ir.Node) -> None:
    """Let those who read a node's output read its input."""
    if not node.outputs[0].is_graph_output():
        ir.convenience.replace_all_uses_with(node.outputs[0], node.inputs[0])
        node.graph.remove(node, safe=True)


def _takes_all(node: ir.Node) -> bool:
    starts, ends, _, *steps = [_constant(value) for value in node.inputs[1:]]
    known = starts is not None and ends is not None and all(step is not None and np.all(step == 1) for step in steps)
    return known and np.all(starts == 0) and np.all(ends >= THE_END)


def _goes_back(node: ir.Node) -> bool:
    """Tell whether a cast to 64 bits follows one to 32 of a size or a place."""
    before = node.inputs[0].producer()
    if not (_casts_to(node, ir.DataType.INT64) and before and _casts_to(before, ir.DataType.INT32)):
        return False
    origin = before.inputs[0].producer()
    return origin is not None and origin.op_type in SIZES


def _casts_to(node: ir.Node, dtype: ir.DataType) -> bool:
    return node.op_type == "Cast" and node.attributes["to"].as_int() == dtype


def _constant(value: ir.Value | None) -> np.ndarray | None:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()
