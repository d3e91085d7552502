"""Leave the weights of an ONNX file in the file, so that onnxruntime maps them into memory.

onnxruntime copies the weights that it reads from a file several times, but maps "external" weights,
which are in a file next to the graph. `graph_with_external_weights` names the ONNX file itself as
this file. All sessions and processes share the mapped pages, which the system can drop and read
again.

The format is protobuf's (protobuf.dev/programming-guides/encoding): a message is a sequence of
fields. A field is a tag, which is 8 times its number plus its wire type, and a value. The numbers
of the fields are in onnx.proto.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SMALLEST = 4096  # bytes of a tensor: smaller ones are copied
MAX_DEPTH = 100  # nested messages: protobuf's own limit

# Wire types, and the numbers of bytes of the types with a fixed size.
VARINT = 0
BYTES = 2  # a length and as many bytes: a string, a tensor's bytes or a message
FIXED_SIZES = {1: 8, 5: 4}

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


class Field(NamedTuple):
    """A field of a message: positions of bytes in the file."""

    number: int
    wire_type: int
    start: int
    value: int  # where the value starts, after its length
    end: int


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
    for field in _fields(content, start, end):
        size = field.end - field.value
        inner = MESSAGES[message].get(field.number)
        if field.wire_type != BYTES or size < SMALLEST:
            parts.append(content[field.start : field.end])
        elif inner:
            part = _rewritten(content, inner, field.value, field.end, file_name, depth + 1)
            parts.append(_bytes_field(field.number, part))
        elif message == "TensorProto" and field.number == RAW_DATA:
            reference = {"location": file_name, "offset": str(field.value), "length": str(size)}
            for key, value in reference.items():
                entry = _bytes_field(1, key.encode()) + _bytes_field(2, value.encode())
                parts.append(_bytes_field(EXTERNAL_DATA, entry))
            parts.append(_varint(DATA_LOCATION << 3 | VARINT) + _varint(EXTERNAL))
        else:
            parts.append(content[field.start : field.end])
    return b"".join(parts)


def _fields(content: mmap.mmap, position: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message in content[position:end]."""
    while position < end:
        start = position
        tag, position = _read_varint(content, position, end)
        number, wire_type = tag >> 3, tag & 7
        value = position
        if wire_type == VARINT:
            _, position = _read_varint(content, position, end)
        elif wire_type == BYTES:
            size, value = _read_varint(content, position, end)
            position = value + size
        elif wire_type in FIXED_SIZES:
            position += FIXED_SIZES[wire_type]
        else:
            raise ValueError(f"expected a protobuf message, got wire type {wire_type}")
        if position > end:
            raise ValueError("expected a protobuf message, got a part of one")
        yield Field(number, wire_type, start, value, position)


def _read_varint(content: mmap.mmap, position: int, end: int) -> tuple[int, int]:
    """Return the number of up to 64 bits at a position, and the position after it."""
    number = 0
    for index, byte in enumerate(content[position : min(position + 10, end)]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, position + index + 1
    raise ValueError("expected a protobuf message, got a number without an end")


def _varint(number: int) -> bytes:
    """Encode a number: 7 bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _bytes_field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value
