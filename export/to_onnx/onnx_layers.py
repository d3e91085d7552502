"""Insert the model's layers into converted searches, as few operators.

tf2onnx converts a layer to about 150 operators. Therefore a search is converted with single nodes in the places of the encoder and
the decoding step (see `placeholder_model`). This module replaces these nodes by operators that it writes from the configuration and
the weights: about 30 standard operators for each layer, or half as many with onnxruntime's own.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import onnx_ir as ir

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import PAD_ID
from tfk_transformer.export.to_onnx.conversion import DOMAIN, READ
from tfk_transformer.export.to_onnx.onnx_attention import FusedAttention, ReproducibleAttention, StandardAttention
from tfk_transformer.export.to_onnx.onnx_matmul import CONTRIB, Float32MatMul, Int8MatMul, RowStatistics
from tfk_transformer.export.to_onnx.operator_writer import OperatorWriter
from tfk_transformer.layers.masks import HIDDEN
from tfk_transformer.models.base import TokenModel


class Profile(NamedTuple):
    """The classes that write the operators of the layers."""

    attention: type[StandardAttention]
    matmul: Callable[..., Float32MatMul]


PROFILES = {
    "portable": Profile(StandardAttention, Float32MatMul),  # standard operators only
    "fast": Profile(FusedAttention, Float32MatMul),  # with operators of onnxruntime
}


def int8_profile(rows: Mapping[str, RowStatistics], kept: Sequence[str] = ()) -> Profile:
    """Return the profile "int8": weights of 8 bits, except those whose names contain one of `kept`, which remain float32.

    Args:
        rows: what is known of the rows of each product, by the name of the weights in the whole model, see `calibration.observe_rows`.
        kept: parts of the names of weights.
    """
    return Profile(ReproducibleAttention, functools.partial(Int8MatMul, rows=rows, kept=kept))


def insert_layers(converted: ir.Model, model: TokenModel, profile: Profile) -> None:
    """Replace the nodes that represent a model's layers by the operators of the layers.

    Args:
        converted: a search over a `PlaceholderModel` of the model; it is changed.
        model: the model with the weights.
        profile: one of `PROFILES`, or a result of `int8_profile`.
    """
    members = [
        (prefix, member.config, {name: np.asarray(weight) for name, weight in member.named_weights.items()})
        for prefix, member in model.named_members().items()
    ]
    write: Callable[..., list[ir.Value]]
    options: LayerOptions
    for node in [node for node in converted.graph.all_nodes() if node.domain == DOMAIN]:
        kind, number = node.op_type.split("_")
        prefix, config, weights = members[int(number)]
        write, options = (write_read, config) if kind == READ else (write_step, config.decoder_options())
        # onnxruntime's MultiHeadAttention requires keys and values of one width.
        attention = profile.attention if config.query_width == config.value_width else StandardAttention
        writer = OperatorWriter(converted.graph, config, options, weights, profile.matmul, prefix)
        outputs = write(writer, attention, *node.inputs)
        ir.convenience.replace_nodes_and_values(node.graph, node, [node], writer.nodes, node.outputs, outputs)
    converted.opset_imports.pop(DOMAIN, None)
    if any(node.domain == CONTRIB for node in converted.graph.all_nodes()):
        converted.opset_imports[CONTRIB] = 1


def write_read(writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value) -> list[ir.Value]:
    """Write the operators of a `Read` node: from source ids (B, S) to the memory of each decoder layer, and the source's mask."""
    op, config = writer.op, cast(TransformerConfig, writer.config)  # a model without an encoder has no such node
    shape, length = op("Shape", [source]), op("Shape", [source], start=1)
    padding = op("Cast", [op("Equal", [source, writer.constant("pad", np.int32(PAD_ID))])], to=ir.DataType.FLOAT.value)
    mask = op("Unsqueeze", [op("Mul", [padding, writer.constant("hidden", np.float32(HIDDEN))]), writer.ints(1, 2)])
    positions = op("Slice", [writer.positions("source"), writer.ints(0), length, writer.ints(0)])
    x = writer.embed("source", source, positions)
    for layer in range(config.encoder_layers):
        path, norm = f"encoder/layer_{layer}", f"encoder/layer_{layer}/attention_residual/norm"
        attended = attention(writer, f"{path}/attention", shape).to_itself(writer.enter(x, norm), mask)
        x = writer.feed_forward(writer.leave(x, attended, norm), path)
    memory = writer.finish(x, "encoder")
    readers = [attention(writer, f"decoder/layer_{layer}/cross_attention", shape) for layer in range(config.decoder_layers)]
    return [*(value for reader in readers for value in reader.project_source(memory)), mask]


def write_step(
    writer: OperatorWriter, attention: type[StandardAttention], ids: ir.Value, lineage: ir.Value, *rest: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Step` node: the logits of the next token of each open hypothesis, attention, and the longer cache."""
    layers, op = writer.config.decoder_layers, writer.op
    cache, memory = rest[: 2 * layers], rest[2 * layers :]
    shape = op("Shape", [ids], end=2)  # A, M
    x = _embed_last(writer, ids)
    grown: list[ir.Value] = []
    visible: ir.Value | None = None  # the attention weights of the last layer
    for layer in range(layers):
        path, pair, norm = f"decoder/layer_{layer}", slice(2 * layer, 2 * layer + 2), f"decoder/layer_{layer}/self_residual/norm"
        attend = attention(writer, f"{path}/self_attention", shape)
        attended, pair_grown = attend.to_past(writer.enter(x, norm), cache[pair], lineage)
        x, grown = writer.leave(x, attended, norm), grown + pair_grown
        if memory:
            reader = attention(writer, f"{path}/cross_attention", shape)
            x, visible = _read_source(writer, reader, path, x, memory[pair], memory[-1], visibly=layer == layers - 1)
        x = writer.feed_forward(x, path)
    logits = _logits(writer, writer.finish(x, "decoder"))
    return [
        op("Reshape", [logits, op("Concat", [shape, writer.ints(writer.config.target_vocab_size)], axis=0)]),
        _mean_over_heads(writer, visible, shape),
        *grown,
    ]


def _embed_last(writer: OperatorWriter, ids: ir.Value) -> ir.Value:
    """Embed the last of ids (A, M, T): rows (R, D)."""
    length = writer.op("Shape", [ids], start=2)
    position = writer.op("Gather", [writer.positions("target"), writer.op("Sub", [length, writer.ints(1)])])  # (1, D)
    return writer.embed("target", writer.op("Gather", [ids, writer.constant("last", np.int64(-1))], axis=2), position)


def _read_source(
    writer: OperatorWriter, attend: StandardAttention, path: str, x: ir.Value, memory: Sequence[ir.Value], mask: ir.Value, visibly: bool
) -> tuple[ir.Value, ir.Value | None]:
    """Return rows (R, D) and, if `visibly`, the attention weights (A, H, M, S), which the coverage penalty requires."""
    norm = f"{path}/cross_residual/norm"
    weights: ir.Value | None = None
    query = writer.enter(x, norm)
    if visibly:
        attended, weights = attend.to_source_visibly(query, memory, mask)
    else:
        attended = attend.to_source(query, memory, mask)
    return writer.leave(x, attended, norm), weights


def _mean_over_heads(writer: OperatorWriter, weights: ir.Value | None, shape: ir.Value) -> ir.Value:
    """Return the attention (A, M, S), or (A, M, 0) if the model has no encoder."""
    if weights is not None:
        return writer.op("ReduceMean", [weights, writer.ints(1)], keepdims=0)
    return writer.op("Expand", [writer.constant("nothing", np.float32(0)), writer.op("Concat", [shape, writer.ints(0)], axis=0)])


def _logits(writer: OperatorWriter, x: ir.Value) -> ir.Value:
    bias, kernel = writer.weights.get("output/bias"), writer.weights.get("output/kernel")
    if kernel is not None:
        return writer.matmul.multiply(x, "output/kernel", kernel, bias)
    table = writer.table("target")
    return writer.matmul.multiply_by_table(x, table, writer.weights[table], bias)
