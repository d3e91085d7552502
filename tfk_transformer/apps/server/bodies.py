"""Reading and validation of request bodies."""

import asyncio
from collections.abc import Collection
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.config.words import shorten

MAX_BODY_PROBLEMS = 5  # in one error message


class Body(BaseModel):
    """Base class of request bodies. Unknown fields are ignored, as the protocols require."""

    model_config = ConfigDict(strict=True, extra="ignore")


AnyBody = TypeVar("AnyBody", bound=Body)


async def read_body(
    request: Request, settings: ServerSettings, encodings: Collection[str] = ()
) -> bytes:
    """Return the body of a request, as it was sent.

    Starlette's own limit of a body has no time-out, and answers in plain text.

    Args:
        request: the request.
        settings: the settings of the server.
        encodings: the content encodings that the caller can decode.

    Raises:
        HTTPException: 415 if the body has another encoding, 413 if it is too large, 408 if it does
            not arrive in time, 400 if it is malformed.
        ClientDisconnect: if the client leaves.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", *encodings):
        raise HTTPException(
            415,
            f"Content-Encoding: expected {' or '.join(encodings) or 'none'}, got "
            f"{shorten(encoding)}; send the body uncompressed.",
            {"Accept-Encoding": ", ".join(encodings) or "identity"},
        )
    too_large = HTTPException(
        413,
        f"body: expected at most {settings.max_body} bytes, got more; send fewer texts at a time.",
    )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > settings.max_body:
        raise too_large
    body = bytearray()
    limit = settings.body_timeout
    try:
        async with asyncio.timeout(limit):
            async for part in request.stream():
                body += part
                if len(body) > settings.max_body:
                    raise too_large
    except TimeoutError:
        raise HTTPException(
            408,
            f"body: expected the whole body within {limit:g} s, got a part; send all of it.",
            {"Connection": "close"},
        ) from None
    if "refusal" in request.scope:  # a part of the body was malformed
        raise request.scope["refusal"]
    return bytes(body)


def parse_body(model: type[AnyBody], body: bytes) -> AnyBody:
    """Parse the body of a request as an instance of `model`.

    Raises:
        HTTPException: 400 if the body is not JSON, 422 if it does not fit `model`.
    """
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
    raise HTTPException(
        422, f"body: expected the fields that /docs shows, got errors ({named}); correct them."
    )
