"""The bodies of requests, read and validated, and those of answers, in strict JSON."""

import asyncio
import re
import zlib
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Annotated, Any, TypeAlias, TypeVar

import pydantic_core
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.config.words import shorten

MAX_BODY_PROBLEMS = 5  # in one error message
MAX_PARAMETERS = 100  # of a request
# The content encodings that `read_body` can decode, with the window sizes of zlib.
COMPRESSIONS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
# The reasons for the errors that Starlette raises when it looks for a route. For other errors,
# `detail` is the reason.
_REASONS = {
    404: (
        "path: expected a path that /openapi.json lists, got {path}; correct the URL and the name "
        "of the model."
    ),
    405: "method: expected a method that the header Allow names, got {method}; correct it.",
}
# The name of a model in the paths of TensorFlow Serving and of the Open Inference Protocol.
_MODEL_NAME = re.compile(r"/v[12]/models/([^/:]+)")


def _check_parameters(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > MAX_PARAMETERS:
        raise ValueError(f"expected at most {MAX_PARAMETERS} parameters, got {len(value)}")
    return value


T = TypeVar("T")
# A body has room for half a million wrong items, whose errors would take seconds.
Items: TypeAlias = Annotated[list[T], Field(fail_fast=True)]
Parameters: TypeAlias = Annotated[
    dict[str, bool | int | float | str], BeforeValidator(_check_parameters)
]


class Body(BaseModel):
    """Base class of request bodies. Unknown fields are ignored, as the protocols require."""

    model_config = ConfigDict(strict=True, extra="ignore")


AnyBody = TypeVar("AnyBody", bound=Body)


class InvalidValue(HTTPException):
    """A value of a request is missing or wrong, or the model cannot process a text: status 422."""

    def __init__(self, problem: str) -> None:
        super().__init__(422, problem)


async def read_body(
    request: Request, settings: ServerSettings, encodings: Collection[str] = ()
) -> bytes:
    """Return the body of a request, decompressed if it has one of `encodings`.

    The limit of a body holds before and after decompression. Starlette's own limit has no time-out,
    and answers in plain text. Refusals have status 415 (another encoding), 413 (too large), 408
    (late) or 400 (malformed).
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", *encodings):
        raise HTTPException(
            415,
            f"Content-Encoding: expected {' or '.join(encodings) or 'none'}, got "
            f"{shorten(encoding)}; send the body uncompressed.",
            {"Accept-Encoding": ", ".join(encodings) or "identity"},
        )
    max_size, limit = settings.max_body, settings.body_timeout
    too_large = HTTPException(
        413, f"body: expected at most {max_size} bytes, got more; send fewer texts at a time."
    )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_size:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limit):
            async for part in request.stream():
                body += part
                if len(body) > max_size:
                    raise too_large
    except TimeoutError:
        raise HTTPException(
            408,
            f"body: expected the whole body within {limit:g} s, got a part; send all of it.",
            {"Connection": "close"},
        ) from None
    if "refusal" in request.scope:  # a part of the body was malformed
        raise request.scope["refusal"]
    return _decompress(body, encoding, max_size) if encoding in encodings else bytes(body)


def _decompress(body: bytes | bytearray, encoding: str, max_size: int) -> bytes:
    decompressor = zlib.decompressobj(COMPRESSIONS[encoding])
    try:
        content = decompressor.decompress(body, max_size + 1)
        if len(content) > max_size:
            raise HTTPException(
                413,
                f"body: expected at most {max_size} bytes after decompression, got more; send "
                "fewer texts at a time.",
            )
        if decompressor.eof and not decompressor.unused_data:
            return content
    except zlib.error:
        pass
    raise HTTPException(
        400,
        f"body: expected {encoding} data, as Content-Encoding says, got other or incomplete data; "
        "correct the body or the header.",
    )


def parse_body(model: type[AnyBody], body: bytes) -> AnyBody:
    """Parse the body of a request as an instance of `model`; refuse others with 400 or 422."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    if problems[0]["type"] == "json_invalid":
        detail = problems[0]["msg"].removeprefix("Invalid JSON: ")
        raise HTTPException(400, f"body: expected JSON, got invalid JSON ({detail}); correct it.")
    named = "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'the body'}: {item['msg']}"
        for item in problems[:MAX_BODY_PROBLEMS]
    )
    raise InvalidValue(
        f"body: expected the fields that /docs shows, got errors ({named}); correct them."
    )


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with `content` as strict JSON."""
    return Response(to_json(content), status, headers, "application/json")


def to_json(content: Any) -> str:
    """Return strict JSON on one line: NaN and infinities are the strings "NaN" and "Infinity"."""
    return pydantic_core.to_json(content, inf_nan_mode="strings").decode()


def check_maximum(name: str, value: int, maximum: int, remedy: str, unit: str = "") -> None:
    """Refuse a value that is larger than a limit of the server."""
    if value > maximum:
        raise InvalidValue(f"{name}: expected at most {maximum}{unit}, got {value}; {remedy}.")


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Answer a refused request with the reason: expected value, received value, remedy."""
    assert isinstance(error, HTTPException)
    reason = error.detail
    if reason == HTTPStatus(error.status_code).phrase:  # an error of Starlette: no route
        path = request.scope["path"]
        served = request.app.state.model_name
        name = _MODEL_NAME.match(path)
        if error.status_code == 404 and name and name[1] != served:
            reason = (
                f"model: expected {served}, the model of this server, got {shorten(name[1])}; "
                "correct the URL."
            )
        else:
            reason = _REASONS[error.status_code].format(path=shorten(path), method=request.method)
    return answer({"error": reason}, error.status_code, error.headers)


async def answer_failure(request: Request, error: Exception) -> Response:
    """Answer an error of the server, without its message, which may contain texts."""
    reason = (
        "server: expected a result of the model, got an error; the server's log contains the "
        "error, report it."
    )
    return answer({"error": reason}, 500)
