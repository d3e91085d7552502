"""End the work for a client that leaves before its answer."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`, which is canceled if the client leaves.

    The future `departure` in the scope of the request is done when the client leaves. A task that
    waits for the message http.disconnect would make every request slower.

    Raises:
        ClientDisconnect: if the client leaves first.
    """
    departure: asyncio.Future[None] = request.scope["departure"]
    task = asyncio.current_task()
    departed = False

    def cancel_work(departure: asyncio.Future[None]) -> None:
        nonlocal departed
        departed = task is not None and task.cancel()

    departure.add_done_callback(cancel_work)
    try:
        return await work
    except asyncio.CancelledError:
        if not departed or task is None:
            raise
        task.uncancel()
        raise ClientDisconnect from None
    finally:
        departure.remove_done_callback(cancel_work)
