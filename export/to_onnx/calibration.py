"""The rows that a model multiplies by its weights, observed on sentences."""

import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
import onnxruntime
from onnx_ir.passes.common import RemoveUnusedNodesPass

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.constants import PAD_ID, START_ID
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.to_onnx.conversion import IR_VERSION, OPSET
from tfk_transformer.export.to_onnx.onnx_attention import StandardAttention
from tfk_transformer.export.to_onnx.onnx_file import save
from tfk_transformer.export.to_onnx.onnx_layers import write_read, write_step
from tfk_transformer.export.to_onnx.onnx_matmul import (
    Float32MatMul,
    GetConstant,
    RowStatistics,
    WriteOperator,
)
from tfk_transformer.export.to_onnx.operator_writer import OperatorWriter
from tfk_transformer.models.base import TokenModel

Arrays: TypeAlias = list[np.ndarray]
# The rows that are multiplied, by the name of the weights.
Observed: TypeAlias = dict[str, ir.Value]
# float32 (R, rows), by the names of all weights that they are multiplied by.
Rows: TypeAlias = dict[tuple[str, ...], np.ndarray]

CALIBRATION_BATCH_SIZE = 32  # sentences that are decoded together
JOINED = 2**26  # bytes of rows whose statistics are computed together


class ObservedMatMul(Float32MatMul):
    """Writes products in float32, and keeps the values of the rows.

    Args:
        op: see `Float32MatMul`.
        constant: see `Float32MatMul`.
        prefix: see `Float32MatMul`.
        observed: gets the rows.
    """

    def __init__(self, op: WriteOperator, constant: GetConstant, prefix: str, observed: Observed):
        super().__init__(op, constant, prefix)
        self.observed = observed

    def multiply(
        self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (R, rows) by a matrix (rows, columns) and add a bias (columns,)."""
        self.observed[name] = x
        return super().multiply(x, name, matrix, bias)

    def multiply_by_table(
        self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """Multiply rows (R, D) by an embedding table (vocab_size, D), as `Float32MatMul` does."""
        self.observed[f"output/{name}"] = x
        return super().multiply_by_table(x, name, table, bias)


class ObservedGraph:
    """A part of a model as an ONNX graph that also returns the rows of every product.

    Args:
        model: the model.
        options: options of the layers.
        write: writes the operators, as `write_read` or `write_step`, and returns the results that
            are needed.
        inputs: int32 ids and float32 tensors; their shapes are those of `PlaceholderModel`.
    """

    def __init__(
        self,
        model: TokenModel,
        options: LayerOptions,
        write: Callable[..., list[ir.Value]],
        inputs: Sequence[ir.Value],
    ):
        observed: Observed = {}
        graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": OPSET}, name="observed")
        weights = {name: np.asarray(weight) for name, weight in model.named_weights.items()}
        writer = OperatorWriter(
            graph,
            model.config,
            options,
            weights,
            functools.partial(ObservedMatMul, observed=observed),
        )
        results = write(writer, StandardAttention, *inputs)
        # The memory of all decoder layers is projected from the same rows.
        names: dict[ir.Value, tuple[str, ...]] = {}
        for name, value in observed.items():
            names[value] = (*names.get(value, ()), name)
        for value in (*results, *names):
            output = writer.op("Identity", [value])  # a value can be several results
            output.name, output.dtype = f"output_{len(graph.outputs)}", ir.DataType.FLOAT
            graph.outputs.append(output)
        graph.extend(writer.nodes)
        self._names = list(names.values())
        self._inputs = [str(value.name) for value in inputs]
        self._session = _opened(ir.Model(graph, ir_version=IR_VERSION))

    def run(self, *inputs: np.ndarray) -> tuple[Arrays, Rows]:
        """Return the results, and the rows of each product."""
        found = self._session.run(None, dict(zip(self._inputs, inputs, strict=True)))
        results = len(found) - len(self._names)
        return found[:results], dict(zip(self._names, found[results:], strict=True))


def _opened(model: ir.Model) -> onnxruntime.InferenceSession:
    RemoveUnusedNodesPass()(model)
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder) / "observed.onnx")
        return open_session(Path(folder) / "observed.onnx")


def observe_rows(
    model: TokenModel, sources: np.ndarray, targets: np.ndarray
) -> dict[str, RowStatistics]:
    """Return the statistics of the rows that each matrix is multiplied by, by the name of the
    weights in the whole model.

    Args:
        model: the model.
        sources: int32 (N, S), tokens, end token and padding.
        targets: int32 (N, T), the translations of the sources, in the same form.
    """
    found: dict[str, RowStatistics] = {}
    for prefix, member in model.named_members().items():
        of_member: dict[tuple[str, ...], RowStatistics] = {}
        for observed in _joined(_observed_rows(member, sources, targets)):
            for names, rows in observed.items():
                of_member[names] = _with_rows(of_member.get(names), rows)
        found |= {
            prefix + name: statistics for names, statistics in of_member.items() for name in names
        }
    return found


def _with_rows(known: RowStatistics | None, rows: np.ndarray) -> RowStatistics:
    """Return the statistics of the rows that are known and of more rows."""
    import tensorflow as tf

    low, high, moments = known or (0.0, 0.0, np.zeros(()))
    more = tf.linalg.matmul(rows, rows, transpose_a=True).numpy().astype("float64")
    return RowStatistics(min(low, float(rows.min())), max(high, float(rows.max())), moments + more)


def _joined(parts: Iterable[Rows]) -> Iterator[Rows]:
    """Join rows until they take `JOINED` bytes: one large product of rows takes less time than many
    small ones.
    """
    joined: dict[tuple[str, ...], Arrays] = {}
    size = 0
    for observed in parts:
        for names, rows in observed.items():
            joined.setdefault(names, []).append(rows)
            size += rows.nbytes
        if size >= JOINED:
            yield {names: np.concatenate(rows) for names, rows in joined.items()}
            joined, size = {}, 0
    yield {names: np.concatenate(rows) for names, rows in joined.items()}


def _observed_rows(model: TokenModel, sources: np.ndarray, targets: np.ndarray) -> Iterator[Rows]:
    """Decode batches of targets of similar length step by step, and yield the rows of their
    products, without padding.
    """
    config, decoder_only = model.config, model.config.architecture == "decoder"
    layers = [
        (width, f"{name}_{i}")
        for i in range(config.decoder_layers)
        for name, width in _widths(model)
    ]
    memory = (
        []
        if decoder_only
        else [*(_float(f"memory_{name}", 4) for _, name in layers), _float("mask", 4)]
    )
    cache = [_float(name, 4) for _, name in layers]
    step = ObservedGraph(
        model,
        config.decoder_options(),
        _write_cache,
        [_ids("tokens", 2), _ids("position", 0), _float("lineage", 4), *cache, *memory],
    )
    read = None if decoder_only else ObservedGraph(model, config, write_read, [_ids("source", 2)])
    ids = (
        _begun(sources, targets)
        if decoder_only
        else _begun(np.zeros((len(targets), 0), "int32"), targets)
    )
    lengths = np.count_nonzero(ids, axis=1)
    order = np.argsort(lengths)
    for batch in (
        order[first : first + CALIBRATION_BATCH_SIZE]
        for first in range(0, len(order), CALIBRATION_BATCH_SIZE)
    ):
        remembered: Arrays = []
        if read:
            remembered, rows = read.run(sources[batch])
            yield _real(rows, remembered[-1][:, 0, 0] == 0)
        past = [
            np.zeros((len(batch), config.num_heads, 0, width), "float32") for width, _ in layers
        ]
        for length in range(1, lengths[batch].max() + 1):
            position, lineage = (
                np.array(length - 1, "int32"),
                np.zeros((len(batch), 1, 1, length), "float32"),
            )
            past, rows = step.run(
                ids[batch, length - 1 : length], position, lineage, *past, *remembered
            )
            yield _real(rows, lengths[batch] >= length)


def _write_cache(*given: Any) -> list[ir.Value]:
    """Write a decoding step, see `write_step`, that returns the longer cache only: logits take half
    the time of a large vocabulary.
    """
    return write_step(*given)[2:]


def _begun(prompts: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return what the decoder reads for each target, int32 (N, L): start token, prompt and target
    without their last tokens, padding.
    """
    texts = [
        [*prompt[prompt != PAD_ID][:-1], *target[target != PAD_ID]]
        for prompt, target in zip(prompts, targets, strict=True)
    ]
    begun = np.full((len(texts), max(map(len, texts)) + 1), PAD_ID, "int32")
    begun[:, 0] = START_ID
    for row, text in zip(begun, texts, strict=True):
        row[1 : len(text)] = text[:-1]
    return begun


def _real(rows: Rows, real: np.ndarray) -> Rows:
    """Return the rows of sentences (A,), or of tokens (B, S), that are real."""
    return {
        names: part.reshape(*real.shape, -1, part.shape[-1])[real].reshape(-1, part.shape[-1])
        for names, part in rows.items()
    }


def _widths(model: TokenModel) -> list[tuple[str, int]]:
    return [("key", model.config.query_width), ("value", model.config.value_width)]


def _ids(name: str, rank: int) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape([None] * rank), type=ir.TensorType(ir.DataType.INT32))


def _float(name: str, rank: int) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape([None] * rank), type=ir.TensorType(ir.DataType.FLOAT))
