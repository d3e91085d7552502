"""Middleware: the record of each request in log and metrics, draining, and the API key."""

import hmac
import logging
import time
from collections.abc import Collection, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfk_transformer.apps.server.bodies import answer_failure, answer_http_error
from tfk_transformer.apps.server.monitoring import ServerState, error_fields, log_event
from tfk_transformer.apps.server.settings import ServerSettings

METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
# Paths without API key. Clients of LibreTranslate list the languages before they send a key.
HEALTH = {"/health", "/v2/health/live", "/v2/health/ready"}
OPEN = {"/", "/docs", "/frontend/settings", "/languages", "/openapi.json", *HEALTH}
MONITORING = {*OPEN, "/metrics"}  # paths that are served while the server drains
CLIENT_LEFT = 499  # the recorded status of a request whose client left before its answer's end
KEY_IN_BODY = ("/translate", "/detect")  # paths whose bodies may contain the API key


def with_middleware(
    routes: Sequence[Route],
    settings: ServerSettings,
    state: ServerState,
    *,
    origins: Collection[str] = (),
    root_path: str = "",
) -> ASGIApp:
    """Return the application of routes, with the key, the log and the metrics of the server.

    Pages of `origins` may read the answers. Requests may have `root_path`, at which a proxy serves
    the application, before the paths of the routes.
    """
    app = Starlette(
        exception_handlers={HTTPException: answer_http_error, Exception: answer_failure}
    )
    app.state.model_name = settings.name
    # Inside the exception handlers, which answer the requests that this middleware refuses.
    access = Middleware(_with_access_checks, settings, state)
    app.router = Router(routes, redirect_slashes=False, middleware=[access])
    shared: ASGIApp = app
    if origins:  # outside the exception handlers, so that pages can read refusals too
        shared = CORSMiddleware(app, origins, allow_methods=["GET", "POST"], allow_headers=["*"])
    paths = frozenset(route.path for route in routes)
    return _with_records(shared, paths, state, root_path)


def _with_records(
    app: ASGIApp, paths: Collection[str], state: ServerState, root_path: str
) -> ASGIApp:
    """Write each request to the log and the metrics, with the number `scope["texts"]`.

    The status of a stream, `scope["stream_status"]`, is not known when its answer begins.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status = 500
        scope["texts"] = 0
        # Some proxies remove the path from requests, and others keep it.
        if f"{scope['path']}/".startswith(f"{root_path}/"):
            scope["path"] = scope["path"].removeprefix(root_path) or "/"

        async def send_and_record(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        change = int(scope["path"] not in MONITORING)
        state.in_flight += change
        try:
            await app(scope, receive, send_and_record)
            status = scope.get("stream_status", status)
        except ClientDisconnect:
            status = CLIENT_LEFT  # instead of 500, the status of an error of the server
        except Exception as error:  # Starlette raises it again after the answer
            status = 500  # also if a stream has begun with another
            log_event("failure", error_fields(error), logging.ERROR)
        finally:
            state.in_flight -= change
            # Unknown names may contain anything.
            path = scope["path"] if scope["path"] in paths else "(unknown)"
            method = scope["method"] if scope["method"] in METHODS else "(unknown)"
            seconds = time.perf_counter() - started
            state.requests.labels(method, path, status).inc()
            state.seconds.labels(path).observe(seconds)
            state.texts.inc(scope["texts"])
            values = {"method": method, "path": path, "status": status}
            values |= {"milliseconds": round(1000 * seconds, 1), "texts": scope["texts"]}
            log_event("request", values)

    return serve


def _with_access_checks(app: ASGIApp, settings: ServerSettings, state: ServerState) -> ASGIApp:
    """Refuse malformed requests, requests while the server drains, and those without the key."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if "refusal" in scope:
            raise scope["refusal"]
        if state.draining and scope["path"] not in MONITORING:
            raise HTTPException(
                503,
                "server: expected a server that accepts requests, got a server that is "
                "shutting down; send the request again.",
                {"Retry-After": "1", "Connection": "close"},
            )
        if scope["path"] not in OPEN:
            key = header_key(Request(scope))
            # A wrong key in the header is refused before the body is read.
            if key or scope["path"] not in KEY_IN_BODY:
                check_key(settings, key)
        await app(scope, receive, send)

    return serve


def header_key(request: Request) -> str:
    """Return the API key of the header `X-API-Key: KEY` or `Authorization: Bearer KEY`, or ""."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    bearer_token = token.strip() if scheme.lower() == "bearer" else ""
    return request.headers.get("x-api-key") or bearer_token


def check_key(settings: ServerSettings, key: str) -> None:
    """Refuse a wrong key, in a time that does not depend on where it differs from the right one."""
    if settings.api_key is not None and not hmac.compare_digest(
        key.encode(), settings.api_key.get_secret_value().encode()
    ):
        raise HTTPException(
            401,
            "API key: expected the server's key, got no key or a wrong key; send the header "
            "Authorization: Bearer KEY.",
            {"WWW-Authenticate": "Bearer"},
        )
