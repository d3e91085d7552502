"""Convert TensorFlow functions to ONNX models, with tf2onnx."""

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from tensorflow.types.experimental import ConcreteFunction
    from tf2onnx.graph import Graph, Node

# Domain and operators of the nodes that represent layers; see `scripts/template_building.py`.
DOMAIN = "tfk_transformer"
MEMBER = "member"  # the attribute of these nodes: the number of the member that has the layers
READ = "Read"
CACHE = "Cache"
STEP = "Step"
GREEDY_STEP = "GreedyStep"
DECODE = "Decode"
LOGITS = "Logits"
CLASSIFY_OPERATOR = "Classify"
OPSET = 18  # the newest opset that tf2onnx 1.17 supports
IR_VERSION = 8  # the version that tf2onnx 1.17 writes


def from_tensorflow(function: "ConcreteFunction") -> ir.Model:
    """Convert a concrete function to standard operators; inputs and outputs keep their names.

    This is tf2onnx's `from_function` without its optimizers, which take three quarters of the time
    and find nothing that the passes of `optimize` miss.
    """
    import tensorflow as tf
    from tf2onnx import tf_loader, tfonnx
    from tf2onnx.convert import tensor_names_from_structed

    # Inputs of type resource are weights.
    inputs = [tensor.name for tensor in function.inputs if tensor.dtype != tf.resource]
    outputs = [tensor.name for tensor in function.outputs]
    with quietly("tf2onnx"), tf.device("/cpu:0"):
        # Without large_model, inlined functions are registered for the whole process, and their
        # names conflict with the names of the next conversion.
        frozen = tf_loader.from_function(function, inputs, outputs, large_model=True)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(frozen, name="")
            converted = tfonnx.process_tf_graph(
                graph,
                opset=OPSET,
                input_names=inputs,
                output_names=outputs,
                tensors_to_rename=tensor_names_from_structed(function, inputs, outputs),
                custom_op_handlers=dict.fromkeys(("SelectV2", "PyFuncStateless"), (_rename, [])),
            )
            return ir.from_proto(converted.make_model("tfk_transformer"))


def _rename(context: "Graph", node: "Node", name: str, arguments: list[object]) -> "Node":
    """Make SelectV2 a Where, and a node that represents layers the operator of its layers."""
    if node.type == "SelectV2":
        # tf2onnx writes six nodes that multiply by 0 and 1, which turns an infinity into a NaN.
        node.type, node.domain = "Where", ""
    else:
        # The token of a node that represents layers is the operator.
        node.type, node.domain = node.get_attr_str("token"), DOMAIN
    return node


@contextlib.contextmanager
def quietly(name: str) -> Iterator[None]:
    """Do not log what a library logs in this block; it raises its errors as well."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
