"""The metrics for Prometheus, and the log: one line of JSON for each event, without texts."""

import datetime
import json
import logging
import os
import select
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping

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
MAX_LOG_LINES = 10_000  # that wait for the reader of standard output
LAST_SECONDS = 1.0  # in which the reader can read the waiting lines after the end of the server
PIPE_PART = 512  # bytes that a writable pipe takes without waiting, on any system
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
        self.lost_log_lines = Counter(
            "tfk_log_lines_lost", "Lines of the log that nobody read in time.", registry=registry
        )
        self.queue_texts = Gauge("tfk_queue_texts", "Texts that wait.", registry=registry)
        Gauge(
            "tfk_requests_in_flight", "Requests that are not answered yet.", registry=registry
        ).set_function(lambda: self.in_flight)


def error_fields(error: BaseException) -> dict[str, object]:
    """Return the type of an exception and its last stack frames."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "places": places}


class LogHandler(logging.Handler):
    """Writes lines to standard output, and never waits for its reader, such as that of a pipe.

    Lines wait until the reader has room for them. If too many wait, the handler calls `lose` for
    each further line. A thread of its own, which waits for the reader, could not be ended.
    """

    def __init__(self, lose: Callable[[], None]) -> None:
        super().__init__()
        self._lose = lose
        self._waiting: deque[bytes] = deque()
        self._output = sys.stdout.fileno() if sys.stdout else -1

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON, without error messages, which may contain texts."""
        created = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        values = {
            "time": created.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "values", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            values |= error_fields(record.exc_info[1])
        return json.dumps(values)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or keep it, or lose it."""
        if len(self._waiting) < MAX_LOG_LINES:
            self._waiting.append(f"{self.format(record)}\n".encode())
        else:
            self._lose()
        self.flush()

    def flush(self) -> None:
        """Write the waiting lines that the reader has room for."""
        self.acquire()
        try:
            while self._waiting and self._is_writable():
                line = self._waiting.popleft()
                written = os.write(self._output, line[:PIPE_PART])
                if written < len(line):
                    self._waiting.appendleft(line[written:])
        except OSError:  # the reader has ended, or the disk is full
            self._lose()
        finally:
            self.release()

    def close(self) -> None:
        """Write the waiting lines while the reader reads them; Python calls this at its exit."""
        end = time.monotonic() + LAST_SECONDS
        while self._waiting and self._is_writable(max(0.0, end - time.monotonic())):
            self.flush()
        super().close()

    def _is_writable(self, seconds: float = 0) -> bool:
        try:
            return bool(select.select((), (self._output,), (), seconds)[1])
        except (OSError, ValueError):  # Windows selects only sockets
            return True


def configure_log(lose: Callable[[], None]) -> None:
    """Write this log and the warnings of the servers to standard output, as lines of JSON."""
    handler = LogHandler(lose)
    levels = {LOG.name: logging.INFO, "uvicorn": logging.WARNING}
    levels |= dict.fromkeys(("asyncio", "grpc"), logging.ERROR)
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)


def log_event(name: str, values: Mapping[str, object], level: int = logging.INFO) -> None:
    """Log an event with its values."""
    LOG.log(level, name, extra={"values": values})
