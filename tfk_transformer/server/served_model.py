"""The model that the server serves: checks of requests, and the batches of all protocols."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request

from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.inference.interface import LoadedModel
from tfk_transformer.inference.text_batches import check_texts
from tfk_transformer.inference.text_errors import TextError
from tfk_transformer.server.batching import Batcher, Outcome, TextProblem, Work
from tfk_transformer.server.metrics import Metrics
from tfk_transformer.server.refusals import RequestError
from tfk_transformer.server.settings import ServerSettings

NO_SCORE = -1e9  # of a hypothesis that the search did not find, as in exported files


class ServedModel:
    """A model behind a queue.

    Args:
        model: a translator or a classifier.
        settings: of the server.
        metrics: where batches are counted.

    Raises:
        ValueError: if the search settings of the server do not fit the model.
    """

    def __init__(self, model: LoadedModel, settings: ServerSettings, metrics: Metrics) -> None:
        self.model, self.settings = model, settings
        self.classifies = hasattr(model, "labels")
        self._warm_up()
        limits = settings.model_dump(include={"workers", "max_batch", "max_delay", "max_queue"})
        self._batcher = Batcher(self._run, observe=metrics.batch_texts.observe, **limits)
        metrics.queue_texts.set_function(lambda: self._batcher.queued)

    def _warm_up(self) -> None:
        """Run one text and a whole batch, so that the first request does not wait for what the
        model prepares.
        """
        try:
            default = self.work({})
        except RequestError as refusal:
            raise ValueError(refusal.reason) from None
        for count in (1, self.settings.max_batch):
            self._run(default, ["a"] * count, [""] * count)

    def _run(self, work: Work, texts: Sequence[str], others: Sequence[str]) -> Sequence[Any]:
        """Run the model on a batch."""
        if work.kind == "classify":
            return self.model.classify(texts, batch_size=self.settings.max_batch)
        if work.kind == "score":
            return self.model.score_tokens(texts, others, batch_size=self.settings.max_batch)
        forced = others if any(others) else None
        return self.model.translate(
            texts, batch_size=self.settings.max_batch, prefixes=forced, **dict(work.settings)
        )

    @property
    def beam_size(self) -> int:
        """The beam size of requests that do not give one."""
        return int(self.settings.search.get("beam_size", SearchSettings().beam_size))

    def work(self, given: Mapping[str, Any]) -> Work:
        """Return what to do with texts for these search settings.

        Raises:
            Refusal: 422 for settings that no model has.
        """
        if self.classifies:
            if given:
                raise RequestError(
                    422,
                    (
                        "settings: expected none for a classifier, got "
                        f"{', '.join(map(repr, given))}; leave them out."
                    ),
                )
            return Work("classify")
        try:
            every = {**self.settings.search, **given}
            checked = SearchSettings(**every)
        except ValueError as error:
            raise RequestError(422, f"{error}; correct it.") from None
        if checked.beam_size > self.settings.max_beam_size:
            reason = (
                f"beam_size: expected at most {self.settings.max_beam_size}, got "
                f"{checked.beam_size}; choose a smaller one."
            )
            raise RequestError(422, reason)
        return Work("translate", tuple((name, getattr(checked, name)) for name in sorted(every)))

    async def outcomes(
        self, request: Request, work: Work, texts: Sequence[str], others: Sequence[str] = ()
    ) -> list[Outcome]:
        """Return the result of each text, or its `TextProblem`.

        Args:
            request: the request, in whose record the texts are counted.
            work: what to do.
            texts: the texts.
            others: for each text, its prefix or target; none: all are "".

        Raises:
            Refusal: 422 if a text is none, or the model refuses the settings; and see
                `Batcher.submit`.
        """
        request.scope["record"].texts = len(texts)
        self.check(texts)
        self.check(others)
        try:
            return await self._batcher.submit(
                work, texts, others or [""] * len(texts), self.settings.timeout
            )
        except ValueError as error:
            raise RequestError(422, str(error)) from None

    async def results(
        self, request: Request, work: Work, texts: Sequence[str], others: Sequence[str] = ()
    ) -> list[Any]:
        """Return the result of each text; see `outcomes`.

        Raises:
            Refusal: 422 also if the model cannot process a text.
        """
        found = await self.outcomes(request, work, texts, others)
        if problems := [
            f"number {i + 1}: {outcome.reason}"
            for i, outcome in enumerate(found)
            if isinstance(outcome, TextProblem)
        ]:
            raise RequestError(
                422,
                f"texts: {'; '.join(problems[:3])}"
                + (f"; and {len(problems) - 3} more" if problems[3:] else ""),
            )
        return found

    def check(self, texts: Sequence[str]) -> None:
        """Refuse too many or too long texts, and strings that are no texts.

        Raises:
            Refusal: 422.
        """
        if len(texts) > self.settings.max_texts:
            raise RequestError(
                422,
                (
                    f"texts: expected at most {self.settings.max_texts}, got {len(texts)}; send "
                    "several requests."
                ),
            )
        longest = max(map(len, texts), default=0)
        if longest > self.settings.max_characters:
            reason = (
                f"texts: expected at most {self.settings.max_characters} characters each, "
                f"got {longest}; split them into sentences."
            )
            raise RequestError(422, reason)
        try:
            check_texts(texts)
        except TextError as error:
            raise RequestError(422, str(error)) from None

    def stop(self) -> None:
        """Run what waits, and end the threads."""
        self._batcher.stop()
