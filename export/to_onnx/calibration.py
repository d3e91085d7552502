"""Collect statistics of the rows that a model multiplies by its weights during decoding."""

import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass
from onnxscript import TapeBuilder

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.constants import PAD_ID, START_ID
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.to_onnx.conversion import IR_VERSION, OPSET
from tfk_transformer.export.to_onnx.layer_operators.mixers import StandardAttention
from tfk_transformer.export.to_onnx.layer_operators.onnx_matmul import Float32MatMul, GetConstant
from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OperatorWriter
from tfk_transformer.export.to_onnx.layer_operators.stacks import write_read, write_step
from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import RowStatistics
from tfk_transformer.export.to_onnx.onnx_file import save
from tfk_transformer.inference.step_tensors import cache_shapes, memory_shapes
from tfk_transformer.inference.streaming import empty_cache
from tfk_transformer.models.token_model import TokenModel

Arrays: TypeAlias = list[np.ndarray]
Observed: TypeAlias = dict[str, ir.Value]  # the multiplied rows, by the name of the weights
# float32 (R, rows), by the names of all weights that they are multiplied by.
Rows: TypeAlias = dict[tuple[str, ...], np.ndarray]

CALIBRATION_BATCH_SIZE = 32  # sentences that are decoded together
JOINED_BYTES = 2**26  # bytes of rows whose statistics are computed together


class ObservedMatMul(Float32MatMul):
    """Writes products in float32, and adds the values of their rows to `observed`."""

    def __init__(self, op: TapeBuilder, constant: GetConstant, prefix: str, observed: Observed):
        super().__init__(op, constant, prefix)
        self.observed = observed

    def multiply(
        self, x: ir.Value, name: str, matrix: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """See `Float32MatMul.multiply`."""
        self.observed[name] = x
        return super().multiply(x, name, matrix, bias)

    def multiply_by_table(
        self, x: ir.Value, name: str, table: np.ndarray, bias: np.ndarray | None = None
    ) -> ir.Value:
        """See `Float32MatMul.multiply_by_table`."""
        self.observed[f"output/{name}"] = x
        return super().multiply_by_table(x, name, table, bias)


class ObservedGraph:
    """A part of a model as an ONNX graph that also returns the rows of every product.

    Args:
        model: the model.
        options: options of the layers.
        write: writes the operators, as `write_read` or `write_step`, and returns the results that
            are needed.
        inputs: int32 ids and float32 tensors, with the shapes that `PlaceholderModel` describes.
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
        matmul = functools.partial(ObservedMatMul, observed=observed)
        writer = OperatorWriter(graph, model.config, options, weights, StandardAttention, matmul)
        results = write(writer, *inputs)
        # The memory of all decoder layers is projected from the same rows.
        names: dict[ir.Value, tuple[str, ...]] = {}
        for name, value in observed.items():
            names[value] = (*names.get(value, ()), name)
        for value in (*results, *names):
            output = writer.op.Identity(value)  # the same value can be a result twice
            output.name = f"output_{len(graph.outputs)}"
            output.dtype = ir.DataType.FLOAT
            graph.outputs.append(output)
        graph.extend(writer.op.nodes)
        self._names = list(names.values())
        self._inputs = [str(value.name) for value in inputs]
        graph_model = ir.Model(graph, ir_version=IR_VERSION)
        RemoveUnusedNodesPass()(graph_model)
        with tempfile.TemporaryDirectory() as folder:
            save(graph_model, Path(folder) / "observed.onnx")
            self._session = open_session(Path(folder) / "observed.onnx")

    def run(self, *inputs: np.ndarray) -> tuple[Arrays, Rows]:
        """Return the results, and the rows of each product."""
        outputs = self._session.run(None, dict(zip(self._inputs, inputs, strict=True)))
        results = len(outputs) - len(self._names)
        return outputs[:results], dict(zip(self._names, outputs[results:], strict=True))


def observe_rows(
    model: TokenModel, sources: np.ndarray, targets: np.ndarray
) -> dict[str, RowStatistics]:
    """Return the statistics of the rows that each matrix is multiplied by, by its name in the whole
    model.

    Sources (N, S) and their translations, the targets (N, T), are int32 tokens, end token and
    padding.
    """
    statistics: dict[str, RowStatistics] = {}
    for prefix, member in model.named_members().items():
        member_statistics: dict[tuple[str, ...], RowStatistics] = {}
        for observed in _join(_observed_rows(member, sources, targets)):
            for names, rows in observed.items():
                member_statistics[names] = _add_rows(member_statistics.get(names), rows)
        for names, of_names in member_statistics.items():
            statistics |= {prefix + name: of_names for name in names}
    return statistics


def _add_rows(statistics: RowStatistics | None, rows: np.ndarray) -> RowStatistics:
    """Return the statistics updated with more rows."""
    import tensorflow as tf

    low, high, moments = statistics or (0.0, 0.0, np.zeros(()))
    more = tf.linalg.matmul(rows, rows, transpose_a=True).numpy().astype("float64")
    return RowStatistics(min(low, float(rows.min())), max(high, float(rows.max())), moments + more)


def _join(parts: Iterable[Rows]) -> Iterator[Rows]:
    """Join rows until they take at least `JOINED_BYTES`.

    One large product of rows takes less time than many small products.
    """
    joined: dict[tuple[str, ...], Arrays] = {}
    size = 0
    for observed in parts:
        for names, rows in observed.items():
            joined.setdefault(names, []).append(rows)
            size += rows.nbytes
        if size >= JOINED_BYTES:
            yield {names: np.concatenate(rows) for names, rows in joined.items()}
            joined = {}
            size = 0
    yield {names: np.concatenate(rows) for names, rows in joined.items()}


def _observed_rows(model: TokenModel, sources: np.ndarray, targets: np.ndarray) -> Iterator[Rows]:
    """Decode batches of targets of similar length step by step, and yield the rows of their
    products, without padding.
    """
    config = model.config
    shapes = cache_shapes(config)
    step_inputs = [
        _input("tokens", 2, ir.DataType.INT32),
        _input("position", 0, ir.DataType.INT32),
        _input("lineage", 4),
    ]
    step_inputs += [_input(name, 4) for name in shapes]
    read: ObservedGraph | None = None
    prompts = sources
    if config.has_encoder:
        step_inputs += [_input(name, 4) for name in memory_shapes(config)]
        read = ObservedGraph(model, config, write_read, [_input("source", 2, ir.DataType.INT32)])
        prompts = np.zeros((len(targets), 0), "int32")
    # This step returns only the longer cache: computing the logits of a large vocabulary would take
    # half of the time.
    step = ObservedGraph(
        model, config.decoder_options(), lambda *inputs: write_step(*inputs)[2:], step_inputs
    )
    ids = _decoder_inputs(prompts, targets)
    lengths = np.count_nonzero(ids, axis=1)
    order = np.argsort(lengths)
    for first in range(0, len(order), CALIBRATION_BATCH_SIZE):
        batch = order[first : first + CALIBRATION_BATCH_SIZE]
        memory: Arrays = []
        if read:
            memory, rows = read.run(sources[batch])
            yield _remove_padding(rows, memory[-1][:, 0, 0] == 0)
        cache = list(empty_cache(shapes, len(batch)).values())
        for length in range(1, lengths[batch].max() + 1):
            tokens = ids[batch, length - 1 : length]
            position = np.array(length - 1, "int32")
            lineage = np.zeros((len(batch), 1, 1, length), "float32")
            cache, rows = step.run(tokens, position, lineage, *cache, *memory)
            yield _remove_padding(rows, lengths[batch] >= length)


def _decoder_inputs(prompts: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the decoder's input for each target, int32 (N, L).

    It is the start token, then the prompt and the target without their last tokens, then padding.
    """
    texts = [
        [*prompt[prompt != PAD_ID][:-1], *target[target != PAD_ID]]
        for prompt, target in zip(prompts, targets, strict=True)
    ]
    inputs = np.full((len(texts), max(map(len, texts)) + 1), PAD_ID, "int32")
    inputs[:, 0] = START_ID
    for row, text in zip(inputs, texts, strict=True):
        row[1 : len(text)] = text[:-1]
    return inputs


def _remove_padding(rows: Rows, real: np.ndarray) -> Rows:
    """Return the rows of the sentences or tokens where `real`, bool (A,) or (B, S), is true."""
    return {
        names: part.reshape(*real.shape, -1, part.shape[-1])[real].reshape(-1, part.shape[-1])
        for names, part in rows.items()
    }


def _input(name: str, rank: int, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
    return ir.val(name, dtype, [None] * rank)
