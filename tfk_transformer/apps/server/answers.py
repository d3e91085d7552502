"""Responses in strict JSON, which has no NaN and no infinities; responses to refused requests."""

import json
import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tfk_transformer.config.words import shorten

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
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
    if reason == HTTPStatus(error.status_code).phrase:  # an error of Starlette
        reason = _routing_reason(request, error.status_code)
    return answer({"error": reason}, error.status_code, error.headers)


def _routing_reason(request: Request, status: int) -> str:
    """Return the reason for a request that has no route."""
    path = request.scope["path"]
    served = request.app.state.model_name
    name = _MODEL_NAME.match(path)
    if status == 404 and name and name[1] != served:
        return (
            f"model: expected {served}, the model of this server, got {shorten(name[1])}; correct "
            "the URL."
        )
    return _REASONS[status].format(path=shorten(path), method=request.method)


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
