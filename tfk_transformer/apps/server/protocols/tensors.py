"""Tensors of the Open Inference Protocol: in JSON, or as bytes that follow the JSON of a body."""

import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tfk_transformer.apps.server.bodies import (
    Body,
    InvalidValue,
    Items,
    Parameters,
    answer,
    parse_body,
    to_json,
)
from tfk_transformer.config.words import shorten

JSON_LENGTH = "Inference-Header-Content-Length"  # the header with the size of the JSON part
OCTET_STREAM = "application/octet-stream"
MAX_TENSORS = 100  # of each kind in a request
_LENGTH = struct.Struct("<I")  # precedes each element of a BYTES tensor


class TensorParameters(Body):
    """How a tensor is sent."""

    binary_data_size: int | None = None  # of an input after the JSON, in bytes
    binary_data: bool | None = None  # whether an output is sent after the JSON
    shared_memory_region: str | None = None
    classification: int | None = None


class InputTensor(Body):
    """The texts, or the beginnings of their translations."""

    # A binary tensor has no data in JSON.
    model_config = ConfigDict(json_schema_extra={"required": ["name", "shape", "datatype", "data"]})

    name: Literal["text", "prefix"]
    shape: Items[int]
    datatype: Literal["BYTES"]
    data: Items[str | Items[str]] = []
    parameters: TensorParameters = TensorParameters()


class OutputTensor(Body):
    """A requested output."""

    name: str
    parameters: TensorParameters = TensorParameters()


class InferRequest(Body):
    """Tensors of texts, and search settings as parameters."""

    id: str | None = None
    parameters: Parameters = {}
    inputs: Annotated[Items[InputTensor], Field(max_length=MAX_TENSORS)]
    outputs: Annotated[Items[OutputTensor], Field(max_length=MAX_TENSORS)] | None = None


def parse_infer_request(body: bytes, json_length: str | None) -> InferRequest:
    """Parse a request with tensors, and set the data of the binary tensors.

    `json_length` is the value of the header JSON_LENGTH. Without it, the whole body is JSON.
    """
    size = len(body)
    if json_length is not None:
        digits = json_length.strip()
        # Python does not parse integers of thousands of digits.
        if not digits.isdecimal() or len(digits) > 18 or int(digits) > len(body):
            raise HTTPException(
                400,
                f"{JSON_LENGTH}: expected the number of bytes of the JSON part, at most "
                f"{len(body)}, got '{shorten(json_length)}'; correct the header.",
            )
        size = int(digits)
    payload = parse_body(InferRequest, body[:size])
    # The ways of sending tensors that this server does not have.
    refused = ("shared_memory_region", "classification")
    for tensor, name in itertools.product([*payload.inputs, *(payload.outputs or ())], refused):
        if getattr(tensor.parameters, name) is not None:
            raise InvalidValue(
                f"{shorten(tensor.name)}: expected a tensor in JSON or after it, got the parameter "
                f"{name}; leave it out."
            )
    _read_binary_inputs(payload.inputs, body[size:])
    return payload


def _read_binary_inputs(tensors: Sequence[InputTensor], binary: bytes) -> None:
    """Set the data of the inputs with a `binary_data_size`, whose bytes follow each other."""
    position = 0
    for tensor in tensors:
        size = tensor.parameters.binary_data_size
        if size is None:
            continue
        rest = len(binary) - position
        if tensor.data or not 0 <= size <= rest:
            raise HTTPException(
                400,
                f"{tensor.name}: expected no data, and a binary_data_size from 0 to {rest}, the "
                f"bytes left after the JSON part, got {len(tensor.data)} items of data and "
                f"{shorten(str(size))}; correct them, or the header {JSON_LENGTH}.",
            )
        tensor.data = [*_decode_texts(tensor.name, binary[position : position + size])]
        position += size
    if position < len(binary):
        raise HTTPException(
            400,
            f"body: expected {position} bytes after the JSON part, the sum of binary_data_size, "
            f"got {len(binary)}; correct the sizes, or the header {JSON_LENGTH}.",
        )


def _decode_texts(name: str, content: bytes) -> list[str]:
    """Return the texts of a BYTES tensor. Each follows its length, in 4 bytes, low byte first."""
    texts: list[str] = []
    position = 0

    def take(size: int, role: str) -> bytes:
        nonlocal position
        part = content[position : position + size]
        position += size
        if len(part) < size:
            raise HTTPException(
                400,
                f"{name}: expected {size} bytes {role} {len(texts) + 1}, got {len(part)}; correct "
                "the binary tensor.",
            )
        return part

    while position < len(content):
        (length,) = _LENGTH.unpack(take(_LENGTH.size, "with the length of text"))
        text = take(length, "of text")
        try:
            texts.append(text.decode())
        except UnicodeDecodeError as error:
            raise HTTPException(
                400,
                f"{name}: expected UTF-8, got the byte 0x{text[error.start]:02x} in text "
                f"{len(texts) + 1}; encode the texts as UTF-8.",
            ) from None
    return texts


def input_texts(inputs: Sequence[InputTensor]) -> dict[str, list[str]]:
    """Return the texts of the inputs by name: `text`, and optionally as many of `prefix`."""
    tensors: dict[str, list[str]] = {}
    for tensor in inputs:
        shape = tensor.shape
        rows = [[item] if isinstance(item, str) else item for item in tensor.data]
        if shape not in ([len(rows)], [len(rows), 1]) or any(len(row) != 1 for row in rows):
            raise InvalidValue(
                f"{tensor.name}: expected the shape [N] or [N, 1] and N texts, got {shape} and "
                f"{sum(map(len, rows))} texts; correct shape or data."
            )
        tensors[tensor.name] = [row[0] for row in rows]
    if (
        "text" not in tensors
        or len(tensors) < len(inputs)
        or len(tensors.get("prefix", tensors["text"])) != len(tensors["text"])
    ):
        sizes = [f"{tensor.name} with {len(tensor.data)} items" for tensor in inputs]
        raise InvalidValue(
            "inputs: expected text, and optionally prefix with as many items, got "
            f"{', '.join(sizes) or 'none'}; correct the inputs."
        )
    return tensors


def answer_tensors(
    payload: InferRequest, content: Mapping[str, Any], outputs: Sequence[dict[str, Any]]
) -> Response:
    """Answer with `content` and tensors: name, shape, datatype (BYTES or FP32) and flat data."""
    requested = {tensor.name: tensor.parameters.binary_data for tensor in payload.outputs or ()}
    default = payload.parameters.get("binary_data_output") is True
    parts = []
    for output in outputs:
        is_binary = requested.get(output["name"])
        if not (default if is_binary is None else is_binary):
            continue
        data = output.pop("data")
        if output["datatype"] == "FP32":
            part = struct.pack(f"<{len(data)}f", *data)
        else:
            texts = [text.encode() for text in data]
            part = b"".join(piece for text in texts for piece in (_LENGTH.pack(len(text)), text))
        output["parameters"] = {"binary_data_size": len(part)}
        parts.append(part)
    identity = {} if payload.id is None else {"id": payload.id}
    response = {**content, **identity, "outputs": outputs}
    if not parts:
        return answer(response)
    json_part = to_json(response).encode()
    headers = {JSON_LENGTH: str(len(json_part))}
    return Response(b"".join([json_part, *parts]), headers=headers, media_type=OCTET_STREAM)
