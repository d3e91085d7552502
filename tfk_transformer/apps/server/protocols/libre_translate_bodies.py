"""The bodies of the LibreTranslate API: JSON, and both types of HTML forms."""

import email
import urllib.parse
from email.message import Message
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tfk_transformer.apps.server.bodies import Body, parse_body, read_body, to_json
from tfk_transformer.apps.server.middleware import check_key, header_key
from tfk_transformer.apps.server.routes import JSON
from tfk_transformer.apps.server.settings import ServerSettings

URL_ENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
BODY_TYPES = (JSON, URL_ENCODED, MULTIPART)
MAX_FIELDS = 1000
MAX_FIELD_HEAD = 1000  # bytes of the headers of a field


class KeyedBody(Body):
    """A body that may contain the API key."""

    q: str | list[str]
    api_key: str | None = None


class DetectRequest(KeyedBody):
    """A text whose language is asked for."""


class TranslateRequest(KeyedBody):
    """Texts to translate."""

    source: str
    target: str
    format: str | None = "text"
    alternatives: int | str | None = 0


AnyKeyedBody = TypeVar("AnyKeyedBody", bound=KeyedBody)


async def read_keyed_body(
    request: Request, settings: ServerSettings, model: type[AnyKeyedBody]
) -> AnyKeyedBody:
    """Read the body of a request as an instance of `model`, and check the API key.

    Raises:
        HTTPException: 400 if the body is neither JSON nor a form, 401 without the API key, 422 if
            the body does not fit `model`. See also `read_body`.
    """
    body = await read_body(request, settings)
    header = Message()
    header["Content-Type"] = request.headers.get("content-type", JSON)
    # curl -d sends JSON with the content type of a form.
    if header.get_content_type() in (URL_ENCODED, MULTIPART) and not body.lstrip().startswith(b"{"):
        body = _form_as_json(body, header)
    payload = parse_body(model, body)
    check_key(settings, header_key(request) or payload.api_key or "")
    return payload


def _form_as_json(body: bytes, header: Message) -> bytes:
    """Return the fields of a form as JSON. A repeated `q` becomes a list.

    Raises:
        HTTPException: 400 if the body is not such a form.
    """
    try:
        if header.get_content_type() == MULTIPART:
            fields = _multipart_fields(body, header.get_boundary() or "")
        else:
            fields = urllib.parse.parse_qs(
                body.decode("utf-8"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=MAX_FIELDS,
            )
    except ValueError:
        raise HTTPException(
            400,
            "body: expected a form in UTF-8, got invalid fields; correct them, or send JSON.",
        ) from None
    values: dict[str, Any] = {
        name: items if name == "q" and len(items) > 1 else items[-1]
        for name, items in fields.items()
    }
    return to_json(values).encode()


def _multipart_fields(body: bytes, boundary: str) -> dict[str, list[str]]:
    """Return the values of the fields of a multipart form, by name.

    Raises:
        ValueError: if the form is malformed, or has too many fields.
    """
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
