"""Read small files whole, and parse JSON, with the standard library only.

A file that is too large is refused before it is read, so that it does not fill the memory.
"""

import json
import os
from typing import Any, TypeAlias

FilePath: TypeAlias = str | os.PathLike[str]

# Configurations have kilobytes. Python needs up to 60 times the size of a JSON text in memory.
MAX_CONFIG_BYTES = 2**22
MAX_VOCABULARY_BYTES = 2**26  # the tokenizer.json of NLLB, with 256,000 pieces, has 33 MB
MAX_HEADER_BYTES = 2**24  # of about 100,000 arrays; the largest models have 10,000


def read_small_file(path: FilePath, max_bytes: int = MAX_CONFIG_BYTES) -> bytes:
    """Return the content of a file; raise a ValueError if it is larger than `max_bytes`."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(max_bytes + 1) if size <= max_bytes else b""
    if max(size, len(content)) > max_bytes:
        raise ValueError(
            f"{path}: expected a file of at most {max_bytes:,} bytes, got "
            f"{max(size, len(content)):,} bytes; check that it is the right file."
        )
    return content


def check_header_size(path: FilePath) -> None:
    """Refuse a safetensors file with a header for more arrays than any model has."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEADER_BYTES:
        raise ValueError(
            f"expected a header of at most {MAX_HEADER_BYTES:,} bytes, got {size:,} bytes"
        )


def read_small_text(
    path: FilePath, max_bytes: int = MAX_CONFIG_BYTES, errors: str = "strict"
) -> str:
    """Return the text of a UTF-8 file, without a byte order mark, and with line feeds as line ends.

    `errors` is the handler for bytes that are not UTF-8, which raise a ValueError by default.
    """
    content = read_small_file(path, max_bytes)
    try:
        text = content.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected UTF-8, got byte 0x{error.object[error.start]:02x} at {error.start}."
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: FilePath, max_bytes: int = MAX_CONFIG_BYTES) -> Any:
    """Return the JSON value in a file."""
    return parse_json(read_small_file(path, max_bytes), str(path))


def read_json_object(path: FilePath, max_bytes: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file; see `read_json`."""
    return parse_json_object(read_small_file(path, max_bytes), str(path))


def parse_json(text: str | bytes, what: str) -> Any:
    """Return the value of a JSON text; raise a ValueError that names `what` if it is not JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        message = f"{what}: expected JSON, got text with too many nested brackets."
        raise ValueError(message) from None
    except ValueError as error:
        # JSONDecodeError, UnicodeDecodeError, or Python's limit on the digits of an integer.
        raise ValueError(
            f"{what}: expected JSON, got text that breaks off or is malformed ({error})."
        ) from None


def parse_json_object(text: str | bytes, what: str) -> dict[str, Any]:
    """Return the value of a JSON text that must be an object; see `parse_json`."""
    value = parse_json(text, what)
    if not isinstance(value, dict):
        raise ValueError(f"{what}: expected a JSON object, got {type(value).__name__}.")
    return value
