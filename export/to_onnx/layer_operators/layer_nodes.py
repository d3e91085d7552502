"""Insert a model's layers into the graphs of its search and scoring.

tf2onnx converts a layer to about 150 operators. Therefore the templates of search and scoring have
a single node instead of the layers (see `templates`). This module replaces these nodes by operators
that are written from the configuration and the weights, about 30 standard operators for each layer.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from tfk_transformer.export.to_onnx.conversion import (
    CLASSIFY_OPERATOR,
    DECODE,
    DOMAIN,
    LOGITS,
    MEMBER,
    READ,
    STEP,
)
from tfk_transformer.export.to_onnx.layer_operators.mixers import (
    ReproducibleAttention,
    StandardAttention,
)
from tfk_transformer.export.to_onnx.layer_operators.onnx_matmul import (
    CONTRIB,
    Float32MatMul,
    Int8MatMul,
)
from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OperatorWriter
from tfk_transformer.export.to_onnx.layer_operators.stacks import (
    write_classify,
    write_decode,
    write_logits,
    write_read,
    write_step,
)
from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import (
    RowStatistics,
    WeightRounding,
)

WRITE: dict[str, Callable[..., list[ir.Value]]] = {
    READ: write_read,
    STEP: write_step,
    DECODE: write_decode,
    LOGITS: write_logits,
    CLASSIFY_OPERATOR: write_classify,
}
SOURCE_MULTIPLE = 4  # onnxruntime adds this many products at a time


class Profile(NamedTuple):
    """The classes that write the operators of the layers."""

    attention: type[StandardAttention]
    matmul: Callable[..., Float32MatMul]
    source_multiple: int = 1  # the number of tokens of every source is padded to a multiple of this


PORTABLE = Profile(StandardAttention, Float32MatMul)  # standard operators only


def int8_profile(rows: Mapping[str, RowStatistics], float32_names: Sequence[str] = ()) -> Profile:
    """Return the profile "int8", which rounds weights to 8 bits; see `WeightRounding`."""
    matmul = functools.partial(Int8MatMul, rounding=WeightRounding(rows, float32_names))
    return Profile(ReproducibleAttention, matmul, SOURCE_MULTIPLE)


def insert_layers(outer: ir.Model, members: Mapping[str, Any], profile: Profile) -> None:
    """Replace the nodes that represent a model's layers by the operators of the layers.

    Args:
        outer: a graph with nodes for the layers of each member, such as a result of
            `templates.expansion.expand`; it is changed.
        members: the built models by the prefix of their weights in the whole model.
        profile: `PORTABLE`, or a result of `int8_profile`.
    """
    weights = {
        prefix: {name: np.asarray(weight) for name, weight in member.named_weights.items()}
        for prefix, member in members.items()
    }
    prefixes = list(members)

    def writer_of(node: ir.Node) -> OperatorWriter:
        prefix = prefixes[node.attributes[MEMBER].as_int()]
        config = members[prefix].config
        encodes = node.op_type in (READ, CLASSIFY_OPERATOR)
        options = config if encodes else config.decoder_options()
        return OperatorWriter(
            outer.graph, config, options, weights[prefix], *profile, prefix=prefix
        )

    for node in [node for node in outer.graph.all_nodes() if node.domain == DOMAIN]:
        if node.op_type == READ and profile.source_multiple > 1:
            if node.attributes[MEMBER].as_int() == 0:  # all members read the same source
                _pad_source(writer_of(node), node.inputs[0])
        writer = writer_of(node)
        outputs = WRITE[node.op_type](writer, *node.inputs)
        ir.convenience.replace_nodes_and_values(
            node.graph, node, [node], writer.op.nodes, node.outputs, outputs
        )
    outer.opset_imports.pop(DOMAIN, None)
    if any(node.domain == CONTRIB for node in outer.graph.all_nodes()):
        outer.opset_imports[CONTRIB] = 1


def _pad_source(writer: OperatorWriter, source: ir.Value) -> None:
    """Pad source ids (B, S) so that S plus the number of the model's additions is a multiple.

    All nodes that read the source read the padded source. The sums over a source are then the same
    in every batch; see `ReproducibleAttention`.
    """
    op = writer.op
    readers = list(source.uses())
    count = op.Add(op.Shape(source, start=1), writer.ints(len(writer.config.source_additions)))
    missing = op.Mod(op.Neg(count), writer.ints(writer.source_multiple))
    padded = op.Pad(source, op.Concat(writer.ints(0, 0, 0), missing, axis=0))
    for node, index in readers:
        node.replace_input_with(index, padded)
    producer = source.producer()
    if producer is None:
        writer.graph.insert_before(writer.graph[0], op.nodes)
    else:
        writer.graph.insert_after(producer, op.nodes)
