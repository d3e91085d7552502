"""The HTTP server: its application, its signals, and a shutdown that loses no request."""

import gc
import itertools
import socket
import time
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tfk_transformer.apps.server.bodies import answer
from tfk_transformer.apps.server.http_protocol import LimitedProtocol
from tfk_transformer.apps.server.middleware import with_middleware
from tfk_transformer.apps.server.monitoring import LOG, configure_log, log_event
from tfk_transformer.apps.server.protocols.libre_translate import libre_translate_routes
from tfk_transformer.apps.server.protocols.open_inference import open_inference_routes
from tfk_transformer.apps.server.protocols.tf_serving import tf_serving_routes
from tfk_transformer.apps.server.protocols.web_pages import docs_page, start_page
from tfk_transformer.apps.server.routes import DescribedRoute, openapi_page
from tfk_transformer.apps.server.served_model import ServedModel
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.base_translator import BaseTranslator

if TYPE_CHECKING:
    import grpc


def application(served: ServedModel) -> ASGIApp:
    """Return the ASGI application of a server."""

    async def start(request: Request) -> Response:
        """Show what is served."""
        return start_page(served, protocols, request)

    async def health(request: Request) -> Response:
        """Confirm that the process works."""
        return answer({"status": "ok"})

    async def read_metrics(request: Request) -> Response:
        """Return the metrics in the text format of Prometheus."""
        text = generate_latest(served.state.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    settings = served.settings
    responses = {200: {"description": "The metrics.", "content": {"text/plain": {}}}}
    root_path = settings.root_path or ""
    protocols = {} if served.classifies else {"LibreTranslate": libre_translate_routes(served)}
    protocols |= {
        "Open Inference Protocol": open_inference_routes(served),
        "TensorFlow Serving": tf_serving_routes(served),
        "Monitoring": [
            DescribedRoute("GET", "/health", health, errors=()),
            DescribedRoute("GET", "/metrics", read_metrics, errors=(401, 500), responses=responses),
        ],
    }
    description = openapi_page(protocols, root_path or "/")
    schemas = description["components"]["schemas"]
    routes = [
        Route("/", start, methods=["GET"]),
        Route("/openapi.json", answer(description), methods=["GET"]),
        Route("/docs", docs_page(settings.name, protocols, schemas), methods=["GET"]),
        *itertools.chain(*protocols.values()),
    ]
    return with_middleware(
        routes, settings, served.state, origins=settings.allow_origin, root_path=root_path
    )


class _DrainingServer(uvicorn.Server):
    """A server that answers the accepted requests after SIGTERM or SIGINT, and then ends.

    During at least `drain_delay` seconds after the signal, new requests are refused with status
    503. A second signal ends the server immediately.
    """

    def __init__(self, config: uvicorn.Config, served: ServedModel, host: str, port: int) -> None:
        super().__init__(config)
        self._served = served
        self._host = f"[{host}]" if ":" in host else host
        self._port = port
        self._grpc_server: grpc.aio.Server | None = None
        self._signal_time = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer requests.

        Uvicorn has already installed its signal handlers. Before that, a signal ends the process.
        """
        settings = self._served.settings
        values = {"url": f"http://{self._host}:{self._port}", "model": settings.name}
        if settings.grpc_port is not None:
            from tfk_transformer.apps.server.protocols import grpc_server  # needs grpcio

            self._grpc_server, values["grpc"] = await grpc_server.start_grpc_server(
                self._served, self._host, settings.grpc_port
            )
        await super().startup(sockets)
        gc.collect()
        # Otherwise each full garbage collection visits the objects of all imported packages.
        gc.freeze()
        log_event("listening", values)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self._grpc_server:
            grace = 0 if self.force_exit else self.config.timeout_graceful_shutdown
            await self._grpc_server.stop(grace or 0)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain.

        Uvicorn's method would end the process by the signal, with an exit status other than 0.
        """
        if self._served.state.draining:
            self.should_exit = self.force_exit = True
        self._served.state.draining = True
        self._signal_time = time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end. Uvicorn calls this method ten times a second."""
        ended = await super().on_tick(counter)
        for handler in LOG.handlers:
            handler.flush()  # whose lines wait for a reader
        state = self._served.state
        if (
            state.draining  # read before the time, which a signal sets with it
            and time.monotonic() >= self._signal_time + self._served.settings.drain_delay
            and state.in_flight == 0
        ):
            self.should_exit = True
        return ended or self.should_exit


def serve(
    model: BaseTranslator | BaseClassifier, settings: ServerSettings, host: str, port: int
) -> None:
    """Serve a translator or a classifier until SIGTERM or SIGINT.

    Port 0 is any free port; the first line of the log contains it. OSError: the address cannot be
    used. ValueError: the settings do not fit the model.
    """
    with _open_socket(host, port) as listener:
        served = ServedModel(model, settings)
        configure_log(served.state.lost_log_lines.inc)
        config = uvicorn.Config(
            application(served),
            # Uvicorn calls the class for each connection, without these settings.
            http=type("ConfiguredProtocol", (LimitedProtocol,), {"limits": settings}),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            # No request takes longer than the limits of its body and its answer. The requests that
            # are still open after this time are canceled.
            timeout_graceful_shutdown=int(settings.body_timeout + settings.timeout) + 1,
        )
        server = _DrainingServer(config, served, *listener.getsockname()[:2])
        try:
            server.run(sockets=[listener])
        finally:
            served.stop()
            log_event("stopped", {})


def _open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket, or name the address that cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(
            error.errno,
            f"--host {host} --port {port}: cannot listen there: {error.strerror or error}; "
            "choose another host or port",
        ) from None
