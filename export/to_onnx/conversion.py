"""From a TensorFlow function to an ONNX graph, with tf2onnx."""

import contextlib
import logging
from collections import OrderedDict

import numpy as np
import onnx_ir as ir

DOMAIN, READ, STEP = "tfk_transformer", "Read", "Step"  # of nodes that stand for layers, see `stand_in`, and their operators
OPSET = 18  # the newest that tf2onnx 1.17 knows


def from_tensorflow(function) -> ir.Model:
    """Convert a concrete function, with standard operators alone.

    This is tf2onnx's `from_function` but for its clean-up: that goes through twelve rewritings of which eight find nothing
    here, copies the whole graph before each, and takes four fifths of the time.

    Args:
        function: of tensors; its inputs and outputs keep their names.
    """
    import tensorflow as tf
    from tf2onnx import optimizer, tf_loader, tfonnx
    from tf2onnx.convert import tensor_names_from_structed

    inputs = [tensor.name for tensor in function.inputs if tensor.dtype != tf.resource]  # the others are weights
    outputs = [tensor.name for tensor in function.outputs]
    with quietly("tf2onnx"), tf.device("/cpu:0"):
        # Its way for large models: the other registers inlined functions with the process, where those of a second conversion clash.
        frozen = tf_loader.from_function(function, inputs, outputs, large_model=True)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(frozen, name="")
            converted = tfonnx.process_tf_graph(
                graph,
                opset=OPSET,
                input_names=inputs,
                output_names=outputs,
                tensors_to_rename=tensor_names_from_structed(function, inputs, outputs),
                custom_op_handlers={name: (handler, []) for name, handler in _HANDLERS.items()},
            )
            return ir.from_proto(
                optimizer.optimize_graph(converted, catch_errors=False, optimizers=_clean_up()).make_model("tfk_transformer")
            )


def _clean_up() -> OrderedDict:
    from tf2onnx.optimizer.back_to_back_optimizer import BackToBackOptimizer
    from tf2onnx.optimizer.const_fold_optimizer import ConstFoldOptimizer
    from tf2onnx.optimizer.identity_optimizer import IdentityOptimizer
    from tf2onnx.optimizer.merge_duplicated_nodes_optimizer import MergeDuplicatedNodesOptimizer

    used = (ConstFoldOptimizer, MergeDuplicatedNodesOptimizer, IdentityOptimizer, BackToBackOptimizer)
    return OrderedDict((kind.__name__, kind) for kind in used)


def _as_where(context, node, name, arguments):
    """Convert SelectV2 to the operator that it is; tf2onnx multiplies by 0 and 1, six nodes that turn an infinity into a NaN."""
    node.type, node.domain = "Where", ""
    return node


def _as_itself(context, node, name, arguments):
    """Let a node be that stands for layers, see `stand_in`."""
    node.type = STEP if f"{DOMAIN}_{STEP}" in name else READ
    node.domain = DOMAIN
    return node


def _as_one_minus_erf(context, node, name, arguments):
    """Convert Erfc, which TensorFlow 2.21 writes for an exact GELU and tf2onnx 1.17 does not know, to 1 - Erf."""
    inputs, outputs = list(node.input), list(node.output)
    (dtype,), (shape,) = node.output_dtypes, node.output_shapes
    context.remove_node(name)
    one = context.make_const(f"{name}/one", np.float32(1.0))
    erf = context.make_node("Erf", inputs, name=f"{name}/erf", dtypes=[dtype], shapes=[shape])
    return context.make_node("Sub", [one.output[0], erf.output[0]], name=name, outputs=outputs, dtypes=[dtype], shapes=[shape])


_HANDLERS = {"SelectV2": _as_where, "PyFuncStateless": _as_itself, "Erfc": _as_one_minus_erf}


@contextlib.contextmanager
def quietly(name: str):
    """Keep a library's notes and warnings off the terminal."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
