"""The LibreTranslate API: /translate and /languages."""

import urllib.parse
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.config.words import shorten
from tfk_transformer.server.answers import answer, to_json
from tfk_transformer.server.bodies import Body, parse_body, read_body
from tfk_transformer.server.middleware import KEY_IN_BODY, check_key
from tfk_transformer.server.routes import JSON, DescribedRoute
from tfk_transformer.server.served_model import ServedModel
from tfk_transformer.server.settings import ServerSettings

FORM = "application/x-www-form-urlencoded"
UNKNOWN = "und"  # ISO 639-2: undetermined
LIBRE_TRANSLATE_FORMATS = ("", "text")


class TranslateRequest(Body):
    """Texts to translate."""

    q: str | list[str]
    source: str
    target: str
    format: str = "text"
    alternatives: int = 0
    api_key: str = ""


def libre_translate_routes(served: ServedModel) -> list[DescribedRoute]:
    """Return the routes of the protocol."""
    settings = served.settings
    source = settings.source_language or UNKNOWN
    target = settings.target_language or UNKNOWN

    async def translate(request: Request) -> Response:
        """Translate one text or several."""
        body = await read_body(request, settings)
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        # curl -d sends JSON with the content type of a form.
        if content_type == FORM and not body.lstrip().startswith(b"{"):
            payload = _parse_form(body)
        else:
            payload = parse_body(TranslateRequest, body)
        check_key(settings, request, payload.api_key)
        _check_request(payload, settings)
        texts = [payload.q] if isinstance(payload.q, str) else payload.q
        work = served.work(_search_settings(payload, settings))
        translations = await served.results(request, work, texts)
        content: dict[str, Any] = {"translatedText": [result.text for result in translations]}
        if payload.alternatives:
            content["alternatives"] = [
                [hypothesis.text for hypothesis in result.hypotheses[1:]] for result in translations
            ]
        if isinstance(payload.q, str):
            content = {name: values[0] for name, values in content.items()}
        return answer(content)

    async def languages(request: Request) -> Response:
        """List the languages that the server knows."""
        targets: dict[str, list[str]] = {target: [], source: [target]}
        codes = dict.fromkeys((source, target))
        return answer([{"code": code, "name": code, "targets": targets[code]} for code in codes])

    array = {"description": "The languages.", "content": {JSON: {"schema": {"type": "array"}}}}
    return [
        DescribedRoute(
            "POST", KEY_IN_BODY, translate, body=TranslateRequest, body_types=(JSON, FORM)
        ),
        DescribedRoute("GET", "/languages", languages, responses={200: array}),
    ]


def _parse_form(body: bytes) -> TranslateRequest:
    """Parse the body of an HTML form.

    Raises:
        HTTPException: 400 if the body is not a form, 422 if a field is missing or wrong.
    """
    try:
        fields = urllib.parse.parse_qs(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=1000
        )
        values: dict[str, Any] = {
            name: items if name == "q" and len(items) > 1 else items[-1]
            for name, items in fields.items()
        }
        if "alternatives" in values:
            values["alternatives"] = int(values["alternatives"])
    except ValueError:
        raise HTTPException(
            400,
            "body: expected a form in UTF-8, got invalid fields; correct them, or send JSON.",
        ) from None
    return parse_body(TranslateRequest, to_json(values).encode())


def _check_request(payload: TranslateRequest, settings: ServerSettings) -> None:
    """Refuse languages other than the model's, and formats other than text.

    Raises:
        HTTPException: 422.
    """
    for name, expected, got in (
        ("source", settings.source_language, payload.source),
        ("target", settings.target_language, payload.target),
    ):
        if expected is not None and got != expected and (name, got) != ("source", "auto"):
            raise HTTPException(
                422,
                f"{name}: expected {expected}, the model's language, got {shorten(got)}; GET "
                "/languages lists the languages.",
            )
    if payload.format not in LIBRE_TRANSLATE_FORMATS:
        raise HTTPException(
            422,
            f"format: expected text, got {shorten(payload.format)}; remove the markup and send "
            "text.",
        )


def _search_settings(payload: TranslateRequest, settings: ServerSettings) -> dict[str, Any]:
    """Return the search settings for the requested number of alternatives.

    Raises:
        HTTPException: 422 if the number is negative or too large.
    """
    if not payload.alternatives:
        return {}
    maximum = settings.max_beam_size - 1
    if not 0 <= payload.alternatives <= maximum:
        raise HTTPException(
            422,
            f"alternatives: expected a number from 0 to {maximum}, got {payload.alternatives}; "
            "correct it.",
        )
    n_best = payload.alternatives + 1
    beam_size = settings.search.get("beam_size", SearchSettings.beam_size)
    return {"n_best": n_best, "beam_size": max(n_best, beam_size)}
