"""The ASGI application: all routes and their middleware."""

import itertools

from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from tfk_transformer.apps.server.answers import answer, answer_failure, answer_http_error
from tfk_transformer.apps.server.metrics import Metrics
from tfk_transformer.apps.server.middleware import AccessMiddleware, Lifecycle, RecordingMiddleware
from tfk_transformer.apps.server.protocols.libre_translate import libre_translate_routes
from tfk_transformer.apps.server.protocols.open_inference import open_inference_routes
from tfk_transformer.apps.server.protocols.tf_serving import tf_serving_routes
from tfk_transformer.apps.server.protocols.web_pages import docs_page, start_page
from tfk_transformer.apps.server.routes import DescribedRoute, openapi_page
from tfk_transformer.apps.server.served_model import ServedModel
from tfk_transformer.apps.server.streams import Streams


def application(
    served: ServedModel, metrics: Metrics, streams: Streams, lifecycle: Lifecycle
) -> ASGIApp:
    """Return the ASGI application of a server."""

    async def start(request: Request) -> Response:
        """Show what is served."""
        return start_page(served, description, request)

    settings = served.settings
    protocols = {
        "LibreTranslate": [] if served.classifies else libre_translate_routes(served),
        "Open Inference Protocol": open_inference_routes(served, streams, lifecycle),
        "TensorFlow Serving": tf_serving_routes(served),
        "Monitoring": _monitoring_routes(metrics),
    }
    root_path = settings.root_path or ""
    description = openapi_page(protocols, root_path)
    routes = [
        Route("/", start, methods=["GET"]),
        Route("/openapi.json", answer(description), methods=["GET"]),
        Route("/docs", docs_page(settings.name, description), methods=["GET"]),
        *itertools.chain(*protocols.values()),
    ]
    app = Starlette(
        exception_handlers={HTTPException: answer_http_error, Exception: answer_failure}
    )
    app.state.model_name = settings.name
    app.router = Router(
        routes,
        redirect_slashes=False,
        # Inside the exception handlers, which answer the requests that this middleware refuses.
        middleware=[Middleware(AccessMiddleware, settings, lifecycle)],
    )
    # Outside the exception handlers, so that pages can read refusals too.
    shared = CORSMiddleware(
        app, settings.allow_origin, allow_methods=["GET", "POST"], allow_headers=["*"]
    )
    paths = {route.path for route in routes}
    return RecordingMiddleware(
        shared if settings.allow_origin else app, paths, metrics, lifecycle, root_path
    )


def _monitoring_routes(metrics: Metrics) -> list[DescribedRoute]:
    """Return the routes for monitors."""

    async def health(request: Request) -> Response:
        """Confirm that the process works."""
        return answer({"status": "ok"})

    async def read_metrics(request: Request) -> Response:
        """Return the metrics in the text format of Prometheus."""
        return Response(
            generate_latest(metrics.registry), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    text = {"description": "The metrics.", "content": {"text/plain": {}}}
    return [
        DescribedRoute("GET", "/health", health, errors=()),
        DescribedRoute("GET", "/metrics", read_metrics, errors=(401, 500), responses={200: text}),
    ]
