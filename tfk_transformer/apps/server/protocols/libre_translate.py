"""The LibreTranslate API: /translate, /detect, /languages and /frontend/settings."""

import asyncio
import contextlib
import email
import functools
import urllib.parse
from collections.abc import Sequence
from email.message import Message
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tfk_transformer.apps.server.bodies import (
    Body,
    InvalidValue,
    Items,
    answer,
    parse_body,
    read_body,
    to_json,
)
from tfk_transformer.apps.server.middleware import check_key, header_key
from tfk_transformer.apps.server.request_queue import Work
from tfk_transformer.apps.server.routes import JSON, DescribedRoute
from tfk_transformer.apps.server.served_model import ServedModel
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.config.words import shorten
from tfk_transformer.inference.conveyor import document_road
from tfk_transformer.text.languages import Languages
from tfk_transformer.text.outcome import Outcome
from tfk_transformer.text.results import Translation
from tfk_transformer.text.road import Sentences

UNKNOWN = "und"  # ISO 639-2: undetermined
URL_ENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
BODY_TYPES = (JSON, URL_ENCODED, MULTIPART)
MAX_FIELDS = 1000
MAX_FIELD_HEAD = 1000  # bytes of the headers of a field
TEXTS_PER_REQUEST = 8  # at the same time, so that a large request does not keep others waiting


class KeyedBody(Body):
    """A body that may contain the API key."""

    q: str | Items[str]
    api_key: str | None = None

    @property
    def texts(self) -> list[str]:
        """The texts; a single one needs no list."""
        return [self.q] if isinstance(self.q, str) else self.q


class DetectRequest(KeyedBody):
    """A text whose language is asked for."""


class TranslateRequest(KeyedBody):
    """Texts to translate."""

    source: str
    target: str
    format: str | None = "text"
    alternatives: int | str | None = 0


AnyKeyedBody = TypeVar("AnyKeyedBody", bound=KeyedBody)


def libre_translate_routes(served: ServedModel) -> list[DescribedRoute]:
    """Return the routes of the protocol."""
    settings = served.settings
    source, target = (language or UNKNOWN for language in served.languages)
    # No language is detected: a server with one source language answers this language.
    detected = {"confidence": 0 if source == UNKNOWN else 100, "language": source}

    async def translate(request: Request) -> Response:
        """Translate one text or several."""
        payload = await _read_keyed_body(request, served, TranslateRequest)
        _check_request(payload, served.languages)
        texts = payload.texts
        alternatives = _alternatives(payload, settings)
        if payload.format == "html":
            translations = await _translate_html(served, request, texts)
            others: list[list[str]] = [[] for _ in texts]  # as in LibreTranslate
            confidences: list[float | None] = [None] * len(texts)
        else:
            n_best = alternatives + 1
            beam_size = max(n_best, served.search.get("beam_size", SearchSettings.beam_size))
            requested = {"n_best": n_best, "beam_size": beam_size} if alternatives else {}
            results = await served.results(request, served.work(requested), texts)
            translations = [result.text for result in results]
            confidences = [result.confidence for result in results]
            others = [[other.text for other in result.hypotheses[1:]] for result in results]
        content: dict[str, Any] = {"translatedText": translations}
        if alternatives:
            content["alternatives"] = others
        if served.calibration is not None:
            content["confidence"] = confidences
        if payload.source == "auto":
            content["detectedLanguage"] = [detected] * len(texts)
        if isinstance(payload.q, str):
            content = {name: values[0] for name, values in content.items()}
        return answer(content)

    async def detect(request: Request) -> Response:
        """Return the source language of the model; no language is detected."""
        payload = await _read_keyed_body(request, served, DetectRequest)
        served.check(payload.texts)
        return answer([detected])

    async def languages(request: Request) -> Response:
        """List the languages that the server knows."""
        targets: dict[str, list[str]] = {target: [], source: [target]}
        codes = dict.fromkeys((source, target))
        return answer([{"code": code, "name": code, "targets": targets[code]} for code in codes])

    async def frontend_settings(request: Request) -> Response:
        """Describe the limits and languages for user interfaces."""
        needs_key = settings.api_key is not None
        return answer(
            {
                "apiKeys": needs_key,
                "charLimit": settings.max_characters,
                "filesTranslation": False,
                "frontendTimeout": 500,  # milliseconds between the last keystroke and the request
                "keyRequired": needs_key,
                "language": {
                    "source": {"code": source, "name": source},
                    "target": {"code": target, "name": target},
                },
                "suggestions": False,
                "supportedFilesFormat": [],
            }
        )

    array = {"description": "The languages.", "content": {JSON: {"schema": {"type": "array"}}}}
    return [
        DescribedRoute("POST", "/translate", translate, TranslateRequest, body_types=BODY_TYPES),
        DescribedRoute(
            "POST", "/detect", detect, DetectRequest, body_types=BODY_TYPES, responses={200: array}
        ),
        DescribedRoute("GET", "/languages", languages, responses={200: array}),
        DescribedRoute("GET", "/frontend/settings", frontend_settings, errors=(500, 503)),
    ]


def _check_request(payload: TranslateRequest, languages: Languages) -> None:
    """Refuse languages other than the model's, and unknown formats."""
    for name, expected, got in (
        ("source", languages.source, payload.source),
        ("target", languages.target, payload.target),
    ):
        if expected is not None and got != expected and (name, got) != ("source", "auto"):
            raise InvalidValue(
                f"{name}: expected {expected}, the model's language, got {shorten(got)}; GET "
                "/languages lists the languages."
            )
    if payload.format not in (None, "", "text", "html"):
        raise InvalidValue(
            f"format: expected text or html, got {shorten(payload.format)}; correct it."
        )


def _alternatives(payload: TranslateRequest, settings: ServerSettings) -> int:
    maximum = settings.max_beam_size - 1
    count = -1
    with contextlib.suppress(ValueError):
        count = int(payload.alternatives or 0)
    if not 0 <= count <= maximum:
        raise InvalidValue(
            f"alternatives: expected a number from 0 to {maximum}, got "
            f"{shorten(str(payload.alternatives))}; correct it."
        )
    return count


async def _read_keyed_body(
    request: Request, served: ServedModel, model: type[AnyKeyedBody]
) -> AnyKeyedBody:
    """Read a body as JSON or as a form of HTML, and check the API key."""
    body = await read_body(request, served.settings)
    header = Message()
    header["Content-Type"] = request.headers.get("content-type", JSON)
    # curl -d sends JSON with the content type of a form.
    is_form = header.get_content_type() in (URL_ENCODED, MULTIPART)
    if is_form and not body.lstrip().startswith(b"{"):
        body = await served.parse(request, body, functools.partial(_form_as_json, header))
    payload = await served.parse(request, body, functools.partial(parse_body, model))
    check_key(served.settings, header_key(request) or payload.api_key or "")
    return payload


def _form_as_json(header: Message, body: bytes) -> bytes:
    """Return the fields of a form as JSON. A repeated `q` becomes a list."""
    try:
        if header.get_content_type() == MULTIPART:
            fields = _multipart_fields(body, header.get_boundary() or "")
        else:
            fields = urllib.parse.parse_qs(
                body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
            )
    except ValueError:
        raise HTTPException(
            400, "body: expected a form in UTF-8, got invalid fields; correct them, or send JSON."
        ) from None
    values: dict[str, Any] = {
        name: items if name == "q" and len(items) > 1 else items[-1]
        for name, items in fields.items()
    }
    return to_json(values).encode()


def _multipart_fields(body: bytes, boundary: str) -> dict[str, list[str]]:
    """Return the values of the fields of a multipart form by name, or raise ValueError."""
    _, *parts, end = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), MAX_FIELDS + 1)
    if not (boundary and end.startswith(b"--")):
        raise ValueError("expected the boundary and at most 1,000 fields")
    fields: dict[str, list[str]] = {}
    for part in parts:
        head, separator, value = part.partition(b"\r\n\r\n")
        name: Any = None
        if separator and len(head) <= MAX_FIELD_HEAD:
            header = email.message_from_bytes(head.lstrip())
            name = header.get_param("name", header="content-disposition")
        if not isinstance(name, str):  # a tuple if it names its own encoding
            raise ValueError("expected a name")
        fields.setdefault(name, []).append(value.decode("utf-8"))
    return fields


async def _translate_html(served: ServedModel, request: Request, texts: Sequence[str]) -> list[str]:
    """Return the translation of each text with its markup; see `ServedModel.outcomes`.

    Another process parses the texts, and their sentences run in the batches of all.
    """
    request.scope["texts"] = len(texts)
    served.check(texts)
    limit = asyncio.Semaphore(TEXTS_PER_REQUEST)

    async def translate_all() -> list[str]:
        tasks = [
            asyncio.create_task(_translate_document(served, request, text, limit)) for text in texts
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()  # if another text failed

    try:
        # The markup counts too: the sentences are submitted in several parts.
        with served.preparing(request, served.work({}), texts):
            return await served.answer(request, translate_all())
    except ImportError:  # its message may contain a path of the server
        raise InvalidValue(
            "format: expected text, got html, which needs tfk-transformer[documents] on the server."
        ) from None
    except ValueError as error:
        raise InvalidValue(str(error)) from None


async def _translate_document(
    served: ServedModel, request: Request, text: str, limit: asyncio.Semaphore
) -> str:
    make = functools.partial(document_road, text, "html", served.language, served.model.max_length)

    async def submit(sentences: Sentences) -> list[Outcome[Translation]]:
        settings = dict(served.work({}).settings)
        if sentences.attention:
            settings["attention"] = True
        work = Work("sentences", tuple(sorted(settings.items())))
        # The documents of a request fill at most a quarter of the queue.
        size = max(1, served.settings.max_queue // (4 * TEXTS_PER_REQUEST))
        outcomes: list[Outcome[Translation]] = []
        for first in range(0, len(sentences.texts), size):
            part = slice(first, first + size)
            outcomes += await served.submit(
                request, work, sentences.texts[part], sentences.prefixes[part]
            )
        return outcomes

    async with limit:
        return (await served.drive_long(request, make, submit)).text
