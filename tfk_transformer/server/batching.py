"""Dynamic batching: texts of several requests with the same work are joined to one call of the
model.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from tfk_transformer.inference.text_errors import TextError
from tfk_transformer.server.refusals import RequestError


class Work(NamedTuple):
    """What the model does with texts. Texts of equal work are joined."""

    kind: Literal["translate", "score", "classify"]
    settings: tuple[tuple[str, Any], ...] = ()  # search settings by name, sorted


class TextProblem(NamedTuple):
    """The outcome of a text that the model cannot process."""

    reason: str


Outcome: TypeAlias = Any  # a result of the model, a `TextProblem`, or an Exception
# (work, texts, others) -> results.
Run: TypeAlias = Callable[[Work, Sequence[str], Sequence[str]], Sequence[Any]]


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
    place: int
    text: str
    other: str
    arrived: float


class _Last(NamedTuple):
    """The batch that ended last."""

    work: Work | None = None
    expected: int = 0  # texts of this work that are worth waiting for
    ended: float = 0.0


class Batcher:
    """Threads that run the model on batches.

    Args:
        run: runs the model; see `Run`. The other texts are prefixes or targets.
        workers: batches that run at the same time.
        max_batch: texts in a batch.
        max_delay: seconds that a text waits for others, after the model is free for it. It waits
            only until as many texts wait as did when the last batch of the same work ended, those
            of the batch included.
        max_queue: texts that wait.
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
        self._run, self._observe = run, observe
        self._max_batch, self._max_delay, self._max_queue = max_batch, max_delay, max_queue
        self._waiting: dict[Work, deque[_Item]] = {}
        self._condition, self._finishing = threading.Condition(), threading.Lock()
        self._stopping, self.queued = False, 0
        self._last = _Last()
        self._threads = [
            threading.Thread(target=self._work, name=f"batches-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    async def submit(
        self, work: Work, texts: Sequence[str], others: Sequence[str], timeout: float
    ) -> list[Outcome]:
        """Return the result of each text, or its `TextProblem`.

        Args:
            work: what to do.
            texts: the texts.
            others: for each text, its prefix or target, "" for none.
            timeout: seconds.

        Raises:
            Refusal: 429 if too many texts wait, 504 after `timeout`.
            Exception: an error of the model.
        """
        if not texts:
            return []
        request, now = _Request(len(texts)), time.monotonic()
        self._put(
            work,
            [
                _Item(request, i, text, other, now)
                for i, (text, other) in enumerate(zip(texts, others, strict=True))
            ],
        )
        try:
            async with asyncio.timeout(timeout):
                await request.done
        except TimeoutError:
            reason = (
                f"time: expected an answer within {timeout:g} s, got none; send fewer or "
                "shorter texts, or try again later."
            )
            raise RequestError(504, reason, Retry_After="5") from None
        finally:
            request.abandoned = True  # its texts that still wait are not run
        if error := next(
            (outcome for outcome in request.outcomes if isinstance(outcome, Exception)), None
        ):
            raise error
        return request.outcomes

    def stop(self) -> None:
        """Run what waits, and end the threads."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _put(self, work: Work, items: Sequence[_Item]) -> None:
        with self._condition:
            if self.queued + len(items) > self._max_queue:
                found = f"{self.queued} that wait and {len(items)} more"
                raise RequestError(
                    429,
                    (
                        f"queue: expected at most {self._max_queue} texts, got {found}; try again "
                        "later."
                    ),
                    Retry_After="1",
                )
            first = self.queued == 0
            self.queued += len(items)
            queue = self._waiting.setdefault(work, deque())
            queue.extend(items)
            # Else a thread already waits for the delay to pass.
            if first or len(queue) >= self._enough(work):
                self._condition.notify()

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            work, items = batch
            if items := [item for item in items if not item.request.abandoned]:
                self._observe(len(items))
                outcomes = self._outcomes(work, items)
                self._expect(work, len(items))  # before clients can send again
                self._finish(items, outcomes)

    def _expect(self, work: Work, answered: int) -> None:
        """Expect the clients that were answered to send as many texts again.

        They and the texts that wait already would otherwise take turns, in batches of half the
        size.
        """
        with self._condition:
            waiting = len(self._waiting.get(work, ()))
            self._last = _Last(work, min(self._max_batch, waiting + answered), time.monotonic())

    def _next_batch(self) -> tuple[Work, list[_Item]] | None:
        """Wait for a batch that is due. None: the end."""
        with self._condition:
            while True:
                if work := self._due():
                    return work, self._take(work)
                if self._stopping:
                    return None
                first = min(
                    (self._deadline(*waiting) for waiting in self._waiting.items()), default=None
                )
                self._condition.wait(None if first is None else max(0.0, first - time.monotonic()))

    def _due(self) -> Work | None:
        """Return the work to do now: of the batches that are due, that of the oldest text."""
        now = time.monotonic()
        due = [
            (items[0].arrived, place, work)
            for place, (work, items) in enumerate(self._waiting.items())
            if self._stopping
            or len(items) >= self._enough(work)
            or self._deadline(work, items) <= now
        ]
        return min(due)[2] if due else None

    def _enough(self, work: Work) -> int:
        """Return how many texts need not wait for others."""
        return self._last.expected if work == self._last.work else self._max_batch

    def _deadline(self, work: Work, items: Sequence[_Item]) -> float:
        """Return when texts have waited long enough. The delay begins anew when the same work has
        been done.
        """
        return (
            max(items[0].arrived, self._last.ended) if work == self._last.work else items[0].arrived
        ) + self._max_delay

    def _take(self, work: Work) -> list[_Item]:
        queue = self._waiting[work]
        items = [queue.popleft() for _ in range(min(len(queue), self._max_batch))]
        if not queue:
            del self._waiting[work]
        self.queued -= len(items)
        if self._waiting:
            self._condition.notify()  # another thread waits for the rest
        return items

    def _outcomes(self, work: Work, items: Sequence[_Item]) -> list[Outcome]:
        """Run a batch. If it fails as a whole, run each request by itself, so that no request fails
        for another.
        """
        try:
            return list(
                self._run(work, [item.text for item in items], [item.other for item in items])
            )
        except TextError as error:
            return self._without_bad_texts(work, items, error)
        except Exception as error:
            requests = {
                item.request: [
                    place for place, other in enumerate(items) if other.request is item.request
                ]
                for item in items
            }
            if len(requests) == 1:
                return [error] * len(items)
            outcomes: list[Outcome] = [None] * len(items)
            for places in requests.values():
                for place, outcome in zip(
                    places, self._outcomes(work, [items[place] for place in places]), strict=True
                ):
                    outcomes[place] = outcome
            return outcomes

    def _without_bad_texts(
        self, work: Work, items: Sequence[_Item], error: TextError
    ) -> list[Outcome]:
        """Return the outcomes of a batch with texts that the model cannot process; the others run
        again if they did not run.
        """
        outcomes: dict[int, Outcome] = {
            **error.results,
            **{place: TextProblem(reason) for place, reason in error.reasons.items()},
        }
        rest = [place for place in range(len(items)) if place not in outcomes]
        if len(rest) == len(items):
            return [error] * len(items)
        outcomes |= (
            zip(rest, self._outcomes(work, [items[place] for place in rest]), strict=True)
            if rest
            else ()
        )
        return [outcomes[place] for place in range(len(items))]

    def _finish(self, items: Sequence[_Item], outcomes: Sequence[Outcome]) -> None:
        """Store the outcomes of a batch. The event loop is called once for all its requests: a call
        costs a system call.
        """
        complete = []
        with self._finishing:
            for item, outcome in zip(items, outcomes, strict=True):
                item.request.outcomes[item.place] = outcome
                item.request.missing -= 1
                if item.request.missing == 0:
                    complete.append(item.request)
        if complete:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                complete[0].loop.call_soon_threadsafe(_wake, complete)
