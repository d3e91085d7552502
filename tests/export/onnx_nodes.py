"""The nodes of ONNX graphs."""

import onnx


def all_nodes(graph):
    """Yield every node of an ONNX graph, those of bodies and branches too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)
