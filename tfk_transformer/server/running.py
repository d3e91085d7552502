"""The HTTP server: a socket, signals, and an end at which no request is lost."""

import gc
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from tfk_transformer.inference.interface import LoadedModel
from tfk_transformer.server.application import application
from tfk_transformer.server.metrics import Metrics
from tfk_transformer.server.middleware import Lifecycle
from tfk_transformer.server.request_log import configure, event
from tfk_transformer.server.served_model import ServedModel
from tfk_transformer.server.settings import ServerSettings
from tfk_transformer.server.streams import Streams


class DrainingServer(uvicorn.Server):
    """A server that on SIGTERM or SIGINT first answers what it has accepted; a second signal ends
    it at once.

    Args:
        config: of uvicorn.
        lifecycle: which tells the application that the server ends.
        delay: least seconds between signal and end, in which new requests are refused with status
            503.
        announce: called once, when requests and signals are handled.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        lifecycle: Lifecycle,
        delay: float,
        announce: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._lifecycle, self._delay, self._announce = lifecycle, delay, announce
        self._signalled = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer. Uvicorn has set its signal handlers before; until then, a signal would
        end the process by itself.
        """
        await super().startup(sockets)
        gc.collect()
        # Else each full collection of garbage visits the objects of all imported packages.
        gc.freeze()
        self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain. Uvicorn's own method would end the process by the signal, with another
        status than 0.
        """
        if self._lifecycle.draining:
            self.should_exit = self.force_exit = True
        self._lifecycle.draining, self._signalled = True, time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; called ten times a second."""
        ended = await super().on_tick(counter)
        if (
            self._lifecycle.draining
            and time.monotonic() >= self._signalled + self._delay
            and self._lifecycle.in_flight == 0
        ):
            self.should_exit = True
        return ended or self.should_exit


def serve(model: LoadedModel, settings: ServerSettings, host: str, port: int) -> None:
    """Serve a model until SIGTERM or SIGINT.

    Args:
        model: a translator or a classifier.
        settings: of the server.
        host: the address to listen at.
        port: 0 for any that is free; the first line of the log names it.

    Raises:
        OSError: if the address cannot be used.
        ValueError: if the settings do not fit the model.
    """
    with listening(host, port) as listener:
        configure()
        metrics, lifecycle = Metrics(), Lifecycle()
        served = ServedModel(model, settings, metrics)
        streams = Streams(served)
        app = application(served, metrics, streams, lifecycle)
        # No request takes longer than its body, the queue and the model; what is left after that is
        # cancelled.
        grace = int(settings.body_timeout + settings.timeout) + 1
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=grace,
        )
        address = listener.getsockname()
        url = f"http://{f'[{address[0]}]' if ':' in address[0] else address[0]}:{address[1]}"

        def announce() -> None:
            event("listening", values={"url": url, "model": settings.name})

        try:
            DrainingServer(config, lifecycle, settings.drain_delay, announce).run(
                sockets=[listener]
            )
        finally:
            served.stop()
            streams.stop()
            event("stopped")


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        OSError: with the address, if it cannot be used.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(
            error.errno,
            (
                f"--host {host} --port {port}: cannot listen there: {error.strerror or error}; "
                "choose "
                "others"
            ),
        ) from None
