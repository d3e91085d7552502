"""The served model: validation of requests, and the batches of all protocols."""

import asyncio
import contextlib
import functools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from tfk_transformer.apps.server.batcher import JUST_ENDED, Batcher
from tfk_transformer.apps.server.bodies import InvalidValue, check_maximum
from tfk_transformer.apps.server.monitoring import ServerState
from tfk_transformer.apps.server.request_queue import Work, check_load, text_costs
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.apps.server.text_process import TextProcess
from tfk_transformer.config.search_settings import own_defaults, resolve_settings, setting_rules
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.inference.conveyor import text_road, translate_sentences
from tfk_transformer.runtime_environment import usable_processors
from tfk_transformer.text.calibration import Calibration
from tfk_transformer.text.languages import Languages, language_or_english, short_code
from tfk_transformer.text.outcome import Outcome, Refused, TextError, check_texts
from tfk_transformer.text.road import Outcomes, Road, Sentences, advance

T = TypeVar("T")
THREADS = 8  # that wait for the process of long texts, in addition to those of streams
LONG_REQUEST = 5000  # characters or bytes, whose preparation would hold up other requests
WAITING = 4  # times the processor time of the last step, at most: a stream gives way to batches
NO_SCORE = -1e9  # of a missing hypothesis, as in exported files
# The model's own limits are stricter: it refuses a setting when a batch or a stream begins.
SETTING_RULES = setting_rules()


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`; cancel it, and raise ClientDisconnect, if the client leaves.

    The future `departure` in the scope of the request is done when the client leaves. A task that
    waits for the message http.disconnect would make every request slower.
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


class ServedModel:
    """A model behind a queue."""

    def __init__(self, model: BaseTranslator | BaseClassifier, settings: ServerSettings) -> None:
        self.model: Any = model  # `classifies` determines which methods it has
        self.settings = settings
        self.state = ServerState()
        self.classifies = isinstance(model, BaseClassifier)
        self._splits = False
        self.calibration: Calibration | None = None  # None: translations have no confidence
        # The defaults of requests: those of the model, and of the server.
        self.search: Mapping[str, Any] = settings.search
        self.languages = Languages(settings.source_language, settings.target_language)
        if isinstance(model, BaseTranslator):
            self._splits = model.splits_sentences(settings.split_sentences)
            own = own_defaults(model.runtime.rules, model.max_length)
            self.search = {**own, **settings.search}
            self.calibration = model.calibration
            if settings.source_language is None:
                self.languages = Languages(*[code and short_code(code) for code in model.languages])
        self.language = language_or_english(self.languages.source)
        if isinstance(model, BaseTranslator | BaseClassifier):
            model.runtime.preload()
        # The first request would otherwise wait for the model to initialize.
        try:
            default = self.work({})
        except HTTPException as refusal:
            raise ValueError(refusal.detail) from None
        for count in (1, settings.max_batch):
            self._run(default, ["a"] * count, [""] * count)
        self._long_texts = TextProcess()
        self._threads = ThreadPoolExecutor(settings.max_streams + THREADS, "texts")
        # Of these threads, by client and pool.
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = WeakValueDictionary()
        self._preparing: Counter[str] = Counter()  # texts, by client
        self._batcher = Batcher(self._run, settings, self.state.batch_texts.observe)
        self.state.queue_texts.set_function(lambda: self._batcher.queued)

    def _run(
        self, work: Work, texts: Sequence[str], target_texts: Sequence[str]
    ) -> Sequence[Outcome[Any]]:
        size = self.settings.max_batch
        if work.task == "classify":
            return self.model.try_classify(texts, batch_size=size)
        if work.task == "score":
            return self.model.try_score_tokens(texts, target_texts, batch_size=size)
        search = self.model.prepare_search(batch_size=size, **dict(work.settings))
        sentences = Sentences(list(texts), list(target_texts))
        if work.task == "sentences":
            return translate_sentences(search, sentences)
        return search.translate(sentences)

    def work(self, requested: Mapping[str, Any]) -> Work:
        """Return the work of a request with these search settings, or refuse them with 422."""
        if self.classifies:
            if requested:
                raise InvalidValue(
                    "settings: expected no search settings for a classifier, got "
                    f"{', '.join(map(repr, requested))}; leave them out."
                )
            return Work("classify")
        options = sorted(self.search_settings(self.search, requested).items())
        return Work("sentences" if self._splits else "translate", tuple(options))

    def search_settings(
        self, defaults: Mapping[str, Any], requested: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the search settings of a request with defaults, or refuse them with 422."""
        settings = {**defaults, **requested}
        try:
            beam_size = resolve_settings(settings, SETTING_RULES)["beam_size"]
        except ValueError as error:
            raise InvalidValue(f"{str(error).removesuffix('.')}; correct it.") from None
        check_maximum("beam_size", beam_size, self.settings.max_beam_size, "choose a smaller one")
        return settings

    async def outcomes(
        self, request: Request, work: Work, texts: Sequence[str], target_texts: Sequence[str] = ()
    ) -> list[Outcome[Any]]:
        """Return the outcome of each text; see also `check`, `submit` and `answer`."""
        request.scope["texts"] = len(texts)
        self.check(texts)
        self.check(target_texts)
        target_texts = target_texts or [""] * len(texts)
        if work.task != "sentences":
            return await self.answer(request, self.submit(request, work, texts, target_texts))

        async def submit(sentences: Sentences) -> list[Outcome[Any]]:
            count, maximum = len(sentences.texts), self.settings.max_queue
            check_maximum("texts", count, maximum, "send several requests", " sentences")
            return await self.submit(request, work, sentences.texts, sentences.prefixes)

        make = functools.partial(
            text_road, texts, target_texts, self.language, self.model.max_length
        )
        if sum(map(len, texts)) <= LONG_REQUEST:
            return await self.answer(request, _drive(make(), submit))
        with self.preparing(request, work, texts):
            return await self.answer(request, self.drive_long(request, make, submit))

    @contextlib.contextmanager
    def preparing(self, request: Request, work: Work, texts: Sequence[str]) -> Iterator[None]:
        """Refuse texts that cost too much, or for which there is no room; see `check_load`."""
        cost = sum(text_costs(work, texts))
        client = _client(request)
        waiting, content = self._preparing.total(), "long texts"
        if client and 2 * waiting >= self.settings.max_queue:  # it leaves room for others
            waiting += self._preparing[client]
            content = "long texts (a client's own count twice)"
        check_load(self.settings, cost, len(texts), waiting, content)
        self._preparing[client] += len(texts)
        try:
            yield
        finally:
            self._preparing[client] -= len(texts)
            if not self._preparing[client]:
                del self._preparing[client]

    async def parse(self, request: Request, body: bytes, function: Callable[[bytes], T]) -> T:
        """Parse a body with a function of a module, a long one in the process of long texts."""
        if len(body) <= LONG_REQUEST:
            return function(body)
        parse = functools.partial(function, body)
        return await self.answer(request, self.run(request, self._long_texts.call, parse))

    async def run(
        self,
        request: Request,
        function: Callable[..., T],
        *arguments: Any,
        pool: str = "texts",
        threads: int = 1,
    ) -> T:
        """Run a function in a thread; a client has at most this number of a pool.

        One is enough for Python code, which runs on one processor at a time. If the process of long
        texts ends, the request is refused with 503.
        """
        loop = asyncio.get_running_loop()
        key = (_client(request), pool)
        turns = self._turns.setdefault(key, asyncio.Semaphore(threads))
        await turns.acquire()

        def end(job: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(turns.release)

        job: Future[T] | None = None
        try:
            job = self._threads.submit(function, *arguments)
            return await asyncio.wrap_future(job)
        except ConnectionError as error:
            raise HTTPException(503, f"texts: {error}; try again.", {"Retry-After": "1"}) from None
        finally:
            if job is None or job.done():  # None: the system has no thread left
                turns.release()
            else:  # the request is canceled, and its thread ends later
                job.add_done_callback(end)

    async def drive_long(
        self,
        request: Request,
        make: Callable[[], Road[T]],
        answer: Callable[[Sentences], Awaitable[Outcomes]],
    ) -> T:
        """Drive the road that a function makes, as `road.drive` does, in the process of long texts.

        See also `run`.
        """
        run = functools.partial(self.run, request, self._long_texts.road(make))
        sentences, result = await run(None)
        while sentences is not None:
            sentences, result = await run(await answer(sentences))
        return cast(T, result)

    async def submit(
        self, request: Request, work: Work, texts: Sequence[str], target_texts: Sequence[str]
    ) -> list[Outcome[Any]]:
        """Return the outcome of each text, run as one sentence; refuse unfit settings with 422."""
        try:
            return await self._batcher.submit(work, texts, target_texts, _client(request))
        except ValueError as error:
            raise InvalidValue(str(error)) from None

    async def answer(self, request: Request, work: Awaitable[T]) -> T:
        """Return the result of `work`; refuse with 504 if it is late. See `while_connected`."""
        limit = self.settings.timeout
        try:
            async with asyncio.timeout_at(self._end(request)):
                return await while_connected(request, work)
        except TimeoutError:
            raise HTTPException(
                504,
                f"time: expected an answer within {limit:g} s, got none; send fewer or shorter "
                "texts, or try again later.",
                {"Retry-After": "5"},
            ) from None

    def _end(self, request: Request) -> float:
        """Return the time of the event loop when the answer is late, from the first call on."""
        now = asyncio.get_running_loop().time()
        end: float = request.scope.setdefault("end", now + self.settings.timeout)
        return end

    async def results(
        self, request: Request, work: Work, texts: Sequence[str], target_texts: Sequence[str] = ()
    ) -> list[Any]:
        """Return the result of each text, or refuse the request with 422 if one has none."""
        outcomes = await self.outcomes(request, work, texts, target_texts)
        problems = [
            f"number {number}: {outcome.reason}"
            for number, outcome in enumerate(outcomes, 1)
            if isinstance(outcome, Refused)
        ]
        if problems:
            more = f"; and {len(problems) - 3} more" if problems[3:] else ""
            raise InvalidValue(f"texts: {'; '.join(problems[:3])}{more}")
        return outcomes

    async def stream(
        self, request: Request, text: str, settings: Mapping[str, Any]
    ) -> AsyncIterator[str]:
        """Yield the parts of a translation, decoded by other threads. No part is empty.

        If the stream is canceled or late, its thread ends after the current step.
        """
        loop = asyncio.get_running_loop()
        limit = self.settings.timeout
        end = self._end(request)
        ended = False
        steps: Iterator[str] = iter(())

        def next_part() -> str:
            return next((part for part in steps if part or ended), "")

        stream = functools.partial(
            self.model.stream_steps,
            text,
            split_sentences=self.settings.split_sentences,
            language=self.language,
            **settings,
        )
        try:
            # One `asyncio.timeout` for all parts would fail: several tasks await the parts.
            threads = min(usable_processors(), self.settings.max_streams)
            run = functools.partial(self.run, request, pool="streams", threads=threads)
            steps = self._give_way(await asyncio.wait_for(run(stream), end - loop.time()))
            while part := await asyncio.wait_for(run(next_part), end - loop.time()):
                yield part
        except ValueError as error:
            raise InvalidValue(str(error)) from None
        except TimeoutError:
            raise HTTPException(
                504,
                f"time: expected the whole stream within {limit:g} s, got a part; send a "
                "shorter text.",
                {"Retry-After": "5"},
            ) from None
        finally:
            ended = True

    def _give_way(self, steps: Iterator[str]) -> Iterator[str]:
        """Yield the steps of a stream; before each, wait while batches run, see `WAITING`."""
        seconds = 0.0
        while True:
            end = time.monotonic() + WAITING * seconds
            while self._batcher.busy and (rest := end - time.monotonic()) > 0:
                time.sleep(min(rest, JUST_ENDED))
            begin = time.thread_time()
            step = next(steps, None)
            if step is None:
                return
            seconds = time.thread_time() - begin
            yield step

    def check(self, texts: Sequence[str]) -> None:
        """Refuse too many texts, texts that are too long, and invalid texts with 422."""
        limits = self.settings
        longest = max(map(len, texts), default=0)
        check_maximum("texts", len(texts), limits.max_texts, "send several requests")
        unit = " characters each"
        check_maximum("texts", longest, limits.max_characters, "send them in parts", unit)
        try:
            check_texts(texts)
        except TextError as error:
            raise InvalidValue(str(error)) from None

    def stop(self) -> None:
        """Run the waiting texts, and end the threads."""
        self._batcher.stop()
        self._long_texts.stop()
        self._threads.shutdown(cancel_futures=True)


async def _drive(road: Road[T], answer: Callable[[Sentences], Awaitable[Outcomes]]) -> T:
    """Drive a road as `road.drive` does, with answers that take time."""
    sentences, result = advance(road, None)
    while sentences is not None:
        sentences, result = advance(road, await answer(sentences))
    return cast(T, result)


def _client(request: Request) -> str:
    return request.client.host if request.client else ""  # unknown with a Unix socket
