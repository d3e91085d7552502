"""Binary tensors of the Open Inference Protocol: bytes that follow the JSON part of a body."""

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from tfk_transformer.apps.server.answers import answer, to_json
from tfk_transformer.config.words import shorten

JSON_LENGTH = "Inference-Header-Content-Length"  # the header with the size of the JSON part
OCTET_STREAM = "application/octet-stream"
_LENGTH = struct.Struct("<I")  # precedes each element of a BYTES tensor


def split_body(body: bytes, json_length: str | None) -> tuple[bytes, bytes]:
    """Return the JSON part of a body, and the bytes of its binary tensors.

    Args:
        body: the body.
        json_length: the value of the header `Inference-Header-Content-Length`, in bytes. Default:
            the whole body is JSON.

    Raises:
        HTTPException: 400 if the length is not a number, or exceeds the body.
    """
    if json_length is None:
        return body, b""
    digits = json_length.strip()
    # Python does not parse integers of thousands of digits.
    if not digits.isdecimal() or len(digits) > 18 or int(digits) > len(body):
        raise HTTPException(
            400,
            f"{JSON_LENGTH}: expected the number of bytes of the JSON part, at most {len(body)}, "
            f"got '{shorten(json_length)}'; correct the header.",
        )
    return body[: int(digits)], body[int(digits) :]


def decode_texts(name: str, content: bytes) -> list[str]:
    """Return the texts of a BYTES tensor. Each follows its length, in 4 bytes, low byte first.

    Args:
        name: the name of the tensor, for errors.
        content: the bytes of the tensor.

    Raises:
        HTTPException: 400 if a length exceeds the tensor, or a text is not UTF-8.
    """
    texts: list[str] = []
    position = 0
    while position < len(content):
        begin = position + _LENGTH.size
        if begin > len(content):
            raise HTTPException(
                400,
                f"{name}: expected 4 bytes with the length of text {len(texts) + 1}, got "
                f"{len(content) - position}; correct the binary tensor.",
            )
        (length,) = _LENGTH.unpack_from(content, position)
        position = begin + length
        if position > len(content):
            raise HTTPException(
                400,
                f"{name}: expected {length} bytes of text {len(texts) + 1}, got "
                f"{len(content) - begin}; correct the binary tensor.",
            )
        try:
            texts.append(content[begin:position].decode())
        except UnicodeDecodeError as error:
            raise HTTPException(
                400,
                f"{name}: expected UTF-8, got the byte 0x{content[begin + error.start]:02x} in "
                f"text {len(texts) + 1}; encode the texts as UTF-8.",
            ) from None
    return texts


def answer_tensors(
    content: Mapping[str, Any], outputs: Sequence[dict[str, Any]], binary: Collection[str]
) -> Response:
    """Return a response with tensors, in JSON or after it.

    Args:
        content: the other fields of the response.
        outputs: tensors with name, shape, datatype (BYTES or FP32) and flat data.
        binary: the names of the tensors to send as bytes.
    """
    parts = []
    for output in outputs:
        if output["name"] in binary:
            part = _encode(output["datatype"], output.pop("data"))
            output["parameters"] = {"binary_data_size": len(part)}
            parts.append(part)
    response = {**content, "outputs": outputs}
    if not parts:
        return answer(response)
    json_part = to_json(response).encode()
    headers = {JSON_LENGTH: str(len(json_part))}
    return Response(b"".join([json_part, *parts]), headers=headers, media_type=OCTET_STREAM)


def _encode(datatype: str, data: Sequence[Any]) -> bytes:
    if datatype == "FP32":
        return struct.pack(f"<{len(data)}f", *data)
    texts = [text.encode() for text in data]
    return b"".join(part for text in texts for part in (_LENGTH.pack(len(text)), text))
