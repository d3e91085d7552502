"""Routes that describe themselves, and the OpenAPI page generated from them."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tfk_transformer.apps.server.bodies import Body
from tfk_transformer.constants import __version__

JSON = "application/json"
JSON_OBJECT = {JSON: {"schema": {"type": "object"}}}
# Error responses by status.
REASONS = {
    400: "The body is not JSON, or does not fit the protocol.",
    401: "The API key is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is compressed.",
    422: "A value is missing or wrong, or the model cannot process a text.",
    429: "Too many texts are waiting.",
    431: "The head of the request is too large.",
    500: "An error of the server.",
    503: "The server is shutting down.",
    504: "The model took too long.",
}
ERROR_SCHEMA = {
    "title": "ErrorAnswer",
    "description": "The answer to a request that is refused.",
    "type": "object",
    "properties": {"error": {"title": "Error", "type": "string"}},
    "required": ["error"],
}
ERROR_RESPONSE = {"content": {JSON: {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}}


class DescribedRoute(Route):
    """A route with one method, and its OpenAPI description. GET includes HEAD.

    The name and the docstring of the endpoint are part of the description, `operation`. `schemas`
    contains the schemas that the body refers to, by name.
    """

    def __init__(
        self,
        method: str,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        body: type[Body] | None = None,
        *,
        body_types: Sequence[str] = (JSON,),
        errors: Sequence[int] | None = None,
        responses: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(path, endpoint)
        self.method = method
        self.methods = {"GET", "HEAD"} if method == "GET" else {method}
        if errors is None:
            errors = (401, 500, 503) if body is None else [*REASONS]
        self.operation: dict[str, Any] = {
            "summary": self.name.replace("_", " ").title(),
            "description": endpoint.__doc__,
            "operationId": re.sub(r"\W", "_", f"{self.name}{path}_{method.lower()}"),
            "responses": {
                200: {"description": "The answer.", "content": JSON_OBJECT},
                **{status: ERROR_RESPONSE | {"description": REASONS[status]} for status in errors},
                **(responses or {}),
            },
        }
        self.schemas: dict[str, Any] = {}
        if body is not None:
            schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
            self.schemas = schema.pop("$defs", {})
            content = {name: {"schema": schema} for name in body_types}
            self.operation["requestBody"] = {"required": True, "content": content}


def openapi_page(protocols: Mapping[str, Sequence[DescribedRoute]], url: str) -> dict[str, Any]:
    """Return the OpenAPI description of the routes of each protocol, relative to `url`."""
    schemas: dict[str, Any] = {"ErrorAnswer": ERROR_SCHEMA}
    paths: dict[str, Any] = {}
    for protocol, routes in protocols.items():
        for route in routes:
            operation = {"tags": [protocol], **route.operation}
            paths.setdefault(route.path, {})[route.method.lower()] = operation
            schemas |= route.schemas
    return {
        "openapi": "3.1.0",
        "info": {"title": "tfk-transformer", "version": __version__},
        "servers": [{"url": url}],
        "paths": paths,
        "components": {"schemas": schemas},
    }
