"""ONNX files with the metadata that tells where they come from."""

import contextlib
import json
from pathlib import Path

import onnx_ir as ir

import tfk_transformer
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.export.runtime.sessions import METADATA
from tfk_transformer.export.to_onnx.conversion import OPSET, quietly

LARGEST = 2_000_000_000  # bytes of weights in a file: protobuf ends at 2**31, and the graph needs room too
SMALL = 256  # bytes of a weight that always stands in the file itself, such as the default of a setting


def save_onnx(models: dict[str, ir.Model], folder: Path, config, largest: int = LARGEST, **more) -> None:
    """Write ONNX files.

    A file with more than `largest` bytes of weights leaves them to a neighbour, `NAME.onnx.data`: protobuf holds 2 GB. The
    two are moved together; they are found from any working directory.

    Args:
        models: by file name.
        folder: where to.
        config: of the Keras model.
        largest: bytes of weights that stand in the file itself.
        **more: metadata, such as the parity figures.
    """
    ids = {"pad": PAD_ID, "start": START_ID, "end": END_ID, "unknown": UNKNOWN_ID}
    metadata = {"version": tfk_transformer.__version__, "config": config.model_dump(), "ids": ids, "opset": OPSET, **more}
    for name, model in models.items():
        model.metadata_props[METADATA] = json.dumps(metadata, sort_keys=True)
        beside = f"{name}.data" if _weight_bytes(model) > largest else None
        # It is quiet, since onnx-ir warns that a SentencePiece model is no UTF-8; the operator wants it so.
        with quietly("onnx_ir.serde"), _weights_in(folder, beside, model):
            ir.save(model, folder / name)


def _weights(model: ir.Model) -> list[ir.Value]:
    """Return the values with arrays of numbers, those of loops' bodies too: texts always stand in the file itself."""
    initializers = [value for graph in model.graphs() for value in graph.initializers.values()]
    return [value for value in initializers if value.const_value.dtype != ir.DataType.STRING]


def _weight_bytes(model: ir.Model) -> int:
    return sum(value.const_value.nbytes for value in _weights(model))


@contextlib.contextmanager
def _weights_in(folder: Path, name: str | None, model: ir.Model):
    """Let the large weights of a model lie in a file of this name, for as long as it takes to save the model."""
    moved = [value for value in _weights(model) if name and value.const_value.nbytes > SMALL]
    kept = [value.const_value for value in moved]
    try:
        if name:
            for value, outside in zip(moved, ir.external_data.convert_tensors_to_external(kept, folder, name), strict=True):
                value.const_value = outside
        yield
    finally:
        for value, inside in zip(moved, kept, strict=True):
            value.const_value = inside
