"""The queue of requests: their work and its cost, and the order in which their texts run."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from starlette.exceptions import HTTPException

from tfk_transformer.apps.server.bodies import InvalidValue
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.config.search_settings import SearchSettings

CHARACTERS_PER_TOKEN = 4  # about, in languages with letters
ATTENTION_COST = 3  # about: hypotheses with their attention are also scored
MAX_SHARES = 8  # of a batch for its clients: very short batches would waste time
OLDEST_EVERY = 3  # one of this many batches begins with the oldest request


class Work(NamedTuple):
    """A task of the model and its settings. Texts of equal work can share a batch.

    "sentences" are translated except for the characters that the vocabulary lacks. "translate"
    translates each text exactly as it is.
    """

    task: Literal["sentences", "translate", "score", "classify"]
    settings: tuple[tuple[str, Any], ...] = ()  # search settings by name, sorted


def text_costs(work: Work, texts: Sequence[str]) -> list[int]:
    """Return the cost of each text for the model: beam size × number of tokens.

    The number of tokens is an estimate: the tokens of the text, or `min_length` if this is larger.
    Texts whose attention is needed cost more, see `ATTENTION_COST`.
    """
    settings = dict(work.settings)
    beam_size = settings.get("beam_size", SearchSettings.beam_size)
    min_length = settings.get("min_length", SearchSettings.min_length)
    if work.task in ("score", "classify"):
        beam_size = 1
    if settings.get("attention"):
        beam_size *= ATTENTION_COST
    return [beam_size * max(len(text) // CHARACTERS_PER_TOKEN + 1, min_length) for text in texts]


def check_load(
    limits: ServerSettings, cost: int, added: int, waiting: int, content: str = "texts"
) -> None:
    """Refuse a request that costs too much (422), or for which a queue has no room (429)."""
    if cost > limits.max_cost:
        raise InvalidValue(
            f"texts: expected a cost of at most {limits.max_cost}, got {cost}, the beam size "
            "times the number of tokens; send several requests or use a smaller beam."
        )
    if waiting + added > limits.max_queue:
        raise HTTPException(
            429,
            f"queue: expected at most {limits.max_queue} {content}, got {waiting} that wait and "
            f"{added} more; try again later.",
            {"Retry-After": "1"},
        )


class QueuedRequest:
    """The texts of a request, at least one, that wait for the model, and their outcomes."""

    def __init__(
        self, work: Work, texts: Sequence[str], target_texts: Sequence[str], client: str
    ) -> None:
        self.work = work
        self.texts = texts
        self.target_texts = target_texts  # the prefix or target of each text, or ""
        self.client = client  # such as an address
        self.arrived = time.monotonic()
        self.costs = text_costs(work, texts)
        self.cost = self.cost_waiting = sum(self.costs)
        self.taken = 0  # the number of texts that are in a batch already; they are the first ones
        self.outcomes: list[Any] = [None] * len(texts)  # outcomes, or errors of the model
        self.missing = len(texts)
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()

    @property
    def waiting(self) -> int:
        """The number of texts that wait."""
        return len(self.texts) - self.taken


class RequestQueue:
    """Requests that wait, and the texts to run next.

    Two orders take turns, so that a request is neither overtaken forever nor delayed for long by
    requests with more work:

    - for two of three batches: the client whose requests cost least; of these, the request with the
      least cost, divided by the number of requests of equal work, which can share a batch
    - for the third batch: the request that arrived first

    A batch has one text of each client with equal work. The further texts of a client cost no more
    than its share of the batch. While texts of other work wait or have just run, they also cost no
    more than these. Thus the batches of an expensive client are short, and the others wait at most
    about twice as long as without it.
    """

    def __init__(self) -> None:
        self.requests: dict[QueuedRequest, None] = {}  # in the order of arrival
        self.texts = 0
        self._batches = 0
        # Of the last batches, whose clients may send again at once.
        self._last_works: deque[Work] = deque(maxlen=OLDEST_EVERY)
        self._last_clients: deque[set[str]] = deque(maxlen=OLDEST_EVERY)

    def add(self, request: QueuedRequest) -> None:
        """Add a request."""
        self.requests[request] = None
        self.texts += request.waiting

    def remove(self, request: QueuedRequest) -> None:
        """Remove a request, if it still waits."""
        if request in self.requests:
            del self.requests[request]
            self.texts -= request.waiting

    def take(self, max_texts: int, max_cost: int) -> list[tuple[QueuedRequest, int]]:
        """Remove and return the next batch: one text of any cost, or several within `max_cost`."""
        self._batches += 1
        by_work: dict[Work, list[QueuedRequest]] = {}  # that of the oldest request first
        for request in self.requests:
            by_work.setdefault(request.work, []).append(request)
        is_oldest = self._batches % OLDEST_EVERY == 1
        groups = by_work.values()
        requests = next(iter(groups)) if is_oldest else self._cheapest_requests(groups)
        other_cost = sum(request.cost_waiting for request in self.requests)
        other_cost -= sum(request.cost_waiting for request in requests)
        self._last_works.append(requests[0].work)
        is_alone = not other_cost and len(set(self._last_works)) == 1
        further_cost = max_cost if is_alone else max(other_cost, max_cost // MAX_SHARES)
        clients = {request.client for request in self.requests}.union(*self._last_clients)
        share = max_cost // min(len(clients), MAX_SHARES)
        batch = list(_first_texts(requests, max_texts, max_cost, further_cost, share))
        self._last_clients.append({request.client for request, _ in batch})
        for request, index in batch:
            request.cost_waiting -= request.costs[index]
            request.taken += 1
            self.texts -= 1
            if not request.waiting:
                self.remove(request)
        return batch

    def _cheapest_requests(
        self, groups: Collection[Sequence[QueuedRequest]]
    ) -> list[QueuedRequest]:
        """Return the requests of equal work that come first in the first order, sorted by it."""
        client_costs: Counter[str] = Counter()  # of all texts of the waiting requests
        for request in self.requests:
            client_costs[request.client] += request.cost

        def priority(request: QueuedRequest) -> tuple[int, int]:
            return client_costs[request.client], request.cost

        def work_priority(requests: Collection[QueuedRequest]) -> tuple[int, float]:
            client_cost, cost = min(map(priority, requests))
            return client_cost, cost / len(requests)

        cheapest = min(groups, key=work_priority)
        return sorted(cheapest, key=priority)


def _first_texts(
    requests: Iterable[QueuedRequest],
    max_texts: int,
    max_cost: int,
    further_cost: int,
    share: int,
) -> Iterator[tuple[QueuedRequest, int]]:
    """Yield the request and the index of each text of a batch, which has at least one text."""
    count = 0
    costs: dict[str, int] = {}  # by client
    for request in requests:
        for index in range(request.taken, len(request.texts)):
            cost = request.costs[index]
            if count and (count == max_texts or cost > max_cost):
                return
            if request.client in costs:
                if cost > min(further_cost, share - costs[request.client]):
                    break
                further_cost -= cost
            costs[request.client] = costs.get(request.client, 0) + cost
            count += 1
            max_cost -= cost
            yield request, index
