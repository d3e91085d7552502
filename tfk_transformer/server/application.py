"""The application: every path, and what surrounds them."""

from fastapi import FastAPI, Response
from fastapi.routing import APIRoute
from prometheus_client import generate_latest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from tfk_transformer import __version__
from tfk_transformer.server import bodies, refusals
from tfk_transformer.server.metrics import Metrics
from tfk_transformer.server.middleware import Gate, Lifecycle, Recorded
from tfk_transformer.server.protocols import libre_translate, open_inference, tf_serving
from tfk_transformer.server.served_model import ServedModel
from tfk_transformer.server.streams import Streams

HANDLERS = {refusals.RequestError: refusals.of_refusal, HTTPException: refusals.of_http}
# Models that the bodies of requests refer to.
COMPONENTS: tuple[type[BaseModel], ...] = (open_inference.InputTensor, open_inference.OutputTensor)


def application(
    served: ServedModel, metrics: Metrics, streams: Streams, lifecycle: Lifecycle
) -> ASGIApp:
    """Return the application of a server."""
    app = FastAPI(
        title="tfk-transformer", version=__version__, redoc_url=None, redirect_slashes=False
    )
    routers = [open_inference.routes(served, streams, lifecycle), tf_serving.routes(served)]
    if not served.classifies:
        routers.insert(0, libre_translate.routes(served))
    for router in routers:
        # `include_router` nests them, and each request then searches longer.
        app.router.routes.extend(router.routes)
    _add_metrics(app, metrics)
    for error, handler in HANDLERS.items():
        app.add_exception_handler(error, handler)
    page = app.openapi()
    page["components"]["schemas"] |= {
        kind.__name__: kind.model_json_schema() for kind in COMPONENTS
    }
    return Recorded(
        Gate(_shortened(app), served.settings, lifecycle),
        {*page["paths"], "/docs", "/openapi.json"},
        metrics,
        lifecycle,
    )


def _shortened(app: FastAPI) -> ASGIApp:
    """Return the application with a shorter way to the routes that read their bodies themselves.

    FastAPI's dependencies, which they do not have, take a third of the time of a request.
    """
    direct = [
        Route(route.path, route.endpoint, methods=list(route.methods or ()))
        for route in app.router.routes
        if isinstance(route, APIRoute) and route.openapi_extra
    ]
    front = Starlette(routes=direct, exception_handlers=HANDLERS)
    front.router.redirect_slashes = False
    front.router.default = app
    return front


def _add_metrics(app: FastAPI, metrics: Metrics) -> None:
    @app.get(
        "/metrics", tags=["Metrics"], response_class=Response, responses=bodies.openapi_errors()
    )
    def read_metrics() -> Response:
        """Return the metrics in the text format of Prometheus."""
        return Response(
            generate_latest(metrics.registry), media_type="text/plain; version=0.0.4; charset=utf-8"
        )
