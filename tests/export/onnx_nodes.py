"""The nodes of ONNX graphs."""

import onnx


def all_nodes(graph):
    """Yield every node of an ONNX graph, including nodes of loop bodies and branches."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)
