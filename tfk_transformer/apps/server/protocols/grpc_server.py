"""A gRPC server of TensorFlow Serving's PredictionService.

A call is a POST request of an application with the middleware of the HTTP server, so that the log,
the metrics, the API key and the end of the server are the same.
"""

import asyncio
import functools
import json
from urllib.parse import unquote

import grpc
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Router
from starlette.types import ASGIApp, Message

from tfk_transformer.apps.server.bodies import answer_failure, answer_http_error
from tfk_transformer.apps.server.middleware import AccessMiddleware, Lifecycle, RecordingMiddleware
from tfk_transformer.apps.server.monitoring import Metrics
from tfk_transformer.apps.server.protocols.prediction_service import SERVICE, prediction_routes
from tfk_transformer.apps.server.served_model import ServedModel

# TensorFlow Serving has no status for a wrong key. It refuses a full queue with UNAVAILABLE.
STATUS_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    412: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


class GrpcServer:
    """A server of the service, in the event loop that starts it.

    Args:
        served: the model.
        metrics: counts the calls.
        lifecycle: the state of the server.
        host: the address to listen on; IPv6 addresses in brackets.
        port: the port, or 0 for any free port. After `start`, the attribute `port` has its number.
    """

    def __init__(
        self, served: ServedModel, metrics: Metrics, lifecycle: Lifecycle, host: str, port: int
    ) -> None:
        self.port = port
        self._host = host
        self._settings = served.settings
        self._routes = prediction_routes(served)
        app = Starlette(
            exception_handlers={HTTPException: answer_http_error, Exception: answer_failure}
        )
        access = Middleware(AccessMiddleware, served.settings, lifecycle)
        app.router = Router(self._routes, redirect_slashes=False, middleware=[access])
        paths = {route.path for route in self._routes}
        self._app = RecordingMiddleware(app, paths, metrics, lifecycle, "")

    async def start(self) -> None:
        """Begin to answer calls.

        Raises:
            OSError: if the address cannot be used.
        """
        options = {
            "grpc.max_receive_message_length": self._settings.max_body,
            "grpc.so_reuseport": 0,  # otherwise two servers could share the port
        }
        self._server = grpc.aio.server(options=tuple(options.items()))
        handlers = {
            route.path.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(
                functools.partial(_call, self._app, route.path)
            )
            for route in self._routes
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        try:
            self.port = self._server.add_insecure_port(f"{self._host}:{self.port}")
        except RuntimeError as error:
            raise OSError(
                f"--grpc-port {self.port}: cannot listen there: {error}; choose another port"
            ) from None
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Finish the calls within `grace` seconds, and end."""
        await self._server.stop(grace)


async def _call(app: ASGIApp, path: str, body: bytes, context: grpc.aio.ServicerContext) -> bytes:
    """Answer a call with the application: a serialized message, or the status of an error."""
    departure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    incoming: list[Message] = [{"type": "http.request", "body": body}]
    status = 500
    content = b""

    async def receive() -> Message:
        if incoming:
            return incoming.pop()
        await departure
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, content
        status = message.get("status", status)
        content += message.get("body", b"")

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [
            (name.encode(), value.encode() if isinstance(value, str) else value)
            for name, value in context.invocation_metadata()
        ],
        "client": _client(context.peer()),
        "departure": departure,
    }
    task = asyncio.ensure_future(app(scope, receive, send))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:  # the client left, or its deadline passed
        departure.set_result(None)
        await task
        raise
    if status == 200:
        return content
    code = STATUS_CODES.get(status, grpc.StatusCode.INTERNAL)
    return await context.abort(code, json.loads(content)["error"])


def _client(peer: str) -> tuple[str, int] | None:
    """Return host and port of a client, such as ipv4:127.0.0.1:40000 or ipv6:%5B::1%5D:40000."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdecimal() else None
