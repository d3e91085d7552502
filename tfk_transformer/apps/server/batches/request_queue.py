"""The queue of requests, and the order in which their texts run."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, KeysView, Sequence
from typing import Any

from tfk_transformer.apps.server.batches.work import Work, text_costs


class QueuedRequest:
    """The texts of a request that wait for the model, and their outcomes.

    Args:
        work: the task and its settings.
        texts: the texts, at least one.
        target_texts: the prefix or target of each text, or "".
        client: who sent the request, such as an address.
    """

    def __init__(
        self, work: Work, texts: Sequence[str], target_texts: Sequence[str], client: str
    ) -> None:
        self.work = work
        self.texts = texts
        self.target_texts = target_texts
        self.client = client
        self.arrived = time.monotonic()
        self.costs = text_costs(work, texts)
        self.cost = sum(self.costs)
        self.cost_waiting = self.cost
        self.taken = 0  # the number of texts that are in a batch already; they are the first ones
        self.outcomes: list[Any] = [None] * len(texts)  # outcomes, or errors of the model
        self.missing = len(texts)
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()

    @property
    def waiting(self) -> int:
        """The number of texts that wait."""
        return len(self.texts) - self.taken

    def take(self) -> None:
        """Move the first waiting text to a batch."""
        self.cost_waiting -= self.costs[self.taken]
        self.taken += 1


OLDEST_EVERY = 3  # one of this many batches begins with the oldest request


class RequestQueue:
    """Requests that wait, and the texts to run next.

    Two orders take turns, so that a request is neither overtaken forever nor delayed for long by
    requests with more work:

    - for two of three batches: the client whose requests cost least; of these, the request with the
      least cost, divided by the number of requests of equal work, which can share a batch
    - for the third batch: the request that arrived first

    A batch has one text of each request of equal work. While texts of other work wait, its further
    texts cost no more than these. Thus the batches of an expensive request are short, and the
    others wait at most about twice as long as without it.
    """

    def __init__(self) -> None:
        self._requests: dict[QueuedRequest, None] = {}  # in the order of arrival
        self._by_work: dict[Work, dict[QueuedRequest, None]] = {}
        self._client_costs: Counter[str] = Counter()  # of all texts of the waiting requests
        self._batches = 0
        self.texts = 0

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._requests)

    @property
    def requests(self) -> KeysView[QueuedRequest]:
        """The waiting requests, in the order of arrival."""
        return self._requests.keys()

    @property
    def first_arrival(self) -> float:
        """The time at which the oldest request arrived. The queue must not be empty."""
        return next(iter(self._requests)).arrived

    def add(self, request: QueuedRequest) -> None:
        """Add a request."""
        self._requests[request] = None
        self._by_work.setdefault(request.work, {})[request] = None
        self._client_costs[request.client] += request.cost
        self.texts += request.waiting

    def remove(self, request: QueuedRequest) -> None:
        """Remove a request, if it still waits."""
        if request not in self._requests:
            return
        del self._requests[request]
        del self._by_work[request.work][request]
        if not self._by_work[request.work]:
            del self._by_work[request.work]
        self._client_costs[request.client] -= request.cost
        if not self._client_costs[request.client]:
            del self._client_costs[request.client]
        self.texts -= request.waiting

    def take(self, max_texts: int, max_cost: int) -> list[tuple[QueuedRequest, int]]:
        """Remove the texts of the next batch, and return the request and the index of each.

        Args:
            max_texts: maximum number of texts.
            max_cost: maximum cost of the texts, unless a single text costs more.
        """
        self._batches += 1
        is_turn_of_oldest = self._batches % OLDEST_EVERY == 1
        requests = self._oldest_requests() if is_turn_of_oldest else self._cheapest_requests()
        other_cost = sum(request.cost_waiting for request in self._requests) - sum(
            request.cost_waiting for request in requests
        )
        # Very short batches of cheap texts would waste time.
        further_cost = max(other_cost, max_cost // 8) if other_cost else max_cost
        batch = list(_first_texts(requests, max_texts, max_cost, further_cost))
        for request, _ in batch:
            request.take()
            self.texts -= 1
            if not request.waiting:
                self.remove(request)
        return batch

    def _oldest_requests(self) -> list[QueuedRequest]:
        """Return the requests with the work of the oldest, in the order of arrival."""
        return list(self._by_work[next(iter(self._requests)).work])

    def _cheapest_requests(self) -> list[QueuedRequest]:
        """Return the requests of equal work that come first in the first order, sorted by it."""
        clients = self._client_costs

        def priority(request: QueuedRequest) -> tuple[int, int]:
            return clients[request.client], request.cost

        def work_priority(work: Work) -> tuple[int, float]:
            requests = self._by_work[work]
            client_cost, cost = min(map(priority, requests))
            return client_cost, cost / len(requests)

        return sorted(self._by_work[min(self._by_work, key=work_priority)], key=priority)


def _first_texts(
    requests: Iterable[QueuedRequest], max_texts: int, max_cost: int, further_cost: int
) -> Iterator[tuple[QueuedRequest, int]]:
    """Yield the request and the index of each text of a batch, which has at least one text."""
    count = 0
    for request in requests:
        for index in range(request.taken, len(request.texts)):
            cost = request.costs[index]
            if count and (count == max_texts or cost > max_cost):
                return
            if index > request.taken:
                if cost > further_cost:
                    break
                further_cost -= cost
            count += 1
            max_cost -= cost
            yield request, index
