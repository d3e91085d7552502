"""Validated, frozen configuration records, which can be written to JSON and read back."""

import difflib
import json
from collections.abc import Iterable
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails


def nearest(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the known word nearest to `word`, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


class Record(BaseModel):
    """Base of every configuration. Records are frozen, refuse unknown keys, and report all problems in one `ValueError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError(f"{type(self).__name__}: " + "; ".join(self._problem(item) for item in error.errors())) from None

    @classmethod
    def _problem(cls, item: ErrorDetails) -> str:
        """Describe one problem: the key, the rule, and the value."""
        key = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            return f"unknown key '{key}'.{nearest(key, cls.model_fields)}"
        if item["type"] == "missing":
            return f"{key}: {message}"
        return f"{key}: {message}, got {item['input']!r}" if key else message

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the record that `to_json` wrote.

        Raises:
            ValueError: if the text is not a JSON object, or an entry is unknown, missing or invalid.
        """
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
        """Return a copy with other values for some keys. The copy is validated."""
        return type(self)(**{**self.model_dump(), **changes})
