"""What surrounds every request: its record in log and metrics, the end of the server, and the API
key.
"""

import hmac
import logging
import time
from collections.abc import Collection

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfk_transformer.server.metrics import Metrics
from tfk_transformer.server.refusals import RequestError, of_failure
from tfk_transformer.server.request_log import error_fields, event
from tfk_transformer.server.settings import ServerSettings

METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
OPEN = ("/v2/health/live", "/v2/health/ready", "/docs", "/openapi.json")  # paths without API key
WATCHED = (*OPEN, "/metrics")  # paths that work to the end
KEY_IN_BODY = "/translate"  # where the key may also be a field of the body


class Lifecycle:
    """Where the server stands between start and end."""

    def __init__(self) -> None:
        self.draining = False
        self.in_flight = 0  # requests, without those that watch the server


class RequestRecord:
    """What the log says of a request."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.status, self.texts = 500, 0


class Recorded:
    """Adds a record to each request, and writes it to log and metrics.

    Args:
        app: the application.
        paths: those that it has; others are logged as "(unknown)", since they may contain anything.
        metrics: where requests are counted.
        lifecycle: of the server.
    """

    def __init__(
        self, app: ASGIApp, paths: Collection[str], metrics: Metrics, lifecycle: Lifecycle
    ) -> None:
        self._app, self._paths, self._metrics, self._lifecycle = (
            app,
            frozenset(paths),
            metrics,
            lifecycle,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = scope["record"] = RequestRecord()
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun, record.status = True, message["status"]
            await send(message)

        counted = scope["path"] not in WATCHED
        self._count(counted)
        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            event("failure", logging.ERROR, error_fields(error))
            if not begun:
                await of_failure()(scope, receive, noted)
        finally:
            self._count(-counted)
            self._write(scope, record)

    def _count(self, change: int) -> None:
        self._lifecycle.in_flight += change
        self._metrics.in_flight.inc(change)

    def _write(self, scope: Scope, record: RequestRecord) -> None:
        path = scope["path"] if scope["path"] in self._paths else "(unknown)"
        method = scope["method"] if scope["method"] in METHODS else "(unknown)"
        seconds = time.perf_counter() - record.started
        self._metrics.requests.labels(method, path, record.status).inc()
        self._metrics.seconds.labels(path).observe(seconds)
        self._metrics.texts.inc(record.texts)
        values = {
            "method": method,
            "path": path,
            "status": record.status,
            "milliseconds": round(1000 * seconds, 1),
        }
        event("request", values={**values, "texts": record.texts})


class Gate:
    """Refuses requests while the server ends, and requests without the API key.

    Args:
        app: the application.
        settings: of the server.
        lifecycle: of the server.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, lifecycle: Lifecycle) -> None:
        self._app, self._settings, self._lifecycle = app, settings, lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            try:
                self._check(scope)
            except RequestError as refusal:
                await refusal.answer()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        if self._lifecycle.draining and scope["path"] not in WATCHED:
            reason = (
                "server: expected one that takes requests, got one that is shutting down; "
                "send the request again."
            )
            raise RequestError(503, reason, Retry_After="1", Connection="close")
        if scope["path"] not in (*OPEN, KEY_IN_BODY):
            check_key(self._settings, Request(scope))


def check_key(settings: ServerSettings, request: Request, in_body: str | None = None) -> None:
    """Refuse a request without the API key. The comparison takes the same time wherever the keys
    differ.

    Args:
        settings: of the server.
        request: with the key as `Authorization: Bearer KEY` or `X-API-Key: KEY`.
        in_body: the key of LibreTranslate's field `api_key`.

    Raises:
        Refusal: 401.
    """
    if settings.api_key is None:
        return
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    given = (
        request.headers.get("x-api-key")
        or (token.strip() if scheme.lower() == "bearer" else in_body)
        or ""
    )
    if not hmac.compare_digest(given.encode(), settings.api_key.get_secret_value().encode()):
        reason = (
            "API key: expected the server's, got none or another; send the header "
            "Authorization: Bearer KEY."
        )
        raise RequestError(401, reason, WWW_Authenticate="Bearer")
