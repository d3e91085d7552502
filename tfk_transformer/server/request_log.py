"""The log: one line of JSON for each request and each event. It never contains the texts of
users.
"""

import datetime
import json
import logging
import sys
import traceback
from collections.abc import Mapping
from types import MappingProxyType

LOG = logging.getLogger("tfk_transformer.server")


class JsonLines(logging.Formatter):
    """A record as one line of JSON. Of an exception it has type and places, but not the message,
    which may contain texts.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
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
    """Return the type of an exception and the places that it came through."""
    places = [
        f"{frame.filename}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    return {"error": type(error).__name__, "places": places[-8:]}


def configure() -> None:
    """Write this log, and the warnings of the HTTP server, to standard output as lines of JSON."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    for name, level in (
        (LOG.name, logging.INFO),
        ("uvicorn", logging.WARNING),
        ("asyncio", logging.ERROR),
    ):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def event(
    name: str, level: int = logging.INFO, values: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Write an event with values."""
    LOG.log(level, name, extra={"values": values})
