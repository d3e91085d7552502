"""Streaming translations, sent as server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tfk_transformer.apps.server.batches.disconnection import while_connected
from tfk_transformer.apps.server.bodies import to_json
from tfk_transformer.apps.server.served_model import ServedModel

END = ""  # no part of a stream is empty


class Streams:
    """The streams of a server, each on its own thread.

    Args:
        served: the model.
    """

    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self.open = 0
        self._threads = ThreadPoolExecutor(served.settings.max_streams, "streams")

    async def start(
        self, request: Request, text: str, requested: Mapping[str, Any], content: Mapping[str, Any]
    ) -> StreamingResponse:
        """Return a response of events, once the first part of the translation is decoded.

        Args:
            request: the request.
            text: the source text.
            requested: search settings of the request.
            content: the values of each event, in addition to the part.

        Raises:
            HTTPException: 422 if the text or a setting is refused, 429 if too many texts are
                streamed, 504 if the first part is late.
            ClientDisconnect: if the client leaves before the first part.
        """
        limits = self._served.settings
        # Streams use greedy search: the defaults for beam search do not apply.
        defaults = {
            name: value
            for name, value in self._served.search.items()
            if name not in ("beam_size", "n_best")
        }
        settings = self._served.search_settings(defaults, requested)
        request.scope["record"].texts = 1
        self._served.check([text])
        if self.open >= limits.max_streams:
            raise HTTPException(
                429,
                f"streams: expected at most {limits.max_streams} at the same time, got one "
                "stream more; try again later.",
                {"Retry-After": "1"},
            )
        self.open += 1
        try:
            parts = self._parts(text, settings)
            first = await while_connected(request, anext(parts, END))
        except BaseException:
            self.open -= 1
            raise
        return Events(self, self._events(first, parts, content))

    async def _parts(self, text: str, settings: Mapping[str, Any]) -> AsyncIterator[str]:
        """Yield the parts of a translation, decoded by another thread.

        Raises:
            HTTPException: see `start`.
        """
        loop = asyncio.get_running_loop()
        limits = self._served.settings
        limit = limits.timeout
        end = loop.time() + limit
        try:
            # One `asyncio.timeout` for all parts would fail: several tasks await the parts.
            stream = loop.run_in_executor(
                self._threads,
                lambda: self._served.model.stream(
                    text,
                    split_sentences=limits.split_sentences,
                    language=self._served.language,
                    **settings,
                ),
            )
            parts = await asyncio.wait_for(stream, limit)
            while part := await asyncio.wait_for(
                loop.run_in_executor(self._threads, next, parts, END), end - loop.time()
            ):
                yield part
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except TimeoutError:
            raise HTTPException(
                504,
                f"time: expected the whole stream within {limit:g} s, got a part; send a "
                "shorter text.",
                {"Retry-After": "5"},
            ) from None

    async def _events(
        self, first: str, parts: AsyncIterator[str], content: Mapping[str, Any]
    ) -> AsyncIterator[str]:
        try:
            if first:
                yield _event({**content, "text_output": first})
            async for part in parts:
                yield _event({**content, "text_output": part})
        except HTTPException as refusal:
            yield "event: error\n" + _event({"error": refusal.detail})

    def stop(self) -> None:
        """End the threads."""
        self._threads.shutdown(cancel_futures=True)


def _event(content: Mapping[str, Any]) -> str:
    return f"data: {to_json(content)}\n\n"


class Events(StreamingResponse):
    """A response of events. It ends its stream even if the client leaves before the first event."""

    media_type = "text/event-stream"

    def __init__(self, streams: Streams, events: AsyncIterator[str]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1
