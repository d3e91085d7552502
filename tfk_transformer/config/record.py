"""Validated, frozen configuration records, which can be written to JSON and read back."""

import json
import re
import reprlib
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from tfk_transformer.config.small_files import parse_json_object
from tfk_transformer.config.words import nearest, shorten

MAX_PROBLEMS = 20  # number of problems in one message
MAX_ENTRIES = 10_000  # of a record or of one of its values; pydantic keeps an error for each one


class Record(BaseModel):
    """Base class of all configurations.

    Records are frozen, refuse unknown keys, and report all problems in one `ValueError`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    # Whether an error proposes the nearest value. In a file that another program wrote, a value is
    # not a typing error, and another value would change results.
    proposes_values: ClassVar[bool] = True

    def __init__(self, /, **values: Any) -> None:
        self._check_lengths(values)
        try:
            super().__init__(**values)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            problems = [self._describe(item) for item in errors[:MAX_PROBLEMS]]
            if len(errors) > MAX_PROBLEMS:
                problems.append(f"and {len(errors) - MAX_PROBLEMS:,} more")
            raise ValueError(f"{type(self).__name__}: {'; '.join(problems)}") from None

    @classmethod
    def _check_lengths(cls, values: dict[str, Any]) -> None:
        """Refuse records and values with too many entries before they are validated."""
        fields = {name: values[name] for name in cls.model_fields if name in values}
        for name, value in {"keys": values, **fields}.items():
            if isinstance(value, (dict, list, tuple)) and len(value) > MAX_ENTRIES:
                raise ValueError(
                    f"{cls.__name__}: {name}: expected at most {MAX_ENTRIES:,} entries, got "
                    f"{len(value):,}"
                )

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterable[str]:
        """Return the problems of values that are valid, but do not fit together."""
        return ()

    @classmethod
    def _describe(cls, item: ErrorDetails) -> str:
        """Describe one problem: the key, the rule, and the value."""
        key = shorten(".".join(str(part) for part in item["loc"]))
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            return f"unknown key '{key}'.{nearest(key, cls.model_fields)}"
        if item["type"] == "missing":
            return f"{key}: {message}"
        if not key:
            return message
        hint = ""
        if cls.proposes_values and item["type"] == "literal_error":
            hint = nearest(str(item["input"]), re.findall("'([^']*)'", item["ctx"]["expected"]))
        return f"{key}: {message}, got {reprlib.repr(item['input'])}{hint and f'.{hint}'}"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the record that `to_json` wrote.

        Raises:
            ValueError: if the text is not a JSON object, or an entry is unknown, missing or
                invalid.
        """
        return cls(**parse_json_object(text, cls.__name__))

    def to_json(self) -> str:
        """Return the record as JSON with sorted keys."""
        return json.dumps(self.model_dump(), indent=2, sort_keys=True) + "\n"

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with other values for some keys.

        `model_fields_set` of the copy contains only the keys of this record and of `changes`.
        """
        return type(self)(**{**self.model_dump(exclude_unset=True), **changes})
