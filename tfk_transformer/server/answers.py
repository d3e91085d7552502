"""Responses in strict JSON, which has no NaN and no infinities; responses to refused requests."""

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# The reasons of the errors that Starlette raises; those of this package are their details.
_REASONS = {
    404: (
        "path: expected one of those that /openapi.json lists, got another; correct the URL and "
        "the name of the model."
    ),
    405: "method: expected one that the header Allow names, got another; correct it.",
}


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response.

    NaN and infinities become the strings "NaN", "Infinity" and "-Infinity".
    """
    return Response(to_json(content), status, headers, "application/json")


def to_json(content: Any) -> str:
    """Return strict JSON on one line."""
    try:
        return _ENCODER.encode(content)
    except ValueError:
        return _ENCODER.encode(_strict(content))


def _strict(value: Any) -> Any:
    """Replace the numbers that JSON cannot represent."""
    if isinstance(value, dict):
        return {name: _strict(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Answer a refused request with {"error": reason}.

    The reason is one line: what was expected, what came, the remedy.
    """
    assert isinstance(error, HTTPException)
    reason = _REASONS.get(error.status_code, error.detail)
    return answer({"error": reason}, error.status_code, error.headers)


async def answer_failure(request: Request, error: Exception) -> Response:
    """Answer an error of the server.

    The message of the exception is not sent, since it may contain texts.
    """
    return answer(
        {
            "error": (
                "server: expected an answer of the model, got an error, which the server's "
                "log names; report it."
            )
        },
        500,
    )
