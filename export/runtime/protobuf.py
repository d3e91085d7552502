"""Read and write the fields of protobuf messages.

The package protobuf would copy all weights of an ONNX file into memory.

A message is a sequence of fields (protobuf.dev/programming-guides/encoding). A field is a tag and a
value. The tag is 8 times the field's number plus its wire type.
"""

import mmap
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

Content: TypeAlias = bytes | mmap.mmap

# Wire types, and the numbers of bytes of the types with a fixed size.
VARINT = 0
BYTES = 2  # a length and as many bytes: a string, a tensor's bytes or a message
FIXED_SIZES = {1: 8, 5: 4}


class Field(NamedTuple):
    """A field of a message: positions of bytes in the content."""

    number: int
    wire_type: int
    start: int
    value: int  # where the value starts, after its length
    end: int


def read_fields(content: Content, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message in content[start:end].

    Raises:
        ValueError: if this is not a message.
    """
    position = start
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
