"""The served model: validation of requests, and the batches of all protocols."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tfk_transformer.apps.server.batches.batcher import Batcher
from tfk_transformer.apps.server.batches.disconnection import while_connected
from tfk_transformer.apps.server.batches.work import Work, late_answer
from tfk_transformer.apps.server.monitoring import Metrics
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.config.search_settings import own_defaults, resolve_settings, setting_rules
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.inference.conveyor import translate_sentences
from tfk_transformer.text.calibration import Calibration
from tfk_transformer.text.languages import Languages, language_or_english, short_code
from tfk_transformer.text.outcome import Outcome, Refused, TextError, check_texts
from tfk_transformer.text.road import Road, Sentences, advance

T = TypeVar("T")
NO_SCORE = -1e9  # of a missing hypothesis, as in exported files
# The model's own limits are stricter: it refuses a setting when a batch or a stream begins.
SETTING_RULES = setting_rules()


class ServedModel:
    """A model behind a queue.

    Args:
        model: a translator or a classifier.
        settings: the settings of the server.
        metrics: counts the batches.

    Raises:
        ValueError: if the search settings of the server do not fit the model.
    """

    def __init__(
        self,
        model: BaseTranslator | BaseClassifier,
        settings: ServerSettings,
        metrics: Metrics,
    ) -> None:
        self.model: Any = model  # `classifies` determines which methods it has
        self.settings = settings
        self.classifies = isinstance(model, BaseClassifier)
        self._splits = False
        self.calibration: Calibration | None = None  # None: translations have no confidence
        # The defaults of requests: those of the model, and of the server.
        self.search: Mapping[str, Any] = settings.search
        if isinstance(model, BaseTranslator):
            self._splits = model.splits_sentences(settings.split_sentences)
            own = own_defaults(model.runtime.rules, model.max_length)
            self.search = {**own, **settings.search}
            self.calibration = model.calibration
        self.languages = _languages(model, settings)
        self.language = language_or_english(self.languages.source)
        # The first request would otherwise wait for the model to initialize.
        try:
            default = self.work({})
        except HTTPException as refusal:
            raise ValueError(refusal.detail) from None
        for count in (1, settings.max_batch):
            self._run(default, ["a"] * count, [""] * count)
        self._batcher = Batcher(
            self._run,
            observe=metrics.batch_texts.observe,
            workers=settings.workers,
            max_batch=settings.max_batch,
            max_delay=settings.max_delay / 1000,
            max_queue=settings.max_queue,
            max_cost=settings.max_cost,
        )
        metrics.queue_texts.set_function(lambda: self._batcher.queued)

    def _run(
        self, work: Work, texts: Sequence[str], target_texts: Sequence[str]
    ) -> Sequence[Outcome[Any]]:
        """Run the model on a batch."""
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
        """Return the work of a request with these search settings.

        Raises:
            HTTPException: 422 if a setting is unknown or invalid.
        """
        if self.classifies and requested:
            raise HTTPException(
                422,
                "settings: expected no search settings for a classifier, got "
                f"{', '.join(map(repr, requested))}; leave them out.",
            )
        if self.classifies:
            return Work("classify")
        settings = self.search_settings(self.search, requested)
        options = tuple(sorted(settings.items()))
        return Work("sentences" if self._splits else "translate", options)

    def search_settings(
        self, defaults: Mapping[str, Any], requested: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the search settings of a request, with defaults for the settings that it omits.

        Raises:
            HTTPException: 422 if a setting is unknown or invalid.
        """
        settings = {**defaults, **requested}
        try:
            beam_size = resolve_settings(settings, SETTING_RULES)["beam_size"]
        except ValueError as error:
            raise HTTPException(422, f"{str(error).removesuffix('.')}; correct it.") from None
        if beam_size > self.settings.max_beam_size:
            raise HTTPException(
                422,
                f"beam_size: expected at most {self.settings.max_beam_size}, got "
                f"{beam_size}; choose a smaller one.",
            )
        return settings

    async def outcomes(
        self, request: Request, work: Work, texts: Sequence[str], target_texts: Sequence[str] = ()
    ) -> list[Outcome[Any]]:
        """Return the outcome of each text.

        Raises:
            HTTPException: 422 if a text is invalid, or the model refuses the settings; 504 if the
                answer is late. See also `Batcher.submit`.
            ClientDisconnect: if the client leaves before the results.
        """
        request.scope["record"].texts = len(texts)
        self.check(texts)
        self.check(target_texts)
        target_texts = target_texts or [""] * len(texts)
        client = client_of(request)
        if work.task != "sentences":
            return await self.answer(request, self.submit(work, texts, target_texts, client))
        road = self.model.text_road(texts, target_texts, self.language)
        return await self.answer(request, self._drive(road, work, client))

    async def _drive(self, road: Road[T], work: Work, client: str) -> T:
        """Run the sentences of a road in the batches of all requests, and return its result."""
        sentences, result = advance(road, None)
        if sentences is not None:
            self._check_sentences(len(sentences.texts))
        while sentences is not None:
            outcomes = await self.submit(work, sentences.texts, sentences.prefixes, client)
            sentences, result = advance(road, outcomes)
        return cast(T, result)

    async def submit(
        self, work: Work, texts: Sequence[str], target_texts: Sequence[str], client: str
    ) -> list[Outcome[Any]]:
        """Return the outcome of each text, which is run as one sentence.

        Raises:
            HTTPException: 422 if the model refuses the settings. See also `Batcher.submit`.
        """
        try:
            return await self._batcher.submit(work, texts, target_texts, client)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None

    async def answer(self, request: Request, work: Awaitable[T]) -> T:
        """Return the result of `work` if it comes in time and the client still waits for it.

        Raises:
            HTTPException: 504 if it is late.
            ClientDisconnect: if the client leaves first.
        """
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await while_connected(request, work)
        except TimeoutError:
            raise late_answer(self.settings.timeout) from None

    async def results(
        self, request: Request, work: Work, texts: Sequence[str], target_texts: Sequence[str] = ()
    ) -> list[Any]:
        """Return the result of each text; see `outcomes`.

        Raises:
            HTTPException: 422 also if the model cannot process a text.
        """
        outcomes = await self.outcomes(request, work, texts, target_texts)
        problems = [
            f"number {number}: {outcome.reason}"
            for number, outcome in enumerate(outcomes, 1)
            if isinstance(outcome, Refused)
        ]
        if problems:
            more = f"; and {len(problems) - 3} more" if problems[3:] else ""
            raise HTTPException(422, f"texts: {'; '.join(problems[:3])}{more}")
        return outcomes

    def _check_sentences(self, count: int) -> None:
        if count > self.settings.max_queue:
            raise HTTPException(
                422,
                f"texts: expected at most {self.settings.max_queue} sentences, got {count}; send "
                "several requests.",
            )

    def check(self, texts: Sequence[str]) -> None:
        """Refuse too many texts, texts that are too long, and strings that are not valid texts.

        Raises:
            HTTPException: 422.
        """
        if len(texts) > self.settings.max_texts:
            raise HTTPException(
                422,
                f"texts: expected at most {self.settings.max_texts}, got {len(texts)}; send "
                "several requests.",
            )
        longest = max(map(len, texts), default=0)
        if longest > self.settings.max_characters:
            raise HTTPException(
                422,
                f"texts: expected at most {self.settings.max_characters} characters each, "
                f"got {longest}; send them in parts.",
            )
        try:
            check_texts(texts)
        except TextError as error:
            raise HTTPException(422, str(error)) from None

    def stop(self) -> None:
        """Run the waiting texts, and end the threads."""
        self._batcher.stop()


def _languages(model: BaseTranslator | BaseClassifier, settings: ServerSettings) -> Languages:
    """Return the languages of the settings or of the model, as clients name them."""
    if settings.source_language is not None or isinstance(model, BaseClassifier):
        return Languages(settings.source_language, settings.target_language)
    return Languages(*[code and short_code(code) for code in model.languages])


def client_of(request: Request) -> str:
    """Return the address of the client, or "" if it is unknown, as with a Unix socket."""
    return request.client.host if request.client else ""
