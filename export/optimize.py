"""Rewriting of converted graphs, with onnx-ir."""

import onnx_ir as ir
from onnxscript import optimizer


def optimize(model: ir.Model) -> ir.Model:
    """Take what does not change out of loops, fold constants and drop what nothing reads; the result stays the same."""
    for node in list(model.graph):
        if node.op_type == "Loop":
            _hoist_invariants(node)
    optimizer.optimize(model, onnx_shape_inference=False)
    return model


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
