"""The LibreTranslate API: /translate, /detect, /languages and /frontend/settings."""

import contextlib
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tfk_transformer.apps.server.bodies import answer
from tfk_transformer.apps.server.protocols.html_translation import HtmlTranslator
from tfk_transformer.apps.server.protocols.libre_translate_bodies import (
    BODY_TYPES,
    DetectRequest,
    TranslateRequest,
    read_keyed_body,
)
from tfk_transformer.apps.server.routes import JSON, DescribedRoute
from tfk_transformer.apps.server.served_model import ServedModel
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.config.words import shorten
from tfk_transformer.text.languages import Languages

UNKNOWN = "und"  # ISO 639-2: undetermined
LIBRE_TRANSLATE_FORMATS = (None, "", "text", "html")


def libre_translate_routes(served: ServedModel) -> list[DescribedRoute]:
    """Return the routes of the protocol."""
    settings = served.settings
    html_translator = HtmlTranslator(served)
    source, target = (language or UNKNOWN for language in served.languages)
    # No language is detected: a server with one source language answers this language.
    detected = {"confidence": 0 if source == UNKNOWN else 100, "language": source}

    frontend = _frontend_settings(settings, source, target)

    async def translate(request: Request) -> Response:
        """Translate one text or several."""
        payload = await read_keyed_body(request, settings, TranslateRequest)
        _check_request(payload, served.languages)
        texts = [payload.q] if isinstance(payload.q, str) else payload.q
        alternatives = _alternatives(payload, settings)
        if payload.format == "html":
            translations = await html_translator.translate(request, texts)
            others: list[list[str]] = [[] for _ in texts]  # as in LibreTranslate
            confidences: list[float | None] = [None] * len(texts)
        else:
            work = served.work(_search_settings(alternatives, served.search))
            results = await served.results(request, work, texts)
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
        payload = await read_keyed_body(request, settings, DetectRequest)
        served.check([payload.q] if isinstance(payload.q, str) else payload.q)
        return answer([detected])

    async def languages(request: Request) -> Response:
        """List the languages that the server knows."""
        targets: dict[str, list[str]] = {target: [], source: [target]}
        codes = dict.fromkeys((source, target))
        return answer([{"code": code, "name": code, "targets": targets[code]} for code in codes])

    async def frontend_settings(request: Request) -> Response:
        """Describe the limits and languages for user interfaces."""
        return answer(frontend)

    array = {"description": "The languages.", "content": {JSON: {"schema": {"type": "array"}}}}
    return [
        DescribedRoute(
            "POST", "/translate", translate, body=TranslateRequest, body_types=BODY_TYPES
        ),
        DescribedRoute(
            "POST",
            "/detect",
            detect,
            body=DetectRequest,
            body_types=BODY_TYPES,
            responses={200: array},
        ),
        DescribedRoute("GET", "/languages", languages, responses={200: array}),
        DescribedRoute("GET", "/frontend/settings", frontend_settings, errors=(500, 503)),
    ]


def _frontend_settings(settings: ServerSettings, source: str, target: str) -> dict[str, Any]:
    """Return the settings that LibreTranslate has for user interfaces."""
    needs_key = settings.api_key is not None
    return {
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


def _check_request(payload: TranslateRequest, languages: Languages) -> None:
    """Refuse languages other than the model's, and unknown formats.

    Raises:
        HTTPException: 422.
    """
    for name, expected, got in (
        ("source", languages.source, payload.source),
        ("target", languages.target, payload.target),
    ):
        if expected is not None and got != expected and (name, got) != ("source", "auto"):
            raise HTTPException(
                422,
                f"{name}: expected {expected}, the model's language, got {shorten(got)}; GET "
                "/languages lists the languages.",
            )
    if payload.format not in LIBRE_TRANSLATE_FORMATS:
        raise HTTPException(
            422, f"format: expected text or html, got {shorten(payload.format)}; correct it."
        )


def _alternatives(payload: TranslateRequest, settings: ServerSettings) -> int:
    """Return the requested number of alternatives.

    Raises:
        HTTPException: 422 if it is not a number, negative or too large.
    """
    maximum = settings.max_beam_size - 1
    count = -1
    with contextlib.suppress(ValueError):
        count = int(payload.alternatives or 0)
    if not 0 <= count <= maximum:
        raise HTTPException(
            422,
            f"alternatives: expected a number from 0 to {maximum}, got "
            f"{shorten(str(payload.alternatives))}; correct it.",
        )
    return count


def _search_settings(alternatives: int, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the search settings for a number of alternatives, with the defaults of requests."""
    if not alternatives:
        return {}
    n_best = alternatives + 1
    beam_size = defaults.get("beam_size", SearchSettings.beam_size)
    return {"n_best": n_best, "beam_size": max(n_best, beam_size)}
