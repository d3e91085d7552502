"""Answers in strict JSON, which has no NaN and no infinities."""

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
    """Return an answer of JSON. NaN and infinities are the strings "NaN", "Infinity" and
    "-Infinity".
    """
    return Response(to_json(content), status, headers, "application/json")


def to_json(content: Any) -> str:
    """Return strict JSON in one line."""
    try:
        return _dumps(content)
    except ValueError:
        return _dumps(_strict(content))


def _dumps(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _strict(value: Any) -> Any:
    """Replace the numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _strict(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
