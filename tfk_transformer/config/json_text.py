"""Parse JSON, with one clear error for any malformed text.

This module imports only the standard library, so that runtimes without TensorFlow can use it.
"""

import json
from typing import Any


def parse_json(text: str | bytes, what: str) -> Any:
    """Return the value of a JSON text.

    Args:
        text: the text, or its UTF-8 encoding.
        what: the name of the text, for the error message.

    Raises:
        ValueError: if the text is not JSON, is nested too deeply, or has a number that is too long.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(
            f"{what}: expected JSON, got text with too many nested brackets."
        ) from None
    except ValueError as error:
        # JSONDecodeError, UnicodeDecodeError, or Python's limit on the digits of an integer.
        raise ValueError(
            f"{what}: expected JSON, got text that breaks off or is malformed ({error})."
        ) from None


def parse_json_object(text: str | bytes, what: str) -> dict[str, Any]:
    """Return the value of a JSON text that must be an object; see `parse_json`.

    Raises:
        ValueError: if the text is not a JSON object.
    """
    value = parse_json(text, what)
    if not isinstance(value, dict):
        raise ValueError(f"{what}: expected a JSON object, got {type(value).__name__}.")
    return value
