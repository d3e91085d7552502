"""Reading and validation of request bodies."""

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from tfk_transformer.server.answers import ErrorAnswer
from tfk_transformer.server.refusals import RequestError
from tfk_transformer.server.settings import ServerSettings

MAX_BODY_PROBLEMS = 5  # in one error message
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
    """Base class of request bodies. Unknown fields are ignored, as the protocols require."""

    model_config = ConfigDict(strict=True, extra="ignore")


AnyBody = TypeVar("AnyBody", bound=Body)


async def read_body(request: Request, settings: ServerSettings) -> bytes:
    """Return the body of a request.

    Raises:
        RequestError: 413 if it is too large, 408 if it does not arrive in time.
    """
    too_large = RequestError(
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
        raise RequestError(
            408,
            f"body: expected all of it within {limit:g} s, got a part; send the whole body.",
            Connection="close",
        ) from None
    return bytes(body)


def parse_body(model: type[AnyBody], body: bytes) -> AnyBody:
    """Parse the body of a request as an instance of `model`.

    Raises:
        RequestError: 400 if the body is not JSON, 422 if it does not fit `model`.
    """
    try:
        return model.model_validate_json(body)
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


def openapi_body(model: type[Body], *content_types: str) -> dict[str, Any]:
    """Return the OpenAPI description of a route that parses its own body.

    Args:
        model: the model of the body.
        *content_types: content types in addition to JSON.
    """
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)  # the application adds them to the components of the page
    content = {name: {"schema": schema} for name in ("application/json", *content_types)}
    return {"requestBody": {"required": True, "content": content}}


def openapi_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of error responses: `statuses`, 401 and 500."""
    return {
        status: {"model": ErrorAnswer, "description": REASONS[status]}
        for status in sorted({401, 500, *statuses})
    }


EVERY_REFUSAL = openapi_errors(*REASONS)
