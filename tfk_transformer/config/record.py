"""Validated, frozen configuration records that turn to JSON and back."""

import difflib
import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError


def nearest(word: str, known) -> str:
    """Return " Did you mean 'x'?" for the known word nearest to `word`, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


class Record(BaseModel):
    """Base of every configuration: frozen, strict about unknown keys, all problems in one `ValueError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any):
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError(f"{type(self).__name__}: " + "; ".join(self._problem(item) for item in error.errors())) from None

    @classmethod
    def _problem(cls, item) -> str:
        """Say one problem: which key, which rule, what came."""
        key = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            return f"unknown key '{key}'.{nearest(key, cls.model_fields)}"
        if item["type"] == "missing":
            return f"{key}: {message}"
        return f"{key}: {message}, got {item['input']!r}" if key else message

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a record back from the text `to_json` gave."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{cls.__name__}: expected JSON, got text that breaks off or is malformed ({error}).") from None
        if not isinstance(values, dict):
            raise ValueError(f"{cls.__name__}: expected a JSON object, got {type(values).__name__}.")
        return cls(**values)

    def to_json(self) -> str:
        """Return the record as JSON with sorted keys."""
        return json.dumps(self.model_dump(), indent=2, sort_keys=True) + "\n"

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`, validated again."""
        return type(self)(**{**self.model_dump(), **changes})
