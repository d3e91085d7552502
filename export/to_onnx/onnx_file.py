"""Write ONNX files with metadata about their origin."""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir

from tfk_transformer.config.record import Record
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID, __version__
from tfk_transformer.export.file_names import external_weights
from tfk_transformer.export.runtime.sessions import METADATA
from tfk_transformer.export.to_onnx.conversion import OPSET, quietly

# Bytes of weights in a file: the limit of protobuf is 2**31, and the graph needs space too.
MAX_PROTOBUF_BYTES = 2_000_000_000
MAX_INLINE_BYTES = 256  # smaller weights, such as defaults of settings, are always in the file


class OnnxFiles:
    """ONNX files of one format.

    Each graph is serialized once. The metadata is the last part of a file, so that `add_metadata`
    does not write the graph again: protobuf reads concatenated messages as one message.

    Args:
        models: ONNX models by file name.
        folder: the folder to write to.
        config: configuration of the Keras model.
        metadata: values that JSON can hold, by name, in addition to the version, configuration,
            special ids and opset.
        largest: the maximum number of bytes of weights in the file itself; the limit of protobuf is
            2 GB. Larger weights are in a second file in the same folder, `NAME.onnx.data`. The two
            files must be moved together; the working directory does not matter.
    """

    def __init__(
        self,
        models: Mapping[str, ir.Model],
        folder: Path,
        config: Record,
        metadata: Mapping[str, object] | None = None,
        largest: int = MAX_PROTOBUF_BYTES,
    ):
        ids = {"pad": PAD_ID, "start": START_ID, "end": END_ID, "unknown": UNKNOWN_ID}
        self._metadata: dict[str, object] = {
            "version": __version__,
            "config": config.model_dump(),
            "ids": ids,
            "opset": OPSET,
            **(metadata or {}),
        }
        self._graph_bytes: dict[Path, int] = {}
        for name, model in models.items():
            save(model, folder / name, largest)
            self._graph_bytes[folder / name] = (folder / name).stat().st_size
        self.add_metadata()

    def add_metadata(self, **more: object) -> None:
        """Add values to the metadata of all files, such as the parity figures."""
        self._metadata |= more
        text = json.dumps(self._metadata, sort_keys=True)
        entry = onnx.StringStringEntryProto(key=METADATA, value=text)
        content = onnx.ModelProto(metadata_props=[entry]).SerializeToString()
        for path, graph_bytes in self._graph_bytes.items():
            with path.open("r+b") as file:
                file.truncate(graph_bytes)
                file.seek(0, os.SEEK_END)
                file.write(content)


def save(model: ir.Model, path: Path, largest: int = MAX_PROTOBUF_BYTES) -> None:
    """Write a model without this project's metadata."""
    model.metadata_props.pop(METADATA, None)
    weight_bytes = sum(value.const_value.nbytes for value in _weights(model))
    weights_name = external_weights(path.name) if weight_bytes > largest else None
    # onnx-ir warns that a SentencePiece model is not UTF-8, but the operator's attribute is a
    # string.
    with quietly("onnx_ir.serde"), _external_weights(path.parent, weights_name, model):
        ir.save(model, path)


def _weights(model: ir.Model) -> list[ir.Value]:
    """Return the values with arrays of numbers in the graph and its loop bodies.

    Texts are not included: they always remain in the file itself.
    """
    by_graph = (graph.initializers.values() for graph in model.graphs())
    values = itertools.chain.from_iterable(by_graph)
    return [value for value in values if value.const_value.dtype != ir.DataType.STRING]


@contextlib.contextmanager
def _external_weights(folder: Path, name: str | None, model: ir.Model) -> Iterator[None]:
    """Move the large weights of a model to a file of this name while the model is saved."""
    values = [value for value in _weights(model) if value.const_value.nbytes > MAX_INLINE_BYTES]
    tensors = [value.const_value for value in values]
    try:
        if name:
            external = ir.external_data.convert_tensors_to_external(tensors, folder, name)
            for value, tensor in zip(values, external, strict=True):
                value.const_value = tensor
        yield
    finally:
        for value, tensor in zip(values, tensors, strict=True):
            value.const_value = tensor
