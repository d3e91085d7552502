"""Translate HTML in requests: the pipeline of documents on the batches of the server."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tfk_transformer.apps.server.batches.disconnection import while_connected
from tfk_transformer.apps.server.batches.work import (
    Outcome,
    TextProblem,
    Work,
    expensive_texts,
    full_queue,
    late_answer,
    text_costs,
)
from tfk_transformer.apps.server.served_model import ServedModel, client_of
from tfk_transformer.inference.document_translation import translate_document
from tfk_transformer.text.outcome import TextError
from tfk_transformer.text.results import Translation

THREADS = 32  # most of the time, they wait for the model
THREADS_PER_REQUEST = 8  # so that a request with many texts does not keep others waiting


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
        documents = _Documents(self._served, self._threads, client_of(request))
        self._open += len(texts)
        try:
            async with asyncio.timeout(limits.timeout):
                return await while_connected(request, documents.translate(texts))
        except TimeoutError:
            raise late_answer(limits.timeout) from None
        except ImportError as error:
            raise HTTPException(422, f"format: expected text, got html; {error}") from None
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        finally:
            self._open -= len(texts)
            documents.end()


class _Documents:
    """The documents of one request.

    Args:
        served: the model.
        threads: the threads of all requests.
        client: who sent the request.
    """

    def __init__(self, served: ServedModel, threads: ThreadPoolExecutor, client: str) -> None:
        self._served = served
        self._client = client
        self._threads = threads
        self._limit = asyncio.Semaphore(THREADS_PER_REQUEST)
        self._loop = asyncio.get_running_loop()
        self._settings = served.work({}).settings
        self._submissions: list[Future[list[Outcome]]] = []
        self._ended = False

    async def translate(self, texts: Sequence[str]) -> list[str]:
        """Return the translation of each document."""
        return await asyncio.gather(*map(self._translate, texts))

    async def _translate(self, text: str) -> str:
        language = self._served.language
        async with self._limit:
            if self._ended:  # another text failed
                raise TimeoutError
            translated = await self._loop.run_in_executor(
                self._threads,
                lambda: translate_document(
                    self._translate_sentences, text, "html", language, False, None
                ),
            )
        return translated.text

    def _translate_sentences(self, sentences: Sequence[str], attention: bool) -> list[Translation]:
        """Translate sentences in the batches of the server.

        Raises:
            TextError: if a sentence is too long. It contains the other translations.
        """
        settings = [*self._settings, ("attention", True)] if attention else self._settings
        work = Work("translate", tuple(sorted(settings)))
        # The documents of a request fill at most half of the queue.
        size = max(1, self._served.settings.max_queue // (2 * THREADS_PER_REQUEST))
        outcomes: list[Outcome] = []
        for first in range(0, len(sentences), size):
            outcomes += self._wait(work, sentences[first : first + size])
        # A sentence that the model translated in parts has no attention: the document divides it.
        too_long = {
            index: "too long"
            for index, outcome in enumerate(outcomes)
            if isinstance(outcome, TextProblem) or (attention and outcome.sentences)
        }
        if too_long:
            results = {i: outcomes[i] for i in range(len(outcomes)) if i not in too_long}
            raise TextError("texts", "expected sentences that fit the model", too_long, results)
        return outcomes

    def _wait(self, work: Work, sentences: Sequence[str]) -> list[Outcome]:
        """Return the outcomes of sentences. This method blocks its thread."""
        if self._ended:
            raise TimeoutError
        run = self._served.submit(work, sentences, [""] * len(sentences), self._client)
        submission = asyncio.run_coroutine_threadsafe(run, self._loop)
        self._submissions.append(submission)
        return submission.result(self._served.settings.timeout + 1)  # the loop may have ended

    def end(self) -> None:
        """End the threads of a request that is answered or abandoned."""
        self._ended = True
        for submission in self._submissions:
            submission.cancel()
