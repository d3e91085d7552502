"""Requests with tensors: their bodies, and the texts of their inputs."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import ConfigDict
from starlette.exceptions import HTTPException

from tfk_transformer.apps.server.bodies import Body, parse_body
from tfk_transformer.apps.server.protocols.binary_tensors import (
    JSON_LENGTH,
    decode_texts,
    split_body,
)
from tfk_transformer.config.words import shorten


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
    shape: list[int]
    datatype: Literal["BYTES"]
    data: list[str | list[str]] = []
    parameters: TensorParameters = TensorParameters()


class OutputTensor(Body):
    """A requested output."""

    name: str
    parameters: TensorParameters = TensorParameters()


class InferRequest(Body):
    """Tensors of texts, and search settings as parameters."""

    id: str | None = None
    parameters: dict[str, bool | int | float | str] = {}
    inputs: list[InputTensor]
    outputs: list[OutputTensor] | None = None


def parse_infer_request(body: bytes, json_length: str | None) -> InferRequest:
    """Parse a request with tensors, and set the data of the binary tensors.

    Args:
        body: the body.
        json_length: see `split_body`.

    Raises:
        HTTPException: 400 if the binary tensors do not fit the body, 422 if a field is wrong. See
            also `parse_body`.
    """
    json_part, binary = split_body(body, json_length)
    payload = parse_body(InferRequest, json_part)
    _check_parameters([*payload.inputs, *(payload.outputs or ())])
    _read_binary_inputs(payload.inputs, binary)
    return payload


def input_texts(inputs: Sequence[InputTensor]) -> dict[str, list[str]]:
    """Return the texts of the inputs, by name.

    Raises:
        HTTPException: 422 if the inputs are not `text`, and optionally `prefix` of the same size.
    """
    tensors: dict[str, list[str]] = {tensor.name: _texts(tensor) for tensor in inputs}
    if (
        "text" not in tensors
        or len(tensors) < len(inputs)
        or len(tensors.get("prefix", tensors["text"])) != len(tensors["text"])
    ):
        sizes = [f"{tensor.name} with {len(tensor.data)} items" for tensor in inputs]
        raise HTTPException(
            422,
            "inputs: expected text, and optionally prefix with as many items, got "
            f"{', '.join(sizes) or 'none'}; correct the inputs.",
        )
    return tensors


def binary_outputs(payload: InferRequest, names: Iterable[str]) -> set[str]:
    """Return the names of the outputs that the request wants as bytes.

    Args:
        payload: the request.
        names: the names of all outputs of the answer.
    """
    flags = dict.fromkeys(names, payload.parameters.get("binary_data_output") is True)
    flags |= {
        tensor.name: tensor.parameters.binary_data
        for tensor in payload.outputs or ()
        if tensor.parameters.binary_data is not None
    }
    return {name for name, binary in flags.items() if binary}


def _check_parameters(tensors: Sequence[InputTensor | OutputTensor]) -> None:
    """Refuse the ways of sending tensors that this server does not have.

    Raises:
        HTTPException: 422.
    """
    for tensor, name in itertools.product(tensors, ("shared_memory_region", "classification")):
        if getattr(tensor.parameters, name) is not None:
            raise HTTPException(
                422,
                f"{shorten(tensor.name)}: expected a tensor in JSON or after it, got the parameter "
                f"{name}; leave it out.",
            )


def _read_binary_inputs(tensors: Sequence[InputTensor], binary: bytes) -> None:
    """Set the data of the binary tensors.

    Args:
        tensors: the inputs. Those with a `binary_data_size` are binary.
        binary: the bytes after the JSON: the binary tensors, in the order of `tensors`.

    Raises:
        HTTPException: 400 if the sizes do not fit the bytes. See also `decode_texts`.
    """
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
        tensor.data = [*decode_texts(tensor.name, binary[position : position + size])]
        position += size
    if position < len(binary):
        raise HTTPException(
            400,
            f"body: expected {position} bytes after the JSON part, the sum of binary_data_size, "
            f"got {len(binary)}; correct the sizes, or the header {JSON_LENGTH}.",
        )


def _texts(tensor: InputTensor) -> list[str]:
    """Return the texts of a tensor of shape (N,) or (N, 1).

    Raises:
        HTTPException: 422 if the shape does not fit the data.
    """
    nested = len(tensor.shape) == 2 and tensor.shape[1] == 1
    rows = [[item] if isinstance(item, str) else item for item in tensor.data]
    if (
        (len(tensor.shape) != 1 and not nested)
        or tensor.shape[0] != len(rows)
        or any(len(row) != 1 for row in rows)
    ):
        raise HTTPException(
            422,
            f"{tensor.name}: expected the shape [N] or [N, 1] and N texts, got {tensor.shape} and "
            f"{sum(map(len, rows))} texts; correct shape or data.",
        )
    return [row[0] for row in rows]
