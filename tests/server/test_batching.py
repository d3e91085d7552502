"""Which texts of several requests are run together, and when."""

import asyncio
import threading

from starlette.exceptions import HTTPException

from tfk_transformer.server.batching import Batcher, Work

TRANSLATE, GREEDY = Work("translate"), Work("translate", (("beam_size", 1),))
DELAY = 1.5  # seconds that a text waits for others


class Model:
    """Gives texts back in upper case, each batch once it may."""

    def __init__(self):
        self.batches, self.may_run, self.runs = [], threading.Event(), threading.Event()
        self.may_run.set()

    def run(self, work, texts, others):
        self.runs.set()
        assert self.may_run.wait(60)
        self.batches.append((work, list(texts)))
        return [text.upper() for text in texts]


def run_with(clients, **options):
    """Run coroutines that are given a batcher and its model, and return the batches of the
    model.
    """
    model = Model()
    batcher = Batcher(
        model.run, **{"workers": 1, "max_batch": 8, "max_delay": DELAY, "max_queue": 100, **options}
    )
    try:
        asyncio.run(clients(batcher, model))
    finally:
        batcher.stop()
    return model.batches


def test_lone_client_does_not_wait():
    """Each request after the first has less time than a text would wait."""

    async def clients(batcher, model):
        assert await batcher.submit(TRANSLATE, ["a"], [""], 60) == ["A"]
        for _ in range(20):
            assert await batcher.submit(TRANSLATE, ["b"], [""], 2.5) == ["B"]

    assert run_with(clients, max_delay=3) == [(TRANSLATE, ["a"]), *[(TRANSLATE, ["b"])] * 20]


def test_returning_clients_join_batch():
    async def client(batcher, text, times):
        for _ in range(times):
            assert await batcher.submit(TRANSLATE, [text], [""], 60) == [text.upper()]

    async def clients(batcher, model):
        model.may_run.clear()
        first = asyncio.create_task(client(batcher, "a", 4))
        await asyncio.to_thread(model.runs.wait)
        later = [asyncio.create_task(client(batcher, text, 3)) for text in "bc"]
        while batcher.queued < 2:
            await asyncio.sleep(0)
        model.may_run.set()
        await asyncio.gather(first, *later)

    batches = run_with(clients)
    assert [sorted(texts) for _, texts in batches] == [["a"], *[["a", "b", "c"]] * 3]


def test_other_settings_wait_no_longer():
    """The greedy text has waited long enough when the first batch ends, and runs before a full
    batch that comes then.
    """

    async def clients(batcher, model):
        model.may_run.clear()
        first = asyncio.create_task(batcher.submit(TRANSLATE, ["a", "b"], ["", ""], 60))
        await asyncio.to_thread(model.runs.wait)
        greedy = asyncio.create_task(batcher.submit(GREEDY, ["c"], [""], 60))
        await asyncio.sleep(DELAY)
        model.may_run.set()
        assert await first == ["A", "B"]
        assert await batcher.submit(TRANSLATE, ["d", "e"], ["", ""], 60) == ["D", "E"]
        assert await greedy == ["C"]

    assert run_with(clients, max_batch=2) == [
        (TRANSLATE, ["a", "b"]),
        (GREEDY, ["c"]),
        (TRANSLATE, ["d", "e"]),
    ]


def test_text_waits_one_delay_at_most():
    """After a batch of two only one client comes back: its text runs when the delay has passed."""

    async def clients(batcher, model):
        assert await batcher.submit(TRANSLATE, ["a", "b"], ["", ""], 60) == ["A", "B"]
        try:
            await batcher.submit(TRANSLATE, ["c"], [""], DELAY / 3)
        except HTTPException as refusal:
            assert refusal.status_code == 504
        else:
            raise AssertionError("the text did not wait")
        assert await batcher.submit(TRANSLATE, ["d"], [""], 60) == ["D"]

    assert run_with(clients, max_batch=2) == [(TRANSLATE, ["a", "b"]), (TRANSLATE, ["d"])]
