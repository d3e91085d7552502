"""Translate HTML in requests: the pipeline of documents on the batches of the server."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tfk_transformer.apps.server.batches.work import (
    Work,
    expensive_texts,
    full_queue,
    text_costs,
)
from tfk_transformer.apps.server.served_model import ServedModel, client_of
from tfk_transformer.formats.documents.results import DocumentTranslation
from tfk_transformer.text.outcome import Outcome
from tfk_transformer.text.results import Translation
from tfk_transformer.text.road import Sentences, advance

THREADS = 32  # they parse texts and place markup
TEXTS_PER_REQUEST = 8  # at the same time, so that a large request does not keep others waiting


class HtmlTranslator:
    """Translates HTML for all requests of a server.

    Threads parse the texts and place the markup. The sentences run in batches with other requests.

    Args:
        served: the model.
    """

    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self._open = 0  # texts
        self._threads = ThreadPoolExecutor(THREADS, "documents")

    async def translate(self, request: Request, texts: Sequence[str]) -> list[str]:
        """Return the translation of each text with its markup.

        Raises:
            HTTPException: 422 if a text is invalid, the texts cost too much, the model cannot
                translate them, or a package is missing; 429 if too many texts wait; 504 if the
                translation takes too long. See also `ServedModel.outcomes`.
            ClientDisconnect: if the client leaves before the translations.
        """
        request.scope["record"].texts = len(texts)
        self._served.check(texts)
        limits = self._served.settings
        # The markup counts too: the sentences are submitted in several parts.
        cost = sum(text_costs(self._served.work({}), texts))
        if cost > limits.max_cost:
            raise expensive_texts(limits.max_cost, cost)
        if self._open + len(texts) > limits.max_queue:
            raise full_queue(limits.max_queue, self._open, len(texts), "texts of HTML")
        self._open += len(texts)
        try:
            return await self._served.answer(request, self._translate_all(texts, request))
        except ImportError as error:
            raise HTTPException(422, f"format: expected text, got html; {error}") from None
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        finally:
            self._open -= len(texts)

    async def _translate_all(self, texts: Sequence[str], request: Request) -> list[str]:
        limit = asyncio.Semaphore(TEXTS_PER_REQUEST)
        tasks = [
            asyncio.create_task(self._translate(text, client_of(request), limit)) for text in texts
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()  # if another text failed

    async def _translate(self, text: str, client: str, limit: asyncio.Semaphore) -> str:
        """Drive the road of a document: its steps run in threads, its sentences in batches."""
        loop = asyncio.get_running_loop()
        road = self._served.model.document_road(text, "html", language=self._served.language)
        async with limit:
            sentences, result = await loop.run_in_executor(self._threads, advance, road, None)
            while sentences is not None:
                outcomes = await self._outcomes(sentences, client)
                sentences, result = await loop.run_in_executor(
                    self._threads, advance, road, outcomes
                )
        return cast(DocumentTranslation, result).text

    async def _outcomes(self, sentences: Sentences, client: str) -> list[Outcome[Translation]]:
        """Run sentences in the batches of all requests."""
        settings = dict(self._served.work({}).settings)
        if sentences.attention:
            settings["attention"] = True
        work = Work("sentences", tuple(sorted(settings.items())))
        # The documents of a request fill at most half of the queue.
        size = max(1, self._served.settings.max_queue // (2 * TEXTS_PER_REQUEST))
        outcomes: list[Outcome[Translation]] = []
        for first in range(0, len(sentences.texts), size):
            texts = sentences.texts[first : first + size]
            prefixes = sentences.prefixes[first : first + size]
            outcomes += await self._served.submit(work, texts, prefixes, client)
        return outcomes
