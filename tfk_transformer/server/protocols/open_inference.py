"""The Open Inference Protocol, version 2, over HTTP: health, metadata, infer and generate."""

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from tfk_transformer import __version__
from tfk_transformer.server.answers import answer
from tfk_transformer.server.bodies import (
    EVERY_REFUSAL,
    Body,
    body_of,
    openapi_body,
    openapi_errors,
    parse_body,
)
from tfk_transformer.server.middleware import Lifecycle
from tfk_transformer.server.refusals import RequestError
from tfk_transformer.server.served_model import NO_SCORE, ServedModel
from tfk_transformer.server.streams import Events, Streams

INPUTS = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
TRANSLATIONS = [
    {"name": "translation", "datatype": "BYTES", "shape": [-1]},
    {"name": "score", "datatype": "FP32", "shape": [-1]},
]
PREFIX_INPUT = {
    "name": "prefix",
    "datatype": "BYTES",
    "shape": [-1],
    "parameters": {"optional": True},
}
NOT_SETTINGS = (
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
    """An output that is wanted."""

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


def routes(served: ServedModel, streams: Streams, lifecycle: Lifecycle) -> APIRouter:
    """Return the paths of the protocol."""
    router, settings = APIRouter(tags=["Open Inference Protocol"]), served.settings
    _add_health(router, lifecycle)
    names = {"model_name": settings.name, "model_version": settings.version}
    infer_page: dict[str, Any] = {
        "openapi_extra": openapi_body(InferRequest),
        "responses": EVERY_REFUSAL,
    }
    generate_page: dict[str, Any] = {
        "openapi_extra": openapi_body(GenerateRequest),
        "responses": EVERY_REFUSAL,
    }

    events = {"description": "Events with the parts.", "content": {Events.media_type: {}}}
    stream_page = {**generate_page, "responses": {200: events, **EVERY_REFUSAL}}

    async def metadata() -> dict[str, Any]:
        """Describe inputs and outputs."""
        platform = f"tfk-transformer_{type(served.model).__name__}"
        inputs = INPUTS if served.classifies else [*INPUTS, PREFIX_INPUT]
        return {
            "name": settings.name,
            "versions": [settings.version],
            "platform": platform,
            "inputs": inputs,
            "outputs": _outputs_of(served),
        }

    async def ready() -> Response:
        """Tell whether the model takes requests."""
        return answer(
            {"name": settings.name, "ready": not lifecycle.draining},
            503 if lifecycle.draining else 200,
        )

    async def infer(request: Request) -> Response:
        """Translate or classify texts."""
        given = parse_body(InferRequest, await body_of(request, settings))
        tensors = {tensor.name: _texts(tensor) for tensor in given.inputs}
        if (
            "text" not in tensors
            or len(tensors) < len(given.inputs)
            or len(tensors.get("prefix", tensors["text"])) != len(tensors["text"])
        ):
            raise RequestError(
                422,
                (
                    "inputs: expected text, and perhaps prefix with as many items, got others; "
                    "correct them."
                ),
            )
        work = served.work(_settings(given.parameters))
        found = await served.results(request, work, tensors["text"], tensors.get("prefix", ()))
        wanted = None if given.outputs is None else [tensor.name for tensor in given.outputs]
        outputs = _tensors(served, found, dict(work.settings).get("n_best", 1), wanted)
        return answer(
            {**names, **({"id": given.id} if given.id is not None else {}), "outputs": outputs}
        )

    async def generate(request: Request) -> Response:
        """Translate one text."""
        given = parse_body(GenerateRequest, await body_of(request, settings))
        (found,) = await served.results(
            request, served.work(_settings(given.parameters)), [given.text_input]
        )
        return answer({**names, "text_output": found.text})

    async def generate_stream(request: Request) -> Response:
        """Translate one text, and send its parts as they are decoded, as server-sent events."""
        given = parse_body(GenerateRequest, await body_of(request, settings))
        chosen = _settings(given.parameters)
        served.work(chosen)
        return await streams.start(request, given.text_input, chosen, names)

    for path in (
        f"/v2/models/{settings.name}",
        f"/v2/models/{settings.name}/versions/{settings.version}",
    ):
        router.get(path, responses=openapi_errors(503))(metadata)
        router.get(f"{path}/ready", responses=openapi_errors(503))(ready)
        router.post(f"{path}/infer", **infer_page)(infer)
        if not served.classifies:
            router.post(f"{path}/generate", **generate_page)(generate)
            router.post(f"{path}/generate_stream", response_class=StreamingResponse, **stream_page)(
                generate_stream
            )
    return router


def _add_health(router: APIRouter, lifecycle: Lifecycle) -> None:
    @router.get("/v2")
    async def server() -> dict[str, Any]:
        """Describe the server."""
        return {"name": "tfk-transformer", "version": __version__, "extensions": ["generate"]}

    @router.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        """Tell that the process works."""
        return {"live": True}

    @router.get(
        "/v2/health/ready",
        responses={503: {"model": dict[str, bool], "description": "The server is shutting down."}},
    )
    async def ready() -> Response:
        """Tell whether the server takes requests."""
        return answer({"ready": not lifecycle.draining}, 503 if lifecycle.draining else 200)


def _texts(tensor: InputTensor) -> list[str]:
    """Return the texts of a tensor of shape (N,) or (N, 1).

    Raises:
        Refusal: 422 if shape and data do not fit each other.
    """
    nested = len(tensor.shape) == 2 and tensor.shape[1] == 1
    rows = [[item] if isinstance(item, str) else item for item in tensor.data]
    if (
        (len(tensor.shape) != 1 and not nested)
        or tensor.shape[0] != len(rows)
        or any(len(row) != 1 for row in rows)
    ):
        raise RequestError(
            422,
            (
                f"{tensor.name}: expected the shape [N] or [N, 1] and N texts, got others; correct "
                "shape or data."
            ),
        )
    return [row[0] for row in rows]


def _settings(parameters: dict[str, bool | int | float | str]) -> dict[str, Any]:
    """Return the search settings among the parameters of a request."""
    return {name: value for name, value in parameters.items() if name not in NOT_SETTINGS}


def _outputs_of(served: ServedModel) -> list[dict[str, Any]]:
    if not served.classifies:
        return TRANSLATIONS
    labels = len(getattr(served.model, "labels", ()))
    vectors = [
        {"name": "label", "datatype": "BYTES", "shape": [-1]},
        {"name": "probability", "datatype": "FP32", "shape": [-1]},
    ]
    return [*vectors, {"name": "probabilities", "datatype": "FP32", "shape": [-1, labels]}]


def _tensors(
    served: ServedModel, found: list[Any], n_best: int, wanted: list[str] | None
) -> list[dict[str, Any]]:
    """Return results as tensors; with `n_best`, those of a translator have the shape (N, n_best).

    Raises:
        Refusal: 422 if an output is wanted that the model does not have.
    """
    known = [output["name"] for output in _outputs_of(served)]
    if wanted is not None and not set(wanted) <= set(known):
        raise RequestError(
            422, f"outputs: expected some of {', '.join(known)}, got another name; correct it."
        )
    datatypes = {output["name"]: output["datatype"] for output in _outputs_of(served)}
    columns = {
        name: _column(name, found, n_best) for name in known if wanted is None or name in wanted
    }
    return [
        {"name": name, "datatype": datatypes[name], "shape": shape, "data": data}
        for name, (shape, data) in columns.items()
    ]


def _column(name: str, found: list[Any], n_best: int) -> tuple[list[int], list[Any]]:
    """Return shape and data of an output, in one list."""
    if name in ("translation", "score"):
        missing = "" if name == "translation" else NO_SCORE
        field = "text" if name == "translation" else "score"
        rows = [
            [getattr(hypothesis, field) for hypothesis in result.hypotheses] for result in found
        ]
        data = [value for row in rows for value in [*row, *[missing] * (n_best - len(row))]]
        return [len(found), n_best] if n_best > 1 else [len(found)], data
    if name == "probabilities":
        rows = [list(result.probabilities.values()) for result in found]
        return [len(found), len(rows[0]) if rows else 0], [value for row in rows for value in row]
    return [len(found)], [getattr(result, name) for result in found]
