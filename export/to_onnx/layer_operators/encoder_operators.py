"""Write the operators of the encoder and of a classifier."""

from typing import cast

import numpy as np
import onnx_ir as ir

from tfk_transformer.config.model_options import ClassifierConfig, TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.export.to_onnx.layer_operators.onnx_attention import StandardAttention
from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OperatorWriter
from tfk_transformer.export.to_onnx.layer_operators.prefix_operators import add_prefix
from tfk_transformer.layers.masks import HIDDEN


def write_read(
    writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Read` node.

    They compute the memory of each decoder layer and the source's mask from source ids (B, S).
    """
    config = cast(TransformerConfig, writer.config)  # only models with an encoder have this node
    source = add_prefix(writer, "source", source)
    encoded, mask = _encode(writer, attention, source)
    memory: list[ir.Value] = []
    for layer in range(config.decoder_layers):
        reader = attention(writer, f"decoder/layer_{layer}/cross_attention")
        memory += reader.project_source(encoded)
    return [*memory, mask]


def write_classify(
    writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value
) -> list[ir.Value]:
    """Write the operators of a `Classify` node: from ids (B, S) to logits (B, C); see
    `Classifier.call`.
    """
    op = writer.op
    encoded, _ = _encode(writer, attention, source)
    is_real = op.Not(op.Equal(source, writer.constant("pad", np.int32(PAD_ID))))
    real = op.Cast(is_real, to=ir.DataType.FLOAT.value)  # (B, S)
    count = op.ReduceSum(real, writer.ints(1), keepdims=1)
    count = op.Max(count, writer.constant("one", np.float32(1)))
    shares = op.Unsqueeze(op.Div(real, count), writer.ints(2))  # (B, S, 1)
    mean = op.ReduceSum(op.Mul(encoded, shares), writer.ints(1), keepdims=0)  # (B, D)
    head = (writer.weights["head/kernel"], writer.weights["head/bias"])
    return [writer.matmul.multiply(mean, "head/kernel", *head)]


def _encode(
    writer: OperatorWriter, attention: type[StandardAttention], source: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Write the encoder.

    Args:
        writer: writer of the operators.
        attention: writes attention.
        source: ids (B, S), with the prefix.

    Returns:
        Rows (B, S, D), and the additive mask (B, 1, 1, S).
    """
    op = writer.op
    config = cast(TransformerConfig | ClassifierConfig, writer.config)
    is_hidden = op.Equal(source, writer.constant("pad", np.int32(PAD_ID)))
    if isinstance(config, TransformerConfig) and not config.source_end:
        is_hidden = op.Or(is_hidden, op.Equal(source, writer.constant("end", np.int32(END_ID))))
    hidden = op.Cast(is_hidden, to=ir.DataType.FLOAT.value)
    hidden = op.Mul(hidden, writer.constant("hidden", np.float32(HIDDEN)))
    mask = op.Unsqueeze(hidden, writer.ints(1, 2))
    positions = None if writer.is_relative else _source_positions(writer, source, is_hidden)
    x = writer.embed("source", source, positions)
    masks = writer.full_pass_masks("encoder", source, mask)
    for layer in range(config.encoder_layers):
        path = f"encoder/layer_{layer}"
        norm = f"{path}/attention_residual/norm"
        self_attention = attention(writer, f"{path}/attention")
        attended, _ = self_attention.to_itself(writer.enter(x, norm), masks[layer])
        x = writer.feed_forward(writer.leave(x, attended, norm), path)
    return writer.finish(x, "encoder"), mask


def _source_positions(writer: OperatorWriter, ids: ir.Value, is_hidden: ir.Value) -> ir.Value:
    """Return the positions of a source's ids (B, S) with its additions: (S, D), or (B, S, D) for a
    model with a suffix; see `models.prefixes.positions_with_suffix`.
    """
    suffix = len(getattr(writer.config, "source_suffix", ()))  # a classifier has none
    if not suffix:
        return writer.first_positions("source", ids)
    op = writer.op
    visible = op.Cast(op.Not(is_hidden), to=ir.DataType.INT64.value)
    count = op.ReduceSum(visible, writer.ints(1), keepdims=1)  # (B, 1)
    after = op.Add(count, writer.ints(*range(-suffix, 0)))
    length = op.Sub(op.Shape(ids, start=1), writer.ints(suffix))
    first = writer.constant("start", np.int64(0))
    others = op.Range(first, op.Squeeze(length), writer.constant("one_step", np.int64(1)))
    others = op.Expand(others, op.Concat(op.Shape(ids, end=1), length, axis=0))
    return op.Gather(writer.positions("source"), op.Concat(after, others, axis=1))
