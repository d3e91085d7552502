"""The interface of LibreTranslate: /translate and /languages."""

import urllib.parse
from typing import Any

from fastapi import APIRouter, Request, Response

from tfk_transformer.server.answers import answer, to_json
from tfk_transformer.server.bodies import (
    EVERY_REFUSAL,
    Body,
    body_of,
    openapi_body,
    openapi_errors,
    parse_body,
)
from tfk_transformer.server.middleware import KEY_IN_BODY, check_key
from tfk_transformer.server.refusals import RequestError
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


def routes(served: ServedModel) -> APIRouter:
    """Return the paths of the protocol."""
    router, settings = APIRouter(tags=["LibreTranslate"]), served.settings
    source, target = settings.source_language or UNKNOWN, settings.target_language or UNKNOWN

    @router.post(
        KEY_IN_BODY, openapi_extra=openapi_body(TranslateRequest, FORM), responses=EVERY_REFUSAL
    )
    async def translate(request: Request) -> Response:
        """Translate one text or several."""
        body = await body_of(request, settings)
        is_form = request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM
        # curl -d sends JSON as a form.
        given = (
            _of_form(body)
            if is_form and not body.lstrip().startswith(b"{")
            else parse_body(TranslateRequest, body)
        )
        check_key(settings, request, given.api_key)
        _check_languages(given, settings)
        texts = [given.q] if isinstance(given.q, str) else given.q
        found = await served.results(request, served.work(_search(given, served)), texts)
        others = [
            [hypothesis.text for hypothesis in translation.hypotheses[1:]] for translation in found
        ]
        content: dict[str, Any] = {"translatedText": [translation.text for translation in found]}
        if given.alternatives:
            content["alternatives"] = others
        return answer(
            {name: values[0] for name, values in content.items()}
            if isinstance(given.q, str)
            else content
        )

    @router.get("/languages", responses=openapi_errors(503))
    async def languages() -> list[dict[str, Any]]:
        """Name the languages, as far as the server knows them."""
        targets: dict[str, list[str]] = {target: [], source: [target]}
        return [
            {"code": code, "name": code, "targets": targets[code]}
            for code in dict.fromkeys((source, target))
        ]

    return router


def _of_form(body: bytes) -> TranslateRequest:
    """Read the body of an HTML form.

    Raises:
        Refusal: 400 if it is no form, 422 if a field is missing or wrong.
    """
    try:
        fields = urllib.parse.parse_qs(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=1000
        )
        found: dict[str, Any] = {
            name: values if name == "q" and len(values) > 1 else values[-1]
            for name, values in fields.items()
        }
        if "alternatives" in found:
            found["alternatives"] = int(found["alternatives"])
    except ValueError:
        raise RequestError(
            400,
            "body: expected the fields of a form in UTF-8, got others; correct them, or send JSON.",
        ) from None
    return parse_body(TranslateRequest, to_json(found).encode())


def _check_languages(given: TranslateRequest, settings: ServerSettings) -> None:
    """Refuse other languages than the model's, and other formats than text.

    Raises:
        Refusal: 422.
    """
    for name, wanted, got in (
        ("source", settings.source_language, given.source),
        ("target", settings.target_language, given.target),
    ):
        if wanted is not None and got != wanted and (name, got) != ("source", "auto"):
            raise RequestError(
                422,
                (
                    f"{name}: expected {wanted}, the model's language, got another; GET /languages "
                    "lists them."
                ),
            )
    if given.format not in LIBRE_TRANSLATE_FORMATS:
        raise RequestError(
            422, "format: expected text, got another; remove the markup and send text."
        )


def _search(given: TranslateRequest, served: ServedModel) -> dict[str, Any]:
    """Return the search settings for the number of alternatives.

    Raises:
        Refusal: 422.
    """
    if not given.alternatives:
        return {}
    most = served.settings.max_beam_size - 1
    if not 0 <= given.alternatives <= most:
        raise RequestError(
            422,
            (
                f"alternatives: expected a number from 0 to {most}, got {given.alternatives}; "
                "correct "
                "it."
            ),
        )
    wanted = given.alternatives + 1
    return {"n_best": wanted, "beam_size": max(wanted, served.beam_size)}
