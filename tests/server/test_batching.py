"""Which texts of several requests are run together, and when."""

import asyncio
import threading

import pytest
from starlette.exceptions import HTTPException

from tfk_transformer.apps.server.batcher import Batcher
from tfk_transformer.apps.server.request_queue import Work
from tfk_transformer.apps.server.settings import ServerSettings

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
    limits = {"max_batch": 8, "max_delay": 1000 * DELAY, "max_queue": 100, "max_texts": 100}
    batcher = Batcher(model.run, ServerSettings(**{**limits, **options}))
    try:
        asyncio.run(clients(batcher, model))
    finally:
        batcher.stop()
    return model.batches


def test_lone_client_does_not_wait():
    """Each request after the first has less time than a text would wait."""

    async def clients(batcher, model):
        assert await batcher.submit(TRANSLATE, ["a"], [""]) == ["A"]
        for _ in range(20):
            async with asyncio.timeout(2.5):
                assert await batcher.submit(TRANSLATE, ["b"], [""]) == ["B"]

    assert run_with(clients, max_delay=3000) == [(TRANSLATE, ["a"]), *[(TRANSLATE, ["b"])] * 20]


def test_returning_clients_join_batch():
    async def client(batcher, text, times):
        for _ in range(times):
            assert await batcher.submit(TRANSLATE, [text], [""]) == [text.upper()]

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
        first = asyncio.create_task(batcher.submit(TRANSLATE, ["a", "b"], ["", ""]))
        await asyncio.to_thread(model.runs.wait)
        greedy = asyncio.create_task(batcher.submit(GREEDY, ["c"], [""]))
        await asyncio.sleep(DELAY)
        model.may_run.set()
        assert await first == ["A", "B"]
        assert await batcher.submit(TRANSLATE, ["d", "e"], ["", ""]) == ["D", "E"]
        assert await greedy == ["C"]

    assert run_with(clients, max_batch=2) == [
        (TRANSLATE, ["a", "b"]),
        (GREEDY, ["c"]),
        (TRANSLATE, ["d", "e"]),
    ]


def submissions(batcher, *texts, work=TRANSLATE, client=""):
    """Requests of one text each, from one client."""
    return [
        asyncio.create_task(batcher.submit(work, [text], [""], client=client)) for text in texts
    ]


def test_text_waits_one_delay_at_most():
    """After a batch of two only one client comes back: its text runs when the delay has passed."""

    async def clients(batcher, model):
        assert await asyncio.gather(*submissions(batcher, *"ab")) == [["A"], ["B"]]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(DELAY / 3):
                await batcher.submit(TRANSLATE, ["c"], [""])
        assert await batcher.submit(TRANSLATE, ["d"], [""]) == ["D"]

    assert run_with(clients, max_batch=2) == [(TRANSLATE, ["a", "b"]), (TRANSLATE, ["d"])]


def run_queued(submit):
    """Run what `submit(batcher)` submits while a batch runs, and return the later batches."""

    async def clients(batcher, model):
        model.may_run.clear()
        tasks = submissions(batcher, "first")
        await asyncio.to_thread(model.runs.wait)
        tasks += submit(batcher)
        await asyncio.sleep(0.01)
        model.may_run.set()
        await asyncio.gather(*tasks)

    return [
        (dict(work.settings).get("beam_size", 4), texts)
        for work, texts in run_with(clients, max_delay=0)[1:]
    ]


def test_expensive_request_takes_turns():
    """Its batches cost no more than the texts that wait, and one of them at least."""

    def submit(batcher):
        wide = Work("translate", (("beam_size", 16), ("min_length", 63)))
        expensive = asyncio.create_task(batcher.submit(wide, ["x"] * 32, [""] * 32))
        return [expensive, *submissions(batcher, *"abcdefghijklmnopqrst")]

    batches = [(beams, len(texts)) for beams, texts in run_queued(submit)]
    assert batches == [(4, 8), (4, 8), (16, 1), (4, 4), *[(16, 1)] * 31]


def test_batches_of_many_settings_take_turns():
    """The settings of the most requests do not wait for the others."""

    def submit(batcher):
        others = [Work("translate", (("length_penalty", number / 10),)) for number in range(5)]
        rare = [submissions(batcher, "x", work=work)[0] for work in others]
        return [*rare, *submissions(batcher, *"abcdefghijklmnopqrst")]

    sizes = [len(texts) for _, texts in run_queued(submit)]
    assert sizes == [8, 8, 1, 4, 1, 1, 1, 1]


def test_clients_share_batches():
    """The text of another client runs in the next batch, and not after the many of one client."""

    def submit(batcher):
        many = submissions(batcher, *"abcdefghijklmnopqrstuvwxyz", client="many")
        return [*many, *submissions(batcher, "7", client="one")]

    batches = [texts for _, texts in run_queued(submit)]
    assert batches[0] == list("7abcdefg")
    assert sum(map(len, batches)) == 27


def test_requests_of_a_client_count_together():
    """Many expensive requests of one client run in short batches beside texts of other work."""

    def submit(batcher):
        wide = Work("translate", (("beam_size", 16), ("min_length", 63)))
        return [
            *submissions(batcher, *"xxx", work=wide, client="greedy"),
            *submissions(batcher, *"abcd", client="other"),
        ]

    batches = run_queued(submit)
    assert [(beams, len(texts)) for beams, texts in batches] == [(4, 4), (16, 1), (16, 1), (16, 1)]


def test_client_has_its_share_of_a_batch():
    """Two clients with long texts of equal work have as many in each batch."""

    def submit(batcher):
        many = submissions(batcher, *["x" * 200] * 8, client="a")
        return [*many, *submissions(batcher, *["y" * 200] * 8, client="b")]

    batches = ["".join(text[0] for text in texts) for _, texts in run_queued(submit)]
    assert [batch.count("x") for batch in batches] == [batch.count("y") for batch in batches]


def test_abandoned_texts_leave_queue():
    """Clients that leave make room at once, and their texts do not run."""

    async def clients(batcher, model):
        model.may_run.clear()
        first = submissions(batcher, "first")
        await asyncio.to_thread(model.runs.wait)
        many = [
            asyncio.create_task(batcher.submit(TRANSLATE, ["x"] * 8, [""] * 8)) for _ in range(12)
        ]
        await asyncio.sleep(0.01)
        assert batcher.queued == 96
        for task in many:
            task.cancel()
        await asyncio.sleep(0.01)
        assert batcher.queued == 0
        last = submissions(batcher, "last")
        await asyncio.sleep(0.01)
        model.may_run.set()
        assert await asyncio.gather(*first, *last) == [["FIRST"], ["LAST"]]

    assert [texts for _, texts in run_with(clients, max_delay=0)] == [["first"], ["last"]]


def test_clients_leave_room_in_queue():
    async def clients(batcher, model):
        model.may_run.clear()
        waiting = submissions(batcher, "a", client="greedy")
        await asyncio.to_thread(model.runs.wait)
        waiting += submissions(batcher, *"bcde", client="greedy")
        await asyncio.sleep(0)
        with pytest.raises(HTTPException, match="429: queue: expected at most 8 texts"):
            await batcher.submit(TRANSLATE, ["f"], [""], client="greedy")
        waiting += submissions(batcher, *"gh", client="other")
        await asyncio.sleep(0)
        assert batcher.queued == 6
        model.may_run.set()
        await asyncio.gather(*waiting)

    run_with(clients, max_queue=8, max_texts=8, max_batch=1)
