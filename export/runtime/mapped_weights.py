"""Leave the weights of an ONNX file in the file, so that onnxruntime maps them into memory.

onnxruntime copies the weights that it reads from a file several times, but maps "external" weights,
which are in a file next to the graph. `graph_with_external_weights` names the ONNX file itself as
this file. All sessions and processes share the mapped pages, which the system can drop and read
again.
"""

import mmap
from pathlib import Path

from tfk_transformer.export.runtime.protobuf import BYTES, read_fields, write_bytes, write_number

SMALLEST = 4096  # bytes of a tensor: smaller ones are copied
MAX_DEPTH = 100  # nested messages: protobuf's own limit

# The fields that can contain tensors, by message: number of the field -> its message.
MESSAGES = {
    "ModelProto": {7: "GraphProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {6: "GraphProto"},
    "TensorProto": {},
}
RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 9, 13, 14  # fields of TensorProto
EXTERNAL = 1  # a value of DATA_LOCATION


def graph_with_external_weights(path: Path) -> bytes:
    """Return the ONNX model of a file as bytes, with weights that refer to bytes of this file.

    The weights of operators' attributes, and small weights, remain in the model.

    Raises:
        ValueError: if the file is not a protobuf message.
        OSError: if the file cannot be read.
    """
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return _rewritten(content, "ModelProto", 0, len(content), path.name)


def _rewritten(
    content: mmap.mmap, message: str, start: int, end: int, file_name: str, depth: int = 0
) -> bytes:
    """Return the message in content[start:end] with references to the bytes of its tensors."""
    if depth > MAX_DEPTH:
        raise ValueError(f"expected at most {MAX_DEPTH} nested messages, got more")
    parts = []
    for field in read_fields(content, start, end):
        size = field.end - field.value
        is_large = field.wire_type == BYTES and size >= SMALLEST
        inner = MESSAGES[message].get(field.number)
        if is_large and inner:
            part = _rewritten(content, inner, field.value, field.end, file_name, depth + 1)
            parts.append(write_bytes(field.number, part))
        elif is_large and message == "TensorProto" and field.number == RAW_DATA:
            reference = {"location": file_name, "offset": str(field.value), "length": str(size)}
            for key, value in reference.items():
                entry = write_bytes(1, key.encode()) + write_bytes(2, value.encode())
                parts.append(write_bytes(EXTERNAL_DATA, entry))
            parts.append(write_number(DATA_LOCATION, EXTERNAL))
        else:
            parts.append(content[field.start : field.end])
    return b"".join(parts)
