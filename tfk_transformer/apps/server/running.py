"""The HTTP server: its application, its signals, and a shutdown that loses no request."""

import gc
import itertools
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tfk_transformer.apps.server.bodies import answer
from tfk_transformer.apps.server.http_protocol import limited_protocol
from tfk_transformer.apps.server.middleware import Lifecycle, with_middleware
from tfk_transformer.apps.server.monitoring import Metrics, configure_log, log_event
from tfk_transformer.apps.server.protocols.libre_translate import libre_translate_routes
from tfk_transformer.apps.server.protocols.open_inference import open_inference_routes
from tfk_transformer.apps.server.protocols.tf_serving import tf_serving_routes
from tfk_transformer.apps.server.protocols.web_pages import docs_page, start_page
from tfk_transformer.apps.server.routes import DescribedRoute, openapi_page
from tfk_transformer.apps.server.served_model import ServedModel
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.apps.server.streams import Streams
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.base_translator import BaseTranslator

if TYPE_CHECKING:
    from tfk_transformer.apps.server.protocols.grpc_server import GrpcServer


def application(
    served: ServedModel, metrics: Metrics, streams: Streams, lifecycle: Lifecycle
) -> ASGIApp:
    """Return the ASGI application of a server."""

    async def start(request: Request) -> Response:
        """Show what is served."""
        return start_page(served, description, request)

    settings = served.settings
    root_path = settings.root_path or ""
    protocols = {
        "LibreTranslate": [] if served.classifies else libre_translate_routes(served),
        "Open Inference Protocol": open_inference_routes(served, streams, lifecycle),
        "TensorFlow Serving": tf_serving_routes(served),
        "Monitoring": _monitoring_routes(metrics),
    }
    description = openapi_page(protocols, root_path)
    routes = [
        Route("/", start, methods=["GET"]),
        Route("/openapi.json", answer(description), methods=["GET"]),
        Route("/docs", docs_page(settings.name, description), methods=["GET"]),
        *itertools.chain(*protocols.values()),
    ]
    return with_middleware(
        routes, settings, metrics, lifecycle, origins=settings.allow_origin, root_path=root_path
    )


def _monitoring_routes(metrics: Metrics) -> list[DescribedRoute]:
    async def health(request: Request) -> Response:
        """Confirm that the process works."""
        return answer({"status": "ok"})

    async def read_metrics(request: Request) -> Response:
        """Return the metrics in the text format of Prometheus."""
        return Response(
            generate_latest(metrics.registry), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    text = {"description": "The metrics.", "content": {"text/plain": {}}}
    return [
        DescribedRoute("GET", "/health", health, errors=()),
        DescribedRoute("GET", "/metrics", read_metrics, errors=(401, 500), responses={200: text}),
    ]


class DrainingServer(uvicorn.Server):
    """A server that answers the accepted requests after SIGTERM or SIGINT, and then ends.

    During at least `delay` seconds after the signal, new requests are refused with status 503. A
    second signal ends the server immediately. `announce` is called once, when the server handles
    requests and signals.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        lifecycle: Lifecycle,
        delay: float,
        announce: Callable[[], None],
        grpc_server: "GrpcServer | None",
    ) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._delay = delay
        self._announce = announce
        self._grpc_server = grpc_server
        self._signal_time = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer requests.

        Uvicorn has already installed its signal handlers. Before that, a signal ends the process.
        """
        if self._grpc_server:
            await self._grpc_server.start()
        await super().startup(sockets)
        gc.collect()
        # Otherwise each full garbage collection visits the objects of all imported packages.
        gc.freeze()
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Send the last answers, and end."""
        await super().shutdown(sockets)
        if self._grpc_server:
            grace = 0 if self.force_exit else self.config.timeout_graceful_shutdown
            await self._grpc_server.stop(grace or 0)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain.

        Uvicorn's method would end the process by the signal, with an exit status other than 0.
        """
        if self._lifecycle.draining:
            self.should_exit = self.force_exit = True
        self._lifecycle.draining = True
        self._signal_time = time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end. Uvicorn calls this method ten times a second."""
        ended = await super().on_tick(counter)
        if (
            self._lifecycle.draining
            and time.monotonic() >= self._signal_time + self._delay
            and self._lifecycle.in_flight == 0
        ):
            self.should_exit = True
        return ended or self.should_exit


def serve(
    model: BaseTranslator | BaseClassifier, settings: ServerSettings, host: str, port: int
) -> None:
    """Serve a model until SIGTERM or SIGINT.

    Args:
        model: a translator or a classifier.
        settings: the settings of the server.
        host: the address to listen on.
        port: the port, or 0 for any free port. The first line of the log contains it.

    Raises:
        OSError: if the address cannot be used.
        ValueError: if the settings do not fit the model.
    """
    with _open_socket(host, port) as listener:
        configure_log()
        metrics = Metrics()
        lifecycle = Lifecycle()
        served = ServedModel(model, settings, metrics)
        streams = Streams(served)
        config = uvicorn.Config(
            application(served, metrics, streams, lifecycle),
            http=limited_protocol(settings),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            # No request takes longer than the limits of its body and its answer. The requests that
            # are still open after this time are canceled.
            timeout_graceful_shutdown=int(settings.body_timeout + settings.timeout) + 1,
        )
        address, bound_port = listener.getsockname()[:2]
        url_host = f"[{address}]" if ":" in address else address
        grpc_server = None
        if settings.grpc_port is not None:
            from tfk_transformer.apps.server.protocols.grpc_server import GrpcServer  # needs grpcio

            grpc_server = GrpcServer(served, metrics, lifecycle, url_host, settings.grpc_port)

        def announce() -> None:
            values = {"url": f"http://{url_host}:{bound_port}", "model": settings.name}
            if grpc_server:
                values["grpc"] = f"{url_host}:{grpc_server.port}"
            log_event("listening", values=values)

        try:
            DrainingServer(config, lifecycle, settings.drain_delay, announce, grpc_server).run(
                sockets=[listener]
            )
        finally:
            served.stop()
            streams.stop()
            log_event("stopped")


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
