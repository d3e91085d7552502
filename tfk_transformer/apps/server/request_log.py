"""The log: one line of JSON for each request and each event, without the texts of users."""

import datetime
import json
import logging
import sys
import traceback
from collections.abc import Mapping
from types import MappingProxyType

LOG = logging.getLogger("tfk_transformer.apps.server")


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON.

    The line has the type and the stack of an exception, but not its message, which may contain
    texts.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(
            timespec="milliseconds"
        )
        values = {
            "time": time,
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "values", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            values |= error_fields(record.exc_info[1])
        return json.dumps(values)


def error_fields(error: BaseException) -> dict[str, object]:
    """Return the type of an exception and its last stack frames."""
    frames = [
        f"{frame.filename}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    return {"error": type(error).__name__, "places": frames[-8:]}


def configure_log() -> None:
    """Write this log and the warnings of the HTTP server to standard output, as lines of JSON."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    for name, level in (
        (LOG.name, logging.INFO),
        ("uvicorn", logging.WARNING),
        ("asyncio", logging.ERROR),
    ):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)


def log_event(
    name: str, level: int = logging.INFO, values: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Log an event with its values."""
    LOG.log(level, name, extra={"values": values})
