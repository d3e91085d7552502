"""Dynamic batching: one call of the model runs the texts of several requests with equal work."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tfk_transformer.apps.server.batches.request_queue import QueuedRequest, RequestQueue
from tfk_transformer.apps.server.batches.work import (
    Work,
    expensive_texts,
    full_queue,
)
from tfk_transformer.text.outcome import Outcome

# (work, texts, target texts) -> the outcome of each text.
Run: TypeAlias = Callable[[Work, Sequence[str], Sequence[str]], Sequence[Outcome[Any]]]

# The cost of a batch is at most `max_batch` times this cost: a beam size of 4 and 32 tokens. With
# larger beams or longer texts, a batch has fewer texts.
COST_PER_TEXT = 4 * 32


_Text: TypeAlias = tuple[QueuedRequest, int]  # the request, and the index of one of its texts


def _wake(requests: Sequence[QueuedRequest]) -> None:
    """Continue the coroutines that wait for these requests."""
    for request in requests:
        if not request.done.done():
            request.done.set_result(None)


class Batcher:
    """Threads that run the model on batches.

    Args:
        run: runs the model; see `Run`. The target texts are prefixes or targets.
        workers: the number of batches that run at the same time.
        max_batch: maximum number of texts in a batch. Expensive texts form smaller batches, see
            `COST_PER_TEXT`.
        max_delay: maximum number of seconds that a request waits for others, once the model is
            free. The wait ends early when as many requests wait as were in the last batch or
            waiting at its end.
        max_queue: maximum number of waiting texts.
        max_cost: maximum cost of the texts of a request, see `text_costs`.
        observe: called with the number of texts of each batch.
    """

    def __init__(
        self,
        run: Run,
        *,
        workers: int,
        max_batch: int,
        max_delay: float,
        max_queue: int,
        max_cost: int,
        observe: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._run = run
        self._observe = observe
        self._max_batch = max_batch
        self._max_delay = max_delay
        self._max_queue = max_queue
        self._max_cost = max_cost
        self._queue = RequestQueue()
        self._condition = threading.Condition()
        self._outcome_lock = threading.Lock()
        self._stopping = False
        self._expected = max_batch  # the number of requests that the next batch waits for
        self._last_end = 0.0  # of a batch
        self._threads = [
            threading.Thread(target=self._run_batches, name=f"batches-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        """The number of texts that wait."""
        return self._queue.texts

    async def submit(
        self,
        work: Work,
        texts: Sequence[str],
        target_texts: Sequence[str],
        client: str = "",
    ) -> list[Outcome[Any]]:
        """Return the outcome of each text.

        If the coroutine is canceled, the texts that still wait leave the queue.

        Raises:
            HTTPException: 422 if the texts cost too much, 429 if too many texts wait.
            Exception: an error of the model.
        """
        if not texts:
            return []
        request = QueuedRequest(work, texts, target_texts, client)
        if request.cost > self._max_cost:
            raise expensive_texts(self._max_cost, request.cost)
        self._enqueue(request)
        try:
            await request.done
        finally:
            if request.waiting:
                with self._condition:
                    self._queue.remove(request)
        errors = [outcome for outcome in request.outcomes if isinstance(outcome, Exception)]
        if errors:
            raise errors[0]
        return request.outcomes

    def stop(self) -> None:
        """Run the waiting texts, and end the threads."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _enqueue(self, request: QueuedRequest) -> None:
        with self._condition:
            if self.queued + request.waiting > self._max_queue:
                raise full_queue(self._max_queue, self.queued, request.waiting, "texts")
            self._queue.add(request)
            # Otherwise a thread already waits for the delay to pass.
            if len(self._queue) == 1 or len(self._queue) >= self._expected:
                self._condition.notify()

    def _run_batches(self) -> None:
        while batch := self._next_batch():
            self._observe(len(batch))
            outcomes = self._run_batch(batch)
            requests = {request for request, _ in batch}
            # Expect the answered clients to send again, before they can. Otherwise their requests
            # and the waiting requests alternate in batches of half the size.
            with self._condition:
                self._expected = min(self._max_batch, len(requests | self._queue.requests))
                self._last_end = time.monotonic()
            self._store_outcomes(batch, outcomes)

    def _next_batch(self) -> list[_Text]:
        """Wait for a batch that is due. Return an empty list after the last batch."""
        with self._condition:
            while self._queue or not self._stopping:
                wait = self._remaining_delay()
                if wait == 0:
                    batch = self._queue.take(self._max_batch, self._max_batch * COST_PER_TEXT)
                    if self._queue:
                        self._condition.notify()  # for another thread to run the remaining texts
                    return batch
                self._condition.wait(wait)
            return []

    def _remaining_delay(self) -> float | None:
        """Return the number of seconds until the next batch is due. None: no request waits."""
        if not self._queue:
            return None
        if self._stopping or len(self._queue) >= self._expected:
            return 0
        # The delay begins when the oldest request arrives, or later, when a batch ends.
        begin = max(self._queue.first_arrival, self._last_end)
        return max(0, begin + self._max_delay - time.monotonic())

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

    def _store_outcomes(self, batch: Sequence[_Text], outcomes: Sequence[Any]) -> None:
        """Store the outcomes of a batch, and continue the requests that are complete.

        All requests share one call of the event loop, which costs a system call.
        """
        complete = []
        with self._outcome_lock:
            for (request, index), outcome in zip(batch, outcomes, strict=True):
                request.outcomes[index] = outcome
                request.missing -= 1
                if request.missing == 0:
                    complete.append(request)
        if complete:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no request waits
                complete[0].loop.call_soon_threadsafe(_wake, complete)
