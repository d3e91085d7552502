"""Validated, frozen configuration records that turn to JSON and back."""

import difflib
import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator


def nearest(word: str, known) -> str:
    """Return " Did you mean 'x'?" for the known word nearest to `word`, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


class Record(BaseModel):
    """Base of every configuration: frozen, strict about unknown keys, all problems in one `ValueError`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any):
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError(_describe(type(self).__name__, error)) from None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        unknown = [key for key in values if key not in cls.model_fields] if isinstance(values, dict) else []
        if unknown:
            raise ValueError("; ".join(f"unknown key '{key}'.{nearest(key, cls.model_fields)}" for key in unknown))
        return values

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


def _describe(name: str, error: ValidationError) -> str:
    """Say every problem of one record in one message: which key, which rule, what came."""
    problems = []
    for item in error.errors():
        message = item["msg"].removeprefix("Value error, ")
        key = ".".join(str(part) for part in item["loc"])
        problems.append(f"{key}: {message}, got {item['input']!r}" if key else message)
    return f"{name}: " + "; ".join(problems)
