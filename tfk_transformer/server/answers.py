"""Responses in strict JSON, which has no NaN and no infinities."""

import json
import math
from collections.abc import Mapping
from typing import Any

from fastapi import Response
from pydantic import BaseModel


class ErrorAnswer(BaseModel):
    """The answer to a request that is refused."""

    error: str


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response.

    NaN and infinities become the strings "NaN", "Infinity" and "-Infinity".
    """
    return Response(to_json(content), status, headers, "application/json")


def to_json(content: Any) -> str:
    """Return strict JSON on one line."""
    try:
        return _dumps(content)
    except ValueError:
        return _dumps(_strict(content))


def _dumps(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


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
