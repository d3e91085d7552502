"""Read and write protobuf messages, and map the weights of ONNX files into memory.

The package protobuf would copy all weights. A message is a sequence of fields
(protobuf.dev/programming-guides/encoding).
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

Content: TypeAlias = bytes | mmap.mmap

# Wire types, and the numbers of bytes of the types with a fixed size.
VARINT = 0
BYTES = 2  # a length and as many bytes: a string, a tensor's bytes or a message
FIXED_SIZES = {1: 8, 5: 4}

SMALLEST = 4096  # bytes of a tensor: smaller ones are copied
MAX_DEPTH = 100  # nested messages: protobuf's own limit
MAX_FIELDS = 2**18  # of an ONNX file, apart from what small messages contain
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
    """A field of a message: positions of bytes in the content."""

    number: int
    wire_type: int
    start: int
    value: int  # where the value starts, after its length
    end: int


def read_fields(content: Content, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message in content[start:end]."""
    position = start
    while position < end:
        start = position
        # The tag is 8 times the number plus the wire type.
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


def read_bytes(message: bytes, number: int) -> list[bytes]:
    """Return the values of a field of wire type `BYTES`, which can be repeated."""
    return [
        message[field.value : field.end]
        for field in read_fields(message, 0, len(message))
        if (field.number, field.wire_type) == (number, BYTES)
    ]


def write_bytes(number: int, value: bytes) -> bytes:
    """Return a field with a string, bytes or a message."""
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def write_number(number: int, value: int) -> bytes:
    """Return a field with an integer of at least 0."""
    return _varint(number << 3 | VARINT) + _varint(value)


def _read_varint(content: Content, position: int, end: int) -> tuple[int, int]:
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


def graph_with_external_weights(path: Path) -> bytes:
    """Return the ONNX model of a file as bytes, with weights that refer to bytes of this file.

    onnxruntime copies the weights that it reads from a file several times, but maps "external"
    weights, which are in a file next to the graph. Here the ONNX file itself is this file. All
    sessions and processes share the mapped pages, which the system can drop and read again. The
    weights of operators' attributes, and small weights, remain in the model.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        remaining = iter(range(MAX_FIELDS))
        return _with_references(content, "ModelProto", 0, len(content), path.name, remaining)


def _with_references(
    content: mmap.mmap,
    message: str,
    start: int,
    end: int,
    file_name: str,
    remaining: Iterator[int],
    depth: int = 0,
) -> bytes:
    """Return the message in content[start:end] with references to the bytes of its tensors."""
    if depth > MAX_DEPTH:
        raise ValueError(f"expected at most {MAX_DEPTH} nested messages, got more")
    parts = []
    for field in read_fields(content, start, end):
        if next(remaining, None) is None:
            raise ValueError(f"expected at most {MAX_FIELDS:,} fields, got more")
        size = field.end - field.value
        is_large = field.wire_type == BYTES and size >= SMALLEST
        inner = MESSAGES[message].get(field.number)
        if is_large and inner:
            part = _with_references(
                content, inner, field.value, field.end, file_name, remaining, depth + 1
            )
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
