"""Read files that others wrote: bytes, JSON, YAML and TOML. `array_files` reads arrays.

Every reader has limits of bytes, depth and values, so that a small file takes neither much memory
nor much time, and raises a ValueError of one short line.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tfk_transformer.config.words import shorten

if TYPE_CHECKING:
    import yaml

FilePath: TypeAlias = str | os.PathLike[str]

# Configurations have kilobytes.
MAX_CONFIG_BYTES = 2**22
MAX_VOCABULARY_BYTES = 2**26  # the tokenizer.json of NLLB, with 256,000 pieces, has 33 MB
MAX_JSON_MARKS = 2**22  # commas and opening brackets: such values take up to 500 MB of memory
# Of YAML and TOML, whose readers are slow. Recipes and Marian's options have about 2,000 bytes.
MAX_OPTIONS_BYTES = 2**16
MAX_OPTIONS = 10_000  # values in YAML, aliases counted as what they stand for
MAX_OPTION = 1000  # characters of a value in YAML, such as the digits of a number
MAX_DOTS = 100  # in a line of TOML: a key of n dotted parts takes n² steps
MAX_REASON = 200  # characters of another library's message


@contextlib.contextmanager
def one_line_error(start: str, end: str = "") -> Iterator[None]:
    """Raise any error of the block as a ValueError with a short line between `start` and `end`.

    For bytes that others wrote, libraries raise errors of many classes with messages of any length.
    The block should contain nothing but the reading.
    """
    try:
        yield
    except ImportError:  # of the library
        raise
    except Exception as error:
        raise ValueError(f"{start}{first_line(error)}{end}") from None


def first_line(error: BaseException | str) -> str:
    """Return the start of an error's text, with the name of its class if it needs one."""
    text, *_ = str(error).strip().splitlines() or [""]
    if not text or isinstance(error, LookupError | AttributeError | TypeError):
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    return shorten(text, MAX_REASON)


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
    marks = map(text.count, "[{,") if isinstance(text, str) else map(text.count, b"[{,")
    if len(text) > MAX_JSON_MARKS and sum(marks) > MAX_JSON_MARKS:
        raise ValueError(
            f"{what}: expected JSON with at most {MAX_JSON_MARKS:,} commas and brackets, got more."
        )
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


def parse_yaml(text: bytes) -> Any:
    """Return the value of a YAML text, which needs PyYAML; wrap it into `one_line_error`."""
    import yaml

    if len(text) > MAX_OPTIONS_BYTES:
        raise ValueError(f"expected at most {MAX_OPTIONS_BYTES:,} bytes, got {len(text):,}")
    loader = yaml.SafeLoader(text)
    root = loader.get_single_node()
    if root is None:
        return None
    _check_values(root)
    return loader.construct_document(root)


def _check_values(root: "yaml.Node") -> None:
    """Refuse long values, and aliases that stand for many or for a value that contains them."""
    nodes = [root]
    count = 0
    while nodes:
        value = nodes.pop().value
        count += 1
        if isinstance(value, str) and len(value) > MAX_OPTION:
            raise ValueError(f"expected values of at most {MAX_OPTION:,} characters, got more")
        for part in value if isinstance(value, list) else ():
            nodes += part if isinstance(part, tuple) else (part,)  # of a mapping: key and value
        if count + len(nodes) > MAX_OPTIONS:
            raise ValueError(f"expected at most {MAX_OPTIONS:,} values, aliases included, got more")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML text; wrap it into `one_line_error`."""
    import tomllib

    if max(line.count(".") for line in text.split("\n")) > MAX_DOTS:
        raise ValueError(f"a line of more than {MAX_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("too many nested brackets") from None
    except ValueError as error:
        raise ValueError(f"invalid TOML: {error}") from None
