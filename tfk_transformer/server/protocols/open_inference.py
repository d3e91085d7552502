"""The Open Inference Protocol, version 2, over HTTP: health, metadata, infer and generate."""

import itertools
from typing import Any, Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tfk_transformer.config.words import shorten
from tfk_transformer.constants import __version__
from tfk_transformer.server.answers import answer
from tfk_transformer.server.bodies import Body, parse_body, read_body
from tfk_transformer.server.middleware import Lifecycle
from tfk_transformer.server.routes import JSON_OBJECT, DescribedRoute
from tfk_transformer.server.served_model import NO_SCORE, ServedModel
from tfk_transformer.server.streams import Events, Streams

INPUTS = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
TRANSLATION_OUTPUTS = [
    {"name": "translation", "datatype": "BYTES", "shape": [-1]},
    {"name": "score", "datatype": "FP32", "shape": [-1]},
]
PREFIX_INPUT = {
    "name": "prefix",
    "datatype": "BYTES",
    "shape": [-1],
    "parameters": {"optional": True},
}
IGNORED_PARAMETERS = (
    "binary_data_output",
    "classification",
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "priority",
    "timeout",
)


class InputTensor(Body):
    """The texts, or the beginnings of their translations."""

    name: Literal["text", "prefix"]
    shape: list[int]
    datatype: Literal["BYTES"]
    data: list[str | list[str]]


class OutputTensor(Body):
    """A requested output."""

    name: str


class InferRequest(Body):
    """Tensors of texts, and search settings as parameters."""

    id: str | None = None
    parameters: dict[str, bool | int | float | str] = {}
    inputs: list[InputTensor]
    outputs: list[OutputTensor] | None = None


class GenerateRequest(Body):
    """One text, and search settings as parameters."""

    text_input: str
    parameters: dict[str, bool | int | float | str] = {}


def open_inference_routes(
    served: ServedModel, streams: Streams, lifecycle: Lifecycle
) -> list[DescribedRoute]:
    """Return the routes of the protocol."""
    settings = served.settings
    names = {"model_name": settings.name, "model_version": settings.version}

    async def metadata(request: Request) -> Response:
        """Describe inputs and outputs."""
        platform = f"tfk-transformer_{type(served.model).__name__}"
        inputs = INPUTS if served.classifies else [*INPUTS, PREFIX_INPUT]
        return answer(
            {
                "name": settings.name,
                "versions": [settings.version],
                "platform": platform,
                "inputs": inputs,
                "outputs": _output_metadata(served),
            }
        )

    async def ready(request: Request) -> Response:
        """Confirm that the model accepts requests; a draining server refuses this request."""
        return answer({"name": settings.name, "ready": True})

    async def infer(request: Request) -> Response:
        """Translate or classify texts."""
        payload = parse_body(InferRequest, await read_body(request, settings))
        tensors = {tensor.name: _texts(tensor) for tensor in payload.inputs}
        if (
            "text" not in tensors
            or len(tensors) < len(payload.inputs)
            or len(tensors.get("prefix", tensors["text"])) != len(tensors["text"])
        ):
            sizes = [f"{tensor.name} with {len(tensor.data)} items" for tensor in payload.inputs]
            raise HTTPException(
                422,
                "inputs: expected text, and optionally prefix with as many items, got "
                f"{', '.join(sizes) or 'none'}; correct the inputs.",
            )
        work = served.work(_search_settings(payload.parameters))
        results = await served.results(request, work, tensors["text"], tensors.get("prefix", ()))
        requested = None if payload.outputs is None else [tensor.name for tensor in payload.outputs]
        outputs = _output_tensors(served, results, dict(work.settings).get("n_best", 1), requested)
        identity = {} if payload.id is None else {"id": payload.id}
        return answer({**names, **identity, "outputs": outputs})

    async def generate(request: Request) -> Response:
        """Translate one text."""
        payload = parse_body(GenerateRequest, await read_body(request, settings))
        work = served.work(_search_settings(payload.parameters))
        (translation,) = await served.results(request, work, [payload.text_input])
        return answer({**names, "text_output": translation.text})

    async def generate_stream(request: Request) -> Response:
        """Translate one text, and send its parts as they are decoded, as server-sent events."""
        payload = parse_body(GenerateRequest, await read_body(request, settings))
        requested = _search_settings(payload.parameters)
        return await streams.start(request, payload.text_input, requested, names)

    events = {"description": "Events with the parts.", "content": {Events.media_type: {}}}
    routes = _server_routes(lifecycle)
    for path in (
        f"/v2/models/{settings.name}",
        f"/v2/models/{settings.name}/versions/{settings.version}",
    ):
        routes += [
            DescribedRoute("GET", path, metadata),
            DescribedRoute("GET", f"{path}/ready", ready),
            DescribedRoute("POST", f"{path}/infer", infer, body=InferRequest),
        ]
        if not served.classifies:
            routes += [
                DescribedRoute("POST", f"{path}/generate", generate, body=GenerateRequest),
                DescribedRoute(
                    "POST",
                    f"{path}/generate_stream",
                    generate_stream,
                    body=GenerateRequest,
                    responses={200: events},
                ),
            ]
    return routes


def _server_routes(lifecycle: Lifecycle) -> list[DescribedRoute]:
    """Return the routes that describe the server and its health."""

    async def server(request: Request) -> Response:
        """Describe the server."""
        return answer(
            {"name": "tfk-transformer", "version": __version__, "extensions": ["generate"]}
        )

    async def live(request: Request) -> Response:
        """Confirm that the process works."""
        return answer({"live": True})

    async def ready(request: Request) -> Response:
        """Report whether the server accepts requests."""
        return answer({"ready": not lifecycle.draining}, 503 if lifecycle.draining else 200)

    not_ready = {"description": "The server is shutting down.", "content": JSON_OBJECT}
    return [
        DescribedRoute("GET", "/v2", server),
        DescribedRoute("GET", "/v2/health/live", live, errors=()),
        DescribedRoute("GET", "/v2/health/ready", ready, errors=(), responses={503: not_ready}),
    ]


def _texts(tensor: InputTensor) -> list[str]:
    """Return the texts of a tensor of shape (N,) or (N, 1).

    Raises:
        HTTPException: 422 if the shape does not fit the data.
    """
    nested = len(tensor.shape) == 2 and tensor.shape[1] == 1
    rows = [[item] if isinstance(item, str) else item for item in tensor.data]
    if (
        (len(tensor.shape) != 1 and not nested)
        or tensor.shape[0] != len(rows)
        or any(len(row) != 1 for row in rows)
    ):
        raise HTTPException(
            422,
            f"{tensor.name}: expected the shape [N] or [N, 1] and N texts, got {tensor.shape} and "
            f"{sum(map(len, rows))} texts; correct shape or data.",
        )
    return [row[0] for row in rows]


def _search_settings(parameters: dict[str, bool | int | float | str]) -> dict[str, Any]:
    """Return the search settings among the parameters of a request."""
    return {name: value for name, value in parameters.items() if name not in IGNORED_PARAMETERS}


def _output_metadata(served: ServedModel) -> list[dict[str, Any]]:
    if not served.classifies:
        return TRANSLATION_OUTPUTS
    labels = len(getattr(served.model, "labels", ()))
    return [
        {"name": "label", "datatype": "BYTES", "shape": [-1]},
        {"name": "probability", "datatype": "FP32", "shape": [-1]},
        {"name": "probabilities", "datatype": "FP32", "shape": [-1, labels]},
    ]


def _output_tensors(
    served: ServedModel, results: list[Any], n_best: int, requested: list[str] | None
) -> list[dict[str, Any]]:
    """Return results as tensors. With `n_best` > 1, translations and scores have shape (N, n_best).

    Raises:
        HTTPException: 422 if a requested output does not exist.
    """
    datatypes = {output["name"]: output["datatype"] for output in _output_metadata(served)}
    if requested is not None and not set(requested) <= set(datatypes):
        raise HTTPException(
            422,
            f"outputs: expected some of {', '.join(datatypes)}, got "
            f"{shorten(', '.join(requested))}; correct the names.",
        )
    columns = {
        name: _column(name, results, n_best)
        for name in datatypes
        if requested is None or name in requested
    }
    return [
        {"name": name, "datatype": datatypes[name], "shape": shape, "data": data}
        for name, (shape, data) in columns.items()
    ]


def _column(name: str, results: list[Any], n_best: int) -> tuple[list[int], list[Any]]:
    """Return the shape of an output, and its values as a flat list."""
    if name in ("translation", "score"):
        field, missing = ("text", "") if name == "translation" else ("score", NO_SCORE)
        data = []
        for result in results:
            values = [getattr(hypothesis, field) for hypothesis in result.hypotheses]
            data += values + [missing] * (n_best - len(values))
        return [len(results), n_best] if n_best > 1 else [len(results)], data
    if name == "probabilities":
        rows = [list(result.probabilities.values()) for result in results]
        width = len(rows[0]) if rows else 0
        return [len(rows), width], list(itertools.chain.from_iterable(rows))
    return [len(results)], [getattr(result, name) for result in results]
