"""Weights of ONNX files that onnxruntime maps from the file itself."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tfk_transformer.export.runtime.protobuf import SMALLEST, graph_with_external_weights
from tfk_transformer.export.runtime.sessions import open_session

GRAPH = 7  # the number of the field of ModelProto


def weights_of(graph):
    """Yield the tensors of a graph and of its loop bodies."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from weights_of(attribute.g)


@pytest.mark.parametrize("name", ["generate.onnx", "translate.onnx", "score.onnx"])
def test_references_lead_to_the_weights(exported, name):
    path = exported / name
    model = onnx.load_from_string(graph_with_external_weights(path))
    large = {
        index: tensor.raw_data
        for index, tensor in enumerate(weights_of(onnx.load(path).graph))
        if len(tensor.raw_data) >= SMALLEST
    }
    tensors = list(weights_of(model.graph))
    external = {index for index, tensor in enumerate(tensors) if tensor.external_data}
    assert external == set(large)
    assert large
    onnx.load_external_data_for_model(model, str(exported))
    assert {index: tensors[index].raw_data for index in large} == large


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_are_mapped_through_a_link(exported, tmp_path):
    link = tmp_path / "linked.onnx"
    link.symlink_to(exported / "generate.onnx")
    session = open_session(link)
    assert str(exported / "generate.onnx") in Path("/proc/self/maps").read_text()
    del session


def field(number, content):
    """Return a field of a message, of fewer than 2 ** 21 bytes."""
    size = len(content)
    length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
    return bytes([number << 3 | 2]) + length + content


def nested_graphs(depth):
    """Return a model whose graph contains a node with a graph, and so on."""
    graph = bytes(SMALLEST)
    for _ in range(depth):
        graph = field(1, field(5, field(6, graph)))
    return field(GRAPH, graph)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\x0f", "wire type 7"),
        (b"\x3a\x05abc", "a part of one"),
        (b"\x09abc", "a part of one"),
        (b"\x80" * 20, "a number without an end"),
        (b"\x08", "a number without an end"),
        (nested_graphs(40), "at most 100 nested messages"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "file.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"file.onnx does not load: .*{message}"):
        open_session(path)


def test_weights_of_other_models_are_read(tmp_path):
    """Numbers that are stored as fields of their own type stay in the graph."""
    rng = np.random.default_rng(0)
    raw = onnx.numpy_helper.from_array(rng.normal(size=(64, 64)).astype("float32"), "raw")
    typed = onnx.helper.make_tensor("typed", onnx.TensorProto.FLOAT, [64, 64], [0.5] * 4096)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["raw", "typed"], ["output"])],
        "graph",
        [],
        [onnx.helper.make_tensor_value_info("output", onnx.TensorProto.FLOAT, [64, 64])],
        [raw, typed],
    )
    opset = onnx.helper.make_opsetid("", 18)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    external = onnx.load_from_string(graph_with_external_weights(path)).graph.initializer
    assert [len(tensor.external_data) for tensor in external] == [3, 0]
    (output,) = open_session(path).run(None, {})
    np.testing.assert_allclose(
        output, onnx.numpy_helper.to_array(raw) @ np.full((64, 64), 0.5), atol=1e-5
    )
