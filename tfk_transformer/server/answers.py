"""Responses in strict JSON, which has no NaN and no infinities; responses to refused requests."""

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tfk_transformer.config.words import shorten

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# The reasons for the errors that Starlette raises. For the errors of this package, `detail` is the
# reason.
_REASONS = {
    404: (
        "path: expected a path that /openapi.json lists, got {path}; correct the URL and the name "
        "of the model."
    ),
    405: "method: expected a method that the header Allow names, got {method}; correct it.",
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

    The reason is one line: the expected value, the received value, the remedy.
    """
    assert isinstance(error, HTTPException)
    reason = error.detail
    if error.status_code in _REASONS:
        path = shorten(request.url.path)
        reason = _REASONS[error.status_code].format(path=path, method=request.method)
    return answer({"error": reason}, error.status_code, error.headers)


async def answer_failure(request: Request, error: Exception) -> Response:
    """Answer an error of the server.

    The message of the exception is not sent, since it may contain texts.
    """
    return answer(
        {
            "error": (
                "server: expected a result of the model, got an error; the server's log contains "
                "the error, report it."
            )
        },
        500,
    )
