"""Uvicorn's HTTP protocol with limits for each connection, and with errors in JSON.

The other modules use no names of uvicorn's protocol; a test checks that uvicorn has these names.
"""

import asyncio
import functools
import math
from collections.abc import Sized
from types import SimpleNamespace
from typing import Any

import httptools
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tfk_transformer.apps.server.settings import ServerSettings

# Bytes that are parsed at a time, except for bodies. The parser cannot stop within a part, which
# must therefore have few requests.
PART = 4096
HEADER_OVERHEAD = 4  # bytes of ": " and the end of the line
LINGER = 2  # seconds in which a refused client can read the answer
UNREAD_BODIES = 16  # times `max_body`: the bytes of a body that are read after the answer


class _PipelineFlow(FlowControl):
    """Flow control that does not read while the requests `waiting` wait for earlier answers."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class LimitedProtocol(HttpToolsProtocol):
    """An HTTP connection.

    - It refuses a head that is too large, late or malformed. The application answers the refused
      request: `scope["refusal"]` is the `HTTPException` to raise.
    - `scope["departure"]` of its requests is a future that is done when the client leaves.
    - It parses no further while a request waits for the answer to an earlier one.
    - It ends if the rest of a body that no request reads any more is too large or late.
    - It ends if the client does not read an answer.
    """

    limits = ServerSettings()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unparsed = memoryview(b"")
        self._in_head = False
        self._in_body = False
        self._head_bytes = 0  # of the URL and the complete headers of the current request
        self._pending_bytes = 0  # since the last URL, header or part of a body
        self._body_bytes = 0  # still expected of a body of declared length
        self._unread_bytes = 0  # of the current body, after the answer
        self._refused = False
        self._client_timer: asyncio.TimerHandle | None = None  # of a head or an unread body
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to read."""
        super().connection_made(transport)
        self._departure = self.loop.create_future()
        self.flow = _PipelineFlow(transport, self.pipeline)
        self._start_client_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the requests that wait."""
        super().connection_lost(exc)
        self._departure.set_result(None)
        self._stop_client_timer()
        self.resume_writing()
        self.pipeline.clear()
        self._unparsed = memoryview(b"")

    def data_received(self, data: bytes) -> None:
        """Parse data of the client, or keep it until no request waits."""
        if not self._refused:
            self._unparsed = memoryview(bytes(self._unparsed) + data if self._unparsed else data)
            self._parse()

    def _parse(self) -> None:
        """Parse the received data until a request has to wait for the answer to an earlier one."""
        received = bool(self._unparsed)
        while self._unparsed and not self.pipeline:
            self._unset_keepalive_if_required()
            size = max(PART, self._body_bytes)
            part = self._unparsed[:size]
            self._unparsed = self._unparsed[size:]
            self._pending_bytes += len(part)
            try:
                self.parser.feed_data(part)
            except httptools.HttpParserUpgrade:
                self._body_bytes = 0  # the request is answered without the upgrade
            except httptools.HttpParserError as error:
                refusal = error.__context__  # raised by a callback
                if not isinstance(refusal, HTTPException):
                    refusal = HTTPException(
                        400,
                        f"HTTP: expected a request of HTTP/1.1, got another ({error}); correct the "
                        "client.",
                    )
                self._refuse(refusal)
            if self._pending_bytes > self.limits.max_head:
                self._refuse(self._too_large())
        answered = self.cycle is None or self.cycle.response_complete
        # Uvicorn's own timer, of a connection without data, ends with any data.
        # The rest of a head after waiting requests is not read yet.
        if (self._in_head and not self.pipeline) or (answered and (received or self._in_body)):
            self._start_client_timer()

    # Called by the parser.
    def on_message_begin(self) -> None:
        """Begin to read a head."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Add a part of the URL."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Trailers, which follow a body, are counted and ignored."""
        self._count(len(name) + len(value) + HEADER_OVERHEAD)
        if self._in_head:
            super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._pending_bytes = 0
        self._head_bytes += size
        if self._head_bytes > self.limits.max_head:
            raise self._too_large()

    def _too_large(self) -> HTTPException:
        return HTTPException(
            431,
            f"head: expected at most {self.limits.max_head} bytes, got more; send a shorter URL, "
            "and fewer or shorter headers.",
        )

    def on_headers_complete(self) -> None:
        """Start the request, or let it wait."""
        if len(self.headers) > self.limits.max_headers:
            raise HTTPException(
                431,
                f"head: expected at most {self.limits.max_headers} headers, got "
                f"{len(self.headers)}; send fewer headers.",
            )
        super().on_headers_complete()
        self.scope["departure"] = self._departure  # type: ignore[typeddict-unknown-key]
        self._body_bytes = int(dict(self.headers).get(b"content-length", 0))
        self._in_head = False
        self._in_body = True
        self._unread_bytes = 0
        self._stop_client_timer()

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        self._pending_bytes = 0
        self._body_bytes -= len(body)
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > UNREAD_BODIES * self.limits.max_body:
                raise HTTPException(413)  # after the answer: only the connection ends
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body."""
        super().on_message_complete()
        self._in_body = False
        self._stop_client_timer()

    # Called by the requests.
    def on_response_complete(self) -> None:
        """Start the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._parse()
            self.flow.resume_reading()

    # Refusals.
    def _refuse(self, refusal: HTTPException) -> None:
        """Refuse the request that is being read, and read no more requests."""
        if self._refused:
            return
        self._refused = True
        self._unparsed = memoryview(b"")
        self._stop_client_timer()
        in_body = not self._in_head and self.cycle is not None and self.cycle.more_body
        if in_body and self.cycle.response_complete:
            self.transport.close()
            return
        if not in_body:  # add a request that the application refuses, after the earlier requests
            super().on_message_begin()
            self._in_head = False
            self.url = b"/"
            super().on_headers_complete()
            self.scope |= {"method": "", "path": "*"}  # type: ignore[typeddict-item]
        self.cycle.scope["refusal"] = refusal  # type: ignore[typeddict-unknown-key]
        self.cycle.keep_alive = False
        # The connection is closed some time after the answer. Until then, what the client sends is
        # discarded: a reset would lose the answer.
        close = functools.partial(self.loop.call_later, LINGER, self.transport.close)
        methods = {"write": self.transport.write, "is_closing": self.transport.is_closing}
        self.cycle.transport = SimpleNamespace(**methods, close=close)  # type: ignore[assignment]
        if in_body:  # the application is waiting for the body, or will
            self.cycle.more_body = False
            self.cycle.message_event.set()

    # Time limits.
    def _start_client_timer(self) -> None:
        if self._client_timer is None:
            limit = self.limits.body_timeout
            self._client_timer = self.loop.call_later(limit, self._end_late_client)

    def _stop_client_timer(self) -> None:
        if self._client_timer is not None:
            self._client_timer.cancel()
            self._client_timer = None

    def _end_late_client(self) -> None:
        if not self._in_head:  # the client has sent nothing, or not the rest of an unread body
            self.transport.close()
            return
        self._refuse(
            HTTPException(
                408,
                f"head: expected the whole head within {self.limits.body_timeout:g} s, got a part; "
                "send all of it.",
            )
        )

    def pause_writing(self) -> None:
        """Wait for the client to read the answers."""
        super().pause_writing()
        self._watch_writing(math.inf)

    def resume_writing(self) -> None:
        """Send further answers."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _watch_writing(self, earlier_size: float) -> None:
        """End the connection if the client has read nothing since the last call."""
        size = self.transport.get_write_buffer_size()
        if size >= earlier_size:
            self.transport.abort()
            return
        self._write_timer = self.loop.call_later(self.limits.timeout, self._watch_writing, size)
