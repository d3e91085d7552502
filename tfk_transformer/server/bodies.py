"""The bodies of requests, read and checked."""

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from tfk_transformer.server.answers import ErrorAnswer
from tfk_transformer.server.refusals import RequestError
from tfk_transformer.server.settings import ServerSettings

MAX_BODY_PROBLEMS = 5  # problems that one message names
REASONS = {
    400: "The body is not JSON, or does not fit the protocol.",
    401: "The API key is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    422: "A value is missing or wrong, or the model cannot process a text.",
    429: "Too many texts wait.",
    500: "An error of the server.",
    503: "The server is shutting down.",
    504: "The model took too long.",
}


class Body(BaseModel):
    """Base of the bodies of requests. Unknown fields are ignored, as the protocols demand."""

    model_config = ConfigDict(strict=True, extra="ignore")


AnyBody = TypeVar("AnyBody", bound=Body)


async def body_of(request: Request, settings: ServerSettings) -> bytes:
    """Return the body of a request.

    Raises:
        Refusal: 413 if it is too large, 408 if it does not arrive in time.
    """
    too_large = RequestError(
        413,
        f"body: expected at most {settings.max_body} bytes, got more; send fewer texts at a time.",
    )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > settings.max_body:
        raise too_large
    body, limit = bytearray(), settings.body_timeout
    try:
        async with asyncio.timeout(limit):
            async for part in request.stream():
                body += part
                if len(body) > settings.max_body:
                    raise too_large
    except TimeoutError:
        reason = f"body: expected all of it within {limit:g} s, got a part; send the whole body."
        raise RequestError(408, reason, Connection="close") from None
    return bytes(body)


def parse_body(kind: type[AnyBody], body: bytes) -> AnyBody:
    """Read the body of a request.

    Raises:
        Refusal: 400 if it is not JSON, 422 if it does not have the form of `kind`.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    if problems[0]["type"] == "json_invalid":
        detail = problems[0]["msg"].removeprefix("Invalid JSON: ")
        raise RequestError(400, f"body: expected JSON, got another text ({detail}); correct it.")
    named = "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'the body'}: {item['msg']}"
        for item in problems[:MAX_BODY_PROBLEMS]
    )
    raise RequestError(
        422, f"body: expected the form that /docs shows, got another ({named}); correct it."
    )


def openapi_body(kind: type[Body], *also: str) -> dict[str, Any]:
    """Return what the OpenAPI page tells of a route that reads its body itself, as an argument of
    FastAPI.

    Args:
        kind: of the body.
        *also: content types besides JSON.
    """
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)  # the application adds them to the components of the page
    content = {name: {"schema": schema} for name in ("application/json", *also)}
    return {"requestBody": {"required": True, "content": content}}


def openapi_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what the OpenAPI page tells of answers of these statuses, and of 401 and 500, as an
    argument of FastAPI.
    """
    return {
        status: {"model": ErrorAnswer, "description": REASONS[status]}
        for status in sorted({401, 500, *statuses})
    }


EVERY_REFUSAL = openapi_errors(*REASONS)
