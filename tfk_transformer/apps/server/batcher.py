"""Dynamic batching: one call of the model runs the texts of several requests with equal work."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tfk_transformer.apps.server.request_queue import QueuedRequest, RequestQueue, Work, check_load
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.text.outcome import Outcome

# The cost of a batch is at most `max_batch` times this cost: a beam size of 4 and 32 tokens. With
# larger beams or longer texts, a batch has fewer texts.
COST_PER_TEXT = 4 * 32
JUST_ENDED = 0.01  # seconds after a batch

# (work, texts, prefixes or targets) -> the outcome of each text.
Run: TypeAlias = Callable[[Work, Sequence[str], Sequence[str]], Sequence[Outcome[Any]]]
_Text: TypeAlias = tuple[QueuedRequest, int]  # the request, and the index of one of its texts


def _wake(requests: Sequence[QueuedRequest]) -> None:
    """Continue the coroutines that wait for these requests."""
    for request in requests:
        if not request.done.done():
            request.done.set_result(None)


class Batcher:
    """Threads that run the model on batches, and report the size of each to `observe`.

    The delay of a request ends early when as many requests wait as were in the last batch or
    waiting at its end.
    """

    def __init__(
        self, run: Run, settings: ServerSettings, observe: Callable[[int], None] = lambda size: None
    ) -> None:
        self._run = run
        self._settings = settings
        self._observe = observe
        self._queue = RequestQueue()
        self._condition = threading.Condition()
        self._outcome_lock = threading.Lock()
        self._stopping = False
        self._expected = settings.max_batch  # the number of requests that the next batch waits for
        self._last_end = 0.0  # of a batch
        self._running = 0  # batches
        self._threads = [
            threading.Thread(target=self._run_batches, name=f"batches-{number}", daemon=True)
            for number in range(settings.workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        """The number of texts that wait."""
        return self._queue.texts

    @property
    def busy(self) -> bool:
        """Whether a batch waits, runs or has just ended: its clients may send again at once."""
        just_ended = time.monotonic() < self._last_end + JUST_ENDED
        return bool(self._running or self.queued or just_ended)

    async def submit(
        self, work: Work, texts: Sequence[str], target_texts: Sequence[str], client: str = ""
    ) -> list[Outcome[Any]]:
        """Return the outcome of each text, or raise an error of the model; see `check_load`."""
        if not texts:
            return []
        request = QueuedRequest(work, texts, target_texts, client)
        with self._condition:
            waiting, content = self.queued, "texts"
            if client and 2 * waiting >= self._settings.max_queue:  # it leaves room for others
                own = (each for each in self._queue.requests if each.client == client)
                waiting += sum(each.waiting for each in own)
                content = "texts (a client's own count twice)"
            check_load(self._settings, request.cost, len(texts), waiting, content)
            self._queue.add(request)
            # Otherwise a thread already waits for the delay to pass.
            if len(self._queue.requests) == 1 or len(self._queue.requests) >= self._expected:
                self._condition.notify()
        try:
            await request.done
        finally:
            if request.waiting:  # the coroutine is canceled
                with self._condition:
                    self._queue.remove(request)
        for outcome in request.outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return request.outcomes

    def stop(self) -> None:
        """Run the waiting texts, and end the threads."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _run_batches(self) -> None:
        while batch := self._next_batch():
            self._observe(len(batch))
            outcomes = self._run_batch(batch)
            requests = {request for request, _ in batch}
            # Expect the answered clients to send again, before they can. Otherwise their requests
            # and the waiting requests alternate in batches of half the size.
            with self._condition:
                expected = len(requests | self._queue.requests.keys())
                self._expected = min(self._settings.max_batch, expected)
                self._last_end = time.monotonic()
                self._running -= 1
            complete = []
            with self._outcome_lock:
                for (request, index), outcome in zip(batch, outcomes, strict=True):
                    request.outcomes[index] = outcome
                    request.missing -= 1
                    if request.missing == 0:
                        complete.append(request)
            if complete:
                # All requests share one call of the event loop, which costs a system call.
                with contextlib.suppress(RuntimeError):  # the loop is closed: no request waits
                    complete[0].loop.call_soon_threadsafe(_wake, complete)

    def _next_batch(self) -> list[_Text]:
        """Wait for a batch that is due. Return an empty list after the last batch."""
        queue = self._queue
        max_batch = self._settings.max_batch
        with self._condition:
            while queue.requests or not self._stopping:
                if not queue.requests:
                    self._condition.wait()
                    continue
                # The delay begins when the oldest request arrives, or later, when a batch ends.
                begin = max(next(iter(queue.requests)).arrived, self._last_end)
                wait = begin + self._settings.max_delay / 1000 - time.monotonic()
                if wait > 0 and not self._stopping and len(queue.requests) < self._expected:
                    self._condition.wait(wait)
                    continue
                batch = queue.take(max_batch, max_batch * COST_PER_TEXT)
                self._running += 1
                if queue.requests:
                    self._condition.notify()  # for another thread to run the remaining texts
                return batch
            return []

    def _run_batch(self, batch: Sequence[_Text]) -> Sequence[Any]:
        """Run a batch, and return its outcomes, or the error of the model for each text.

        If the whole batch fails, each request runs separately, so that no request makes another
        request fail.
        """
        try:
            return self._run(
                batch[0][0].work,
                [request.texts[index] for request, index in batch],
                [request.target_texts[index] for request, index in batch],
            )
        except Exception as error:
            positions: dict[QueuedRequest, list[int]] = {}
            for position, (request, _) in enumerate(batch):
                positions.setdefault(request, []).append(position)
            if len(positions) == 1:
                return [error] * len(batch)
            outcomes: dict[int, Any] = {}
            for rows in positions.values():
                outcomes |= zip(rows, self._run_batch([batch[row] for row in rows]), strict=True)
            return [outcomes[position] for position in range(len(batch))]
