"""The ASGI application: all routes and their middleware."""

import itertools

from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from tfk_transformer.server.answers import answer, answer_failure, answer_http_error
from tfk_transformer.server.metrics import Metrics
from tfk_transformer.server.middleware import AccessMiddleware, Lifecycle, RecordingMiddleware
from tfk_transformer.server.protocols.libre_translate import libre_translate_routes
from tfk_transformer.server.protocols.open_inference import open_inference_routes
from tfk_transformer.server.protocols.tf_serving import tf_serving_routes
from tfk_transformer.server.routes import DescribedRoute, openapi_page
from tfk_transformer.server.served_model import ServedModel
from tfk_transformer.server.streams import Streams

DOCS_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>tfk-transformer</title>
<link rel="stylesheet" href="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/swagger-ui.css">
</head>
<body>
<div id="page"></div>
<script src="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({url: "openapi.json", dom_id: "#page", deepLinking: true});</script>
</body>
</html>
"""


def application(
    served: ServedModel, metrics: Metrics, streams: Streams, lifecycle: Lifecycle
) -> ASGIApp:
    """Return the ASGI application of a server."""

    async def read_metrics(request: Request) -> Response:
        """Return the metrics in the text format of Prometheus."""
        return Response(
            generate_latest(metrics.registry), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    text = {"description": "The metrics.", "content": {"text/plain": {}}}
    protocols = {
        "LibreTranslate": [] if served.classifies else libre_translate_routes(served),
        "Open Inference Protocol": open_inference_routes(served, streams, lifecycle),
        "TensorFlow Serving": tf_serving_routes(served),
        "Metrics": [
            DescribedRoute(
                "GET", "/metrics", read_metrics, errors=(401, 500), responses={200: text}
            )
        ],
    }
    routes = [
        Route("/openapi.json", answer(openapi_page(protocols)), methods=["GET"]),
        Route("/docs", HTMLResponse(DOCS_PAGE), methods=["GET"]),
        *itertools.chain(*protocols.values()),
    ]
    app = Starlette(
        exception_handlers={HTTPException: answer_http_error, Exception: answer_failure}
    )
    app.router = Router(
        routes,
        redirect_slashes=False,
        # Inside the exception handlers, which answer the requests that this middleware refuses.
        middleware=[Middleware(AccessMiddleware, served.settings, lifecycle)],
    )
    return RecordingMiddleware(app, {route.path for route in routes}, metrics, lifecycle)
