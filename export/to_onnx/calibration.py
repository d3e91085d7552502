"""Collect statistics of the rows that a model multiplies by its weights during decoding."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir import Value
from onnx_ir.passes.common import RemoveUnusedNodesPass

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.constants import PAD_ID, START_ID
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.to_onnx.conversion import IR_VERSION, OPSET
from tfk_transformer.export.to_onnx.layer_operators.layer_nodes import write_read, write_step
from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OperatorWriter
from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import RowStatistics
from tfk_transformer.export.to_onnx.onnx_file import save
from tfk_transformer.inference.signatures import cache_shapes, memory_shapes
from tfk_transformer.inference.streaming import empty_cache
from tfk_transformer.models.token_model import TokenModel

Arrays: TypeAlias = list[np.ndarray]
# float32 (R, rows), by the names of all weights that they are multiplied by.
Rows: TypeAlias = dict[tuple[str, ...], np.ndarray]

CALIBRATION_BATCH_SIZE = 32  # sentences that are decoded together
JOINED_BYTES = 2**26  # bytes of rows whose statistics are computed together


def _observed_function(
    model: TokenModel,
    options: LayerOptions,
    write: Callable[..., list[Value]],
    inputs: Sequence[Value],
) -> Callable[..., tuple[Arrays, Rows]]:
    """Return a part of a model as a function that also returns the rows of every product.

    `write` is as `write_read` or `write_step`, and returns the results that are needed.
    """
    graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": OPSET}, name="observed")
    weights = {name: np.asarray(weight) for name, weight in model.named_weights.items()}
    writer = OperatorWriter(graph, model.config, options, weights)
    results = write(writer, *inputs)
    # The memory of all decoder layers is projected from the same rows.
    names: dict[Value, tuple[str, ...]] = {}
    for name, value in writer.matmul.rows.items():
        names[value] = (*names.get(value, ()), name)
    for value in (*results, *names):
        output = writer.op.Identity(value)  # the same value can be a result twice
        output.name = f"output_{len(graph.outputs)}"
        output.dtype = ir.DataType.FLOAT
        graph.outputs.append(output)
    graph.extend(writer.op.nodes)
    graph_model = ir.Model(graph, ir_version=IR_VERSION)
    RemoveUnusedNodesPass()(graph_model)
    with tempfile.TemporaryDirectory() as folder:
        save(graph_model, Path(folder) / "observed.onnx")
        session = open_session(Path(folder) / "observed.onnx")
    input_names = [str(value.name) for value in inputs]

    def run(*arrays: np.ndarray) -> tuple[Arrays, Rows]:
        outputs = session.run(None, dict(zip(input_names, arrays, strict=True)))
        rows = outputs[len(results) :]
        return outputs[: len(results)], dict(zip(names.values(), rows, strict=True))

    return run


def observe_rows(
    model: TokenModel, sources: np.ndarray, targets: np.ndarray
) -> dict[str, RowStatistics]:
    """Return the statistics of the rows of each matrix, by its name in the whole model.

    Sources (N, S) and their translations (N, T) are int32 tokens, end token and padding.
    """
    import tensorflow as tf

    statistics: dict[str, RowStatistics] = {}
    for prefix, member in model.named_members().items():
        totals: dict[tuple[str, ...], RowStatistics] = {}
        for observed in _join(_observed_rows(member, sources, targets)):
            for names, rows in observed.items():
                low, high, moments = totals.get(names, (0.0, 0.0, 0.0))
                more = tf.linalg.matmul(rows, rows, transpose_a=True).numpy().astype("float64")
                totals[names] = RowStatistics(
                    min(low, float(rows.min())), max(high, float(rows.max())), moments + more
                )
        for names, total in totals.items():
            statistics |= {prefix + name: total for name in names}
    return statistics


def _join(parts: Iterable[Rows]) -> Iterator[Rows]:
    """Join rows until they take `JOINED_BYTES`; one product is faster than many small ones."""
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
    """Decode targets of similar length step by step, and yield the rows of their products."""
    config = model.config
    shapes = cache_shapes(config)
    ids_type = ir.DataType.INT32
    tensors = ("lineage", *shapes, *memory_shapes(config))
    step_inputs = [
        ir.val("tokens", ids_type, [None, None]),
        ir.val("position", ids_type, []),
        *(ir.val(name, ir.DataType.FLOAT, [None] * 4) for name in tensors),
    ]
    read = None
    prompts = sources
    if config.has_encoder:
        source = ir.val("source", ids_type, [None, None])
        read = _observed_function(model, config, write_read, [source])
        prompts = np.zeros((len(targets), 0), "int32")
    # This step returns only the longer cache: computing the logits of a large vocabulary would take
    # half of the time.
    step = _observed_function(
        model, config.decoder_options(), lambda *inputs: write_step(*inputs)[2:], step_inputs
    )
    ids = _decoder_inputs(prompts, targets)
    lengths = np.count_nonzero(ids, axis=1)
    order = np.argsort(lengths)
    for first in range(0, len(order), CALIBRATION_BATCH_SIZE):
        batch = order[first : first + CALIBRATION_BATCH_SIZE]
        memory: Arrays = []
        if read:
            memory, rows = read(sources[batch])
            yield rows  # without padding
        cache = list(empty_cache(shapes, len(batch)).values())
        for length in range(1, lengths[batch].max() + 1):
            tokens = ids[batch, length - 1 : length]
            position = np.array(length - 1, "int32")
            lineage = np.zeros((len(batch), 1, 1, length), "float32")
            cache, rows = step(tokens, position, lineage, *cache, *memory)
            yield _remove_padding(rows, lengths[batch] >= length)


def _decoder_inputs(prompts: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return (N, L): start token, prompt and target without their last tokens, padding."""
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
    """Return the rows of the sentences where `real`, bool (A,), is true."""
    return {names: part[real].reshape(-1, part.shape[-1]) for names, part in rows.items()}
