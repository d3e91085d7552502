"""Dynamic batching: one call of the model runs the texts of several requests with equal work."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from starlette.exceptions import HTTPException

from tfk_transformer.inference.text_errors import TextError


class Work(NamedTuple):
    """A task of the model and its settings. Texts of equal work can share a batch."""

    task: Literal["translate", "score", "classify"]
    settings: tuple[tuple[str, Any], ...] = ()  # search settings by name, sorted


class TextProblem(NamedTuple):
    """The outcome of a text that the model cannot process."""

    reason: str


Outcome: TypeAlias = Any  # a result of the model, a `TextProblem`, or an Exception
# (work, texts, target texts) -> results.
Run: TypeAlias = Callable[[Work, Sequence[str], Sequence[str]], Sequence[Any]]


def late_answer(timeout: float) -> HTTPException:
    """Return the error for an answer that takes longer than `timeout` seconds."""
    return HTTPException(
        504,
        f"time: expected an answer within {timeout:g} s, got none; send fewer or shorter texts, or "
        "try again later.",
        {"Retry-After": "5"},
    )


def full_queue(maximum: int, waiting: int, added: int, content: str) -> HTTPException:
    """Return the error for texts for which a queue has no room.

    Args:
        maximum: the size of the queue.
        waiting: the number of texts in it.
        added: the number of further texts.
        content: what the queue holds, such as "texts".
    """
    return HTTPException(
        429,
        f"queue: expected at most {maximum} {content}, got {waiting} that wait and {added} more; "
        "try again later.",
        {"Retry-After": "1"},
    )


class _Request:
    """A request that waits for its outcomes."""

    def __init__(self, count: int) -> None:
        self.outcomes: list[Outcome] = [None] * count
        self.missing = count
        self.abandoned = False
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()


def _wake(requests: Sequence[_Request]) -> None:
    """Continue the coroutines that wait for these requests."""
    for request in requests:
        if not request.done.done():
            request.done.set_result(None)


class _Item(NamedTuple):
    """A text of a request."""

    request: _Request
    position: int  # of the text in the request
    text: str
    target_text: str  # the prefix or target, or ""
    arrived: float


class _LastBatch(NamedTuple):
    """The batch that ended last."""

    work: Work | None = None
    expected: int = 0  # texts of the same work that the next batch waits for
    ended: float = 0.0


class Batcher:
    """Threads that run the model on batches.

    Args:
        run: runs the model; see `Run`. The target texts are prefixes or targets.
        workers: the number of batches that run at the same time.
        max_batch: maximum number of texts in a batch.
        max_delay: maximum number of seconds that a text waits for other texts, once the model is
            free. The wait ends early when as many texts wait as were in the last batch of the same
            work and waiting at its end together.
        max_queue: maximum number of waiting texts.
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
        observe: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._run = run
        self._observe = observe
        self._max_batch = max_batch
        self._max_delay = max_delay
        self._max_queue = max_queue
        self._queues: dict[Work, deque[_Item]] = {}
        self._condition = threading.Condition()
        self._outcome_lock = threading.Lock()
        self._stopping = False
        self.queued = 0
        self._last_batch = _LastBatch()
        self._threads = [
            threading.Thread(target=self._run_batches, name=f"batches-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    async def submit(
        self, work: Work, texts: Sequence[str], target_texts: Sequence[str], timeout: float
    ) -> list[Outcome]:
        """Return the result of each text, or its `TextProblem`.

        Args:
            work: the task and its settings.
            texts: the texts.
            target_texts: the prefix or target of each text, or "".
            timeout: maximum number of seconds.

        Raises:
            HTTPException: 429 if too many texts wait, 504 after `timeout`.
            Exception: an error of the model.
        """
        if not texts:
            return []
        request = _Request(len(texts))
        now = time.monotonic()
        items = [
            _Item(request, position, text, target_text, now)
            for position, (text, target_text) in enumerate(zip(texts, target_texts, strict=True))
        ]
        self._enqueue(work, items)
        try:
            async with asyncio.timeout(timeout):
                await request.done
        except TimeoutError:
            raise late_answer(timeout) from None
        finally:
            request.abandoned = True  # the texts that still wait are not run
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

    def _enqueue(self, work: Work, items: Sequence[_Item]) -> None:
        with self._condition:
            if self.queued + len(items) > self._max_queue:
                raise full_queue(self._max_queue, self.queued, len(items), "texts")
            was_empty = self.queued == 0
            self.queued += len(items)
            queue = self._queues.setdefault(work, deque())
            queue.extend(items)
            # Otherwise a thread already waits for the delay to pass.
            if was_empty or len(queue) >= self._sufficient_size(work):
                self._condition.notify()

    def _run_batches(self) -> None:
        while (batch := self._next_batch()) is not None:
            work, items = batch
            if items := [item for item in items if not item.request.abandoned]:
                self._observe(len(items))
                outcomes = self._run_batch(work, items)
                # Expect as many texts from the answered clients, before they can send again.
                # Otherwise their texts and the waiting texts alternate in batches of half the size.
                with self._condition:
                    waiting = len(self._queues.get(work, ()))
                    expected = min(self._max_batch, waiting + len(items))
                    self._last_batch = _LastBatch(work, expected, time.monotonic())
                self._store_outcomes(items, outcomes)

    def _next_batch(self) -> tuple[Work, list[_Item]] | None:
        """Wait for a batch that is due. Return None after the last batch."""
        with self._condition:
            while True:
                if work := self._due_work():
                    return work, self._dequeue(work)
                if self._stopping:
                    return None
                deadlines = [self._deadline(*queue) for queue in self._queues.items()]
                self._condition.wait(
                    max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
                )

    def _due_work(self) -> Work | None:
        """Return the work of the batch to run now: the due batch with the oldest text."""
        now = time.monotonic()
        due = [
            (items[0].arrived, index, work)
            for index, (work, items) in enumerate(self._queues.items())
            if self._stopping
            or len(items) >= self._sufficient_size(work)
            or self._deadline(work, items) <= now
        ]
        return min(due)[2] if due else None

    def _sufficient_size(self, work: Work) -> int:
        """Return the number of texts at which a batch does not wait for more."""
        return self._last_batch.expected if work == self._last_batch.work else self._max_batch

    def _deadline(self, work: Work, items: Sequence[_Item]) -> float:
        """Return the time at which `items` stop waiting for other texts.

        The delay begins when the oldest text arrives, or later, when the last batch of the same
        work ends.
        """
        begin = items[0].arrived
        if work == self._last_batch.work:
            begin = max(begin, self._last_batch.ended)
        return begin + self._max_delay

    def _dequeue(self, work: Work) -> list[_Item]:
        queue = self._queues[work]
        items = [queue.popleft() for _ in range(min(len(queue), self._max_batch))]
        if not queue:
            del self._queues[work]
        self.queued -= len(items)
        if self._queues:
            self._condition.notify()  # for another thread to run the remaining texts
        return items

    def _run_batch(self, work: Work, items: Sequence[_Item]) -> list[Outcome]:
        """Run a batch, and return its outcomes.

        If the whole batch fails, each request runs separately, so that no request makes another
        request fail.
        """
        try:
            return list(
                self._run(work, [item.text for item in items], [item.target_text for item in items])
            )
        except TextError as error:
            return self._run_without_bad_texts(work, items, error)
        except Exception as error:
            requests: dict[_Request, list[int]] = {}
            for index, item in enumerate(items):
                requests.setdefault(item.request, []).append(index)
            if len(requests) == 1:
                return [error] * len(items)
            outcomes: list[Outcome] = [None] * len(items)
            for indices in requests.values():
                request_outcomes = self._run_batch(work, [items[index] for index in indices])
                for index, outcome in zip(indices, request_outcomes, strict=True):
                    outcomes[index] = outcome
            return outcomes

    def _run_without_bad_texts(
        self, work: Work, items: Sequence[_Item], error: TextError
    ) -> list[Outcome]:
        """Return the outcomes of a batch with texts that the model cannot process.

        The other texts run again if the error does not contain their results.
        """
        outcomes: dict[int, Outcome] = dict(error.results)
        outcomes |= {index: TextProblem(reason) for index, reason in error.reasons.items()}
        rest = [index for index in range(len(items)) if index not in outcomes]
        if len(rest) == len(items):
            return [error] * len(items)
        if rest:
            rest_outcomes = self._run_batch(work, [items[index] for index in rest])
            outcomes |= zip(rest, rest_outcomes, strict=True)
        return [outcomes[index] for index in range(len(items))]

    def _store_outcomes(self, items: Sequence[_Item], outcomes: Sequence[Outcome]) -> None:
        """Store the outcomes of a batch, and continue the requests that are complete.

        All requests share one call of the event loop, which costs a system call.
        """
        complete = []
        with self._outcome_lock:
            for item, outcome in zip(items, outcomes, strict=True):
                item.request.outcomes[item.position] = outcome
                item.request.missing -= 1
                if item.request.missing == 0:
                    complete.append(item.request)
        if complete:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no request waits
                complete[0].loop.call_soon_threadsafe(_wake, complete)
