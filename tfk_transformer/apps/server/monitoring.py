"""The metrics for Prometheus, and the log: one line of JSON for each event, without texts."""

import datetime
import json
import logging
import sys
import traceback
from collections.abc import Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LOG = logging.getLogger("tfk_transformer.apps.server")


class ServerState:
    """The state of a server between start and end, and its metrics."""

    def __init__(self) -> None:
        self.draining = False
        self.in_flight = 0  # requests, except to the paths that a draining server answers
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        labels = ["method", "path", "status"]
        self.requests = Counter(
            "tfk_requests", "Requests that were answered.", labels, registry=registry
        )
        self.seconds = Histogram(
            "tfk_request_seconds",
            "Seconds from a request's head to the end of its answer.",
            ["path"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.texts = Counter("tfk_texts", "Texts of requests.", registry=registry)
        self.batch_texts = Histogram(
            "tfk_batch_texts", "Texts in a batch.", buckets=BATCH_SIZE_BUCKETS, registry=registry
        )
        self.queue_texts = Gauge("tfk_queue_texts", "Texts that wait.", registry=registry)
        Gauge(
            "tfk_requests_in_flight", "Requests that are not answered yet.", registry=registry
        ).set_function(lambda: self.in_flight)


class _JsonLines(logging.Formatter):
    """Formats a record as one line of JSON, without error messages, which may contain texts."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        values = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "values", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            values |= error_fields(record.exc_info[1])
        return json.dumps(values)


def error_fields(error: BaseException) -> dict[str, object]:
    """Return the type of an exception and its last stack frames."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "places": places}


def configure_log() -> None:
    """Write this log and the warnings of the HTTP server to standard output, as lines of JSON."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_JsonLines())
    levels = {LOG.name: logging.INFO, "uvicorn": logging.WARNING, "asyncio": logging.ERROR}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)


def log_event(name: str, values: Mapping[str, object], level: int = logging.INFO) -> None:
    """Log an event with its values."""
    LOG.log(level, name, extra={"values": values})
