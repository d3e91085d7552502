"""The ASGI application: all routes and their middleware."""

from fastapi import FastAPI, Response
from fastapi.routing import APIRoute
from prometheus_client import generate_latest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from tfk_transformer.constants import __version__
from tfk_transformer.server import bodies, refusals
from tfk_transformer.server.metrics import Metrics
from tfk_transformer.server.middleware import AccessMiddleware, Lifecycle, RecordingMiddleware
from tfk_transformer.server.protocols import libre_translate, open_inference, tf_serving
from tfk_transformer.server.served_model import ServedModel
from tfk_transformer.server.streams import Streams

HANDLERS = {
    refusals.RequestError: refusals.answer_request_error,
    HTTPException: refusals.answer_http_error,
}
# Pydantic models that the request bodies refer to.
COMPONENTS: tuple[type[BaseModel], ...] = (open_inference.InputTensor, open_inference.OutputTensor)


def application(
    served: ServedModel, metrics: Metrics, streams: Streams, lifecycle: Lifecycle
) -> ASGIApp:
    """Return the ASGI application of a server."""
    app = FastAPI(
        title="tfk-transformer", version=__version__, redoc_url=None, redirect_slashes=False
    )
    routers = [open_inference.routes(served, streams, lifecycle), tf_serving.routes(served)]
    if not served.classifies:
        routers.insert(0, libre_translate.routes(served))
    for router in routers:
        # `include_router` nests the routers, which makes the routing of each request slower.
        app.router.routes.extend(router.routes)

    @app.get(
        "/metrics", tags=["Metrics"], response_class=Response, responses=bodies.openapi_errors()
    )
    def read_metrics() -> Response:
        """Return the metrics in the text format of Prometheus."""
        return Response(
            generate_latest(metrics.registry), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    for error, handler in HANDLERS.items():
        app.add_exception_handler(error, handler)
    page = app.openapi()
    page["components"]["schemas"] |= {
        model.__name__: model.model_json_schema() for model in COMPONENTS
    }
    return RecordingMiddleware(
        AccessMiddleware(_with_direct_routes(app), served.settings, lifecycle),
        {*page["paths"], "/docs", "/openapi.json"},
        metrics,
        lifecycle,
    )


def _with_direct_routes(app: FastAPI) -> ASGIApp:
    """Return the application with direct routes to the endpoints that parse their own bodies.

    FastAPI's dependency resolution, which these endpoints do not use, takes a third of the time
    of a request.
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
