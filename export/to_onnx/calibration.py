"""The rows that a model multiplies by its weights, observed on sentences."""

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
import onnxruntime

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.constants import PAD_ID, START_ID
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.to_onnx.conversion import IR_VERSION, OPSET
from tfk_transformer.export.to_onnx.onnx_attention import StandardAttention
from tfk_transformer.export.to_onnx.onnx_file import save
from tfk_transformer.export.to_onnx.onnx_layers import write_read, write_step
from tfk_transformer.export.to_onnx.onnx_matmul import Float32MatMul, GetConstant, RowStatistics, WriteOperator
from tfk_transformer.export.to_onnx.operator_writer import OperatorWriter
from tfk_transformer.models.base import TokenModel

Arrays: TypeAlias = list[np.ndarray]
Observed: TypeAlias = dict[str, ir.Value]  # the rows that are multiplied, by the name of the weights

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

    def multiply(self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None) -> ir.Value:
        """Multiply rows (R, rows) by a matrix (rows, columns) and add a bias (columns,)."""
        self.observed[name] = x
        return super().multiply(x, name, matrix, bias)

    def multiply_by_table(self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None) -> ir.Value:
        """Multiply rows (R, D) by an embedding table (vocab_size, D), as `Float32MatMul` does."""
        self.observed[f"output/{name}"] = x
        return super().multiply_by_table(x, name, table, bias)


class ObservedGraph:
    """A part of a model as an ONNX graph that also returns the rows of every product.

    Args:
        model: the model.
        options: options of the layers.
        write: writes the operators: `write_read` or `write_step`.
        inputs: int32 ids and float32 tensors; their shapes are those of `PlaceholderModel`.
    """

    def __init__(self, model: TokenModel, options: LayerOptions, write: Callable[..., list[ir.Value]], inputs: Sequence[ir.Value]):
        observed: Observed = {}
        graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": OPSET}, name="observed")
        weights = {name: np.asarray(weight) for name, weight in model.named_weights.items()}
        writer = OperatorWriter(graph, model.config, options, weights, functools.partial(ObservedMatMul, observed=observed))
        results = write(writer, StandardAttention, *inputs)
        for value in (*results, *observed.values()):
            output = writer.op("Identity", [value])  # a value can be several results
            output.name, output.dtype = f"output_{len(graph.outputs)}", ir.DataType.FLOAT
            graph.outputs.append(output)
        graph.extend(writer.nodes)
        self._names = list(observed)
        self._inputs = [str(value.name) for value in inputs]
        self._session = _opened(ir.Model(graph, ir_version=IR_VERSION))

    def run(self, *inputs: np.ndarray) -> tuple[Arrays, dict[str, np.ndarray]]:
        """Return the results, and the rows of each product by the name of the weights."""
        found = self._session.run(None, dict(zip(self._inputs, inputs, strict=True)))
        results = len(found) - len(self._names)
        return found[:results], dict(zip(self._names, found[results:], strict=True))


def _opened(model: ir.Model) -> onnxruntime.InferenceSession:
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder) / "observed.onnx")
        return open_session(Path(folder) / "observed.onnx", threads=1)


def observe_rows(model: TokenModel, sources: np.ndarray, targets: np.ndarray) -> dict[str, RowStatistics]:
    """Return the statistics of the rows that each matrix is multiplied by, by the name of the weights in the whole model.

    Args:
        model: the model.
        sources: int32 (N, S), tokens, end token and padding.
        targets: int32 (N, T), the translations of the sources, in the same form.
    """
    found: dict[str, RowStatistics] = {}
    for prefix, member in model.named_members().items():
        for observed in _joined(_observed_rows(member, sources, targets)):
            for name, parts in observed.items():
                rows = np.concatenate(parts).astype("float64")
                low, high, moments = found.get(prefix + name, (0.0, 0.0, 0.0))
                found[prefix + name] = RowStatistics(min(low, float(rows.min())), max(high, float(rows.max())), moments + rows.T @ rows)
    return found


def _joined(sentences: Iterator[dict[str, Arrays]]) -> Iterator[dict[str, Arrays]]:
    """Join the rows of sentences until they take `JOINED` bytes: one large product of rows takes less time than many small ones."""
    joined: dict[str, Arrays] = {}
    size = 0
    for observed in sentences:
        for name, parts in observed.items():
            joined.setdefault(name, []).extend(parts)
            size += sum(part.nbytes for part in parts)
        if size >= JOINED:
            yield joined
            joined, size = {}, 0
    if joined:
        yield joined


def _observed_rows(model: TokenModel, sources: np.ndarray, targets: np.ndarray) -> Iterator[dict[str, Arrays]]:
    """Decode each target step by step, on its own so that there is no padding, and yield the rows of its products."""
    config, decoder_only = model.config, model.config.architecture == "decoder"
    layers = [(width, f"{name}_{i}") for i in range(config.decoder_layers) for name, width in _widths(model)]
    memory = [] if decoder_only else [*(_float(f"memory_{name}", 4) for _, name in layers), _float("mask", 4)]
    cache = [_float(name, 4) for _, name in layers]
    step = ObservedGraph(model, config.decoder_options(), write_step, [_ids("ids", 3), _float("lineage", 4), *cache, *memory])
    read = None if decoder_only else ObservedGraph(model, config, write_read, [_ids("source", 2)])
    for source, target in zip(sources, targets, strict=True):
        source, target = source[source != PAD_ID], target[target != PAD_ID]
        remembered: Arrays = []
        observed: dict[str, Arrays] = {}
        if read:
            remembered, rows = read.run(source[None])
            observed |= {name: [values] for name, values in rows.items()}
        else:
            target = np.concatenate([source[:-1], target])
        ids = np.concatenate([[START_ID], target[:-1]]).astype("int32")[None, None]  # (1, 1, T)
        past = [np.zeros((1, config.num_heads, 0, width), "float32") for width, _ in layers]
        for length in range(1, ids.shape[2] + 1):
            (_, _, *past), rows = step.run(ids[:, :, :length], np.zeros((1, 1, 1, length), "float32"), *past, *remembered)
            for name, values in rows.items():
                observed.setdefault(name, []).append(values)
        yield observed


def _widths(model: TokenModel) -> list[tuple[str, int]]:
    return [("key", model.config.query_width), ("value", model.config.value_width)]


def _ids(name: str, rank: int) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape([None] * rank), type=ir.TensorType(ir.DataType.INT32))


def _float(name: str, rank: int) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape([None] * rank), type=ir.TensorType(ir.DataType.FLOAT))
