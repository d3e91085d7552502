"""Insert the layers of a Keras model that `layer_operators` does not describe, with tf2onnx.

There are about half as many more operators.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import onnx
import onnx_ir as ir
import tensorflow as tf
from onnx_ir.passes import common as passes

from tfk_transformer.array_types import Tensor
from tfk_transformer.export.to_onnx import conversion
from tfk_transformer.export.to_onnx.conversion import DOMAIN, MEMBER, from_tensorflow
from tfk_transformer.inference import signatures
from tfk_transformer.inference.signatures import Signature, TensorSignature
from tfk_transformer.search.decoder_step import StepFunctions, tensors_by_name
from tfk_transformer.search.signature_functions import Body, tf_function

Function: TypeAlias = tuple[Body, Signature]
# By the name of an input of the converted functions: a weight, and its value in the outer graph.
Weights: TypeAlias = dict[str, tuple[keras.Variable, ir.Value]]

STEP_INPUTS = (
    TensorSignature("tokens", "int32", ("N", "M")),
    TensorSignature("position", "int32", ()),
    TensorSignature("lineage", "float32", ("N", 1, "M", "P")),
)
CANDIDATES = TensorSignature("candidates", "int32", ("n",))  # of a search with a shortlist


def insert_traced_layers(outer: ir.Model, members: Mapping[str, Any]) -> None:
    """Insert operators that tf2onnx converts, as `layer_nodes.insert_layers` inserts its own."""
    graph = outer.graph
    for node in graph:
        if node.domain == DOMAIN and node.op_type == conversion.DECODE and len(node.inputs) > 1:
            # A full pass reads the source, as the Keras model does, instead of the memory.
            (source,) = node.inputs[1].producer().inputs
            node.resize_inputs(2)
            node.replace_input_with(1, source)
    passes.RemoveUnusedNodesPass()(outer)
    weights: list[Weights] = []
    for prefix, member in members.items():
        weights.append({})
        for number, (name, variable) in enumerate(member.named_weights.items()):
            tensor = ir.tensor(keras.ops.convert_to_numpy(variable))
            value = ir.Value(name=f"{prefix}{name}", const_value=tensor)
            graph.register_initializer(value)
            weights[-1][f"weight_{number}"] = (variable, value)
    for node in [node for node in graph.all_nodes() if node.domain == DOMAIN]:
        number = node.attributes[MEMBER].as_int()
        function = FUNCTIONS[node.op_type](list(members.values())[number], len(node.inputs))
        _replace(graph, node, f"{node.op_type}_{number}", function, weights[number])
    outer.opset_imports.pop(DOMAIN, None)
    # Tables of positions, which several nodes may read.
    passes.DeduplicateHashedInitializersPass()(outer)
    passes.NameFixPass()(outer)


def _replace(
    outer: ir.Graph, node: ir.Node, name: str, function: Function, weights: Weights
) -> None:
    """Replace a node by the nodes of a converted function, whose constants move to `outer`."""
    body, signature = function
    converted = _convert(body, signature, {key: weight for key, (weight, _) in weights.items()})
    names = [tensor.name for tensor in signature.inputs]
    values = dict(zip(names, node.inputs, strict=True)) | {
        key: value for key, (_, value) in weights.items()
    }
    for value in converted.inputs:
        ir.convenience.replace_all_uses_with(value, values[value.name])
    for key, constant in converted.initializers.items():
        moved = ir.Value(name=f"{name}/{key}", const_value=constant.const_value)
        outer.register_initializer(moved)
        ir.convenience.replace_all_uses_with(constant, moved)
    by_name = {value.name: value for value in converted.outputs}
    outputs = [by_name[tensor.name] for tensor in signature.outputs]
    converted.outputs.clear()
    nodes = list(converted)
    converted.remove(nodes)
    ir.convenience.replace_nodes_and_values(node.graph, node, [node], nodes, node.outputs, outputs)


def _convert(body: Body, signature: Signature, weights: Mapping[str, keras.Variable]) -> ir.Graph:
    """Convert a function to a graph whose inputs include the weights.

    As constants, weights that several functions read would be in several graphs. Layers that
    tf2onnx does not support are a `ValueError`.
    """

    def body_of_weights(**tensors: Tensor) -> Mapping[str, Tensor]:
        state = [(weight, tensors.pop(name)) for name, weight in weights.items()]
        with keras.StatelessScope(state):
            return body(**tensors)

    tensors = (TensorSignature(name, w.dtype, tuple(w.shape)) for name, w in weights.items())
    inputs = (*signature.inputs, *tensors)
    function = tf_function(body_of_weights, signature._replace(inputs=inputs))
    concrete = function.get_concrete_function()
    try:
        graph = from_tensorflow(concrete).graph
        operators = {(node.op_type, node.domain) for node in graph.all_nodes()}
        if unknown := [name for name, domain in operators if not onnx.defs.has(name, domain)]:
            raise ValueError(f"no ONNX operators for {', '.join(sorted(unknown))}")
        return graph
    except Exception as error:  # tf2onnx raises exceptions of many types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            "formats: expected layers that tf2onnx converts to ONNX, got its error: "
            f"{reason.rstrip('.')}; use formats=['saved_model']. Nothing was written."
        ) from error


def _step(member: Any, inputs: int, step_inputs: Sequence[TensorSignature]) -> Function:
    config = member.config
    functions = StepFunctions(member)

    def body(
        tokens: Tensor,
        position: Tensor,
        lineage: Tensor = None,
        candidates: Tensor = None,
        **rest: Tensor,
    ) -> dict[str, Tensor]:
        (step,) = functions.steps(tokens, position, rest, lineage)
        logits = step.logits if candidates is None else tf.gather(step.logits, candidates, axis=2)
        cache = tensors_by_name("next_cache", [step.cache])
        return {"logits": logits, "attention": step.attention, **cache}

    shapes = signatures.cache_shapes(config) | signatures.memory_shapes(config)
    read = (*step_inputs, *signatures.float32_tensors(shapes), CANDIDATES)[:inputs]
    next_cache = signatures.cache_shapes(config, "next_")
    return body, Signature(read, _outputs("logits", "attention", *next_cache))


def _decode(member: Any, inputs: int) -> Function:
    def body(target_ids: Tensor, source_ids: Tensor = None) -> dict[str, Tensor]:
        pair = {"source": source_ids, "target": target_ids}
        decoded = member.decode(target_ids if source_ids is None else pair, training=False)
        weights = decoded.self_weights if source_ids is None else decoded.cross_weights
        return {"output": decoded.output, **dict(zip(names, weights, strict=True))}

    names = [f"weights_{i}" for i in range(member.config.decoder_layers)]
    read = (signatures.TARGET_IDS, signatures.SOURCE_IDS)[:inputs]
    return body, Signature(read, _outputs("output", *names))


def _read(member: Any, inputs: int) -> Function:
    memory = _outputs(*signatures.memory_shapes(member.config))
    return StepFunctions(member).encode, Signature((signatures.SOURCE_IDS,), memory)


def _logits(member: Any, inputs: int) -> Function:
    output = TensorSignature("output", "float32", ("N", "T", member.config.model_dim))
    signature = Signature((output,), _outputs("logits"))
    return lambda output: {"logits": member.logits(output)}, signature


def _classify(member: Any, inputs: int) -> Function:
    signature = Signature((signatures.SOURCE_IDS,), _outputs("logits"))
    return lambda source_ids: {"logits": member(source_ids, training=False)}, signature


def _outputs(*names: str) -> tuple[TensorSignature, ...]:
    return tuple(TensorSignature(name, "float32", ()) for name in names)


# For each operator, from a member and the number of inputs to the function that is converted.
FUNCTIONS: dict[str, Callable[[Any, int], Function]] = {
    conversion.READ: _read,
    conversion.STEP: functools.partial(_step, step_inputs=STEP_INPUTS),
    conversion.GREEDY_STEP: functools.partial(_step, step_inputs=STEP_INPUTS[:2]),
    conversion.DECODE: _decode,
    conversion.LOGITS: _logits,
    conversion.CLASSIFY_OPERATOR: _classify,
}
