"""The Open Inference Protocol, version 2, over HTTP: health, metadata, infer and generate."""

import functools
import itertools
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tfk_transformer.apps.server.bodies import (
    COMPRESSIONS,
    Body,
    InvalidValue,
    Parameters,
    answer,
    parse_body,
    read_body,
    to_json,
)
from tfk_transformer.apps.server.middleware import CLIENT_LEFT
from tfk_transformer.apps.server.protocols.tensors import (
    JSON_LENGTH,
    OCTET_STREAM,
    InferRequest,
    answer_tensors,
    input_texts,
    parse_infer_request,
)
from tfk_transformer.apps.server.routes import ERROR_RESPONSE, JSON, JSON_OBJECT, DescribedRoute
from tfk_transformer.apps.server.served_model import NO_SCORE, ServedModel, while_connected
from tfk_transformer.config.words import shorten
from tfk_transformer.constants import __version__

EXTENSIONS = ["generate", "binary_tensor_data", "model_configuration"]
EVENT_STREAM = "text/event-stream"
# The data types of tensors, and their names in Triton's model configuration.
TRITON_TYPES = {"BYTES": "TYPE_STRING", "FP32": "TYPE_FP32"}
SEQUENCE = {"sequence_id", "sequence_start", "sequence_end"}
IGNORED_PARAMETERS = {"binary_data_output", "classification", "priority", "timeout", *SEQUENCE}


class GenerateRequest(Body):
    """One text, and search settings as parameters."""

    text_input: str
    parameters: Parameters = {}


def open_inference_routes(served: ServedModel) -> list[DescribedRoute]:
    """Return the routes of the protocol."""
    settings, state = served.settings, served.state

    async def server(request: Request) -> Response:
        """Describe the server."""
        return answer({"name": "tfk-transformer", "version": __version__, "extensions": EXTENSIONS})

    async def live(request: Request) -> Response:
        """Confirm that the process works."""
        return answer({"live": True})

    async def ready(request: Request) -> Response:
        """Report whether the server accepts requests."""
        return answer({"ready": not state.draining}, 503 if state.draining else 200)

    async def repository_index(request: Request) -> Response:
        """List the model."""
        model = {"name": settings.name, "version": settings.version}
        return answer([{**model, "state": "READY", "reason": ""}])

    models = {"description": "The answer.", "content": {JSON: {"schema": {"type": "array"}}}}
    not_ready = {"description": "The server is shutting down.", "content": JSON_OBJECT}
    protocol = OpenInference(served)
    path = f"/v2/models/{settings.name}"
    statistics = "/v2/models/stats"  # or the metadata of a model with the name "stats"
    return [
        DescribedRoute("GET", "/v2", server),
        DescribedRoute("GET", "/v2/health/live", live, errors=()),
        DescribedRoute("GET", "/v2/health/ready", ready, errors=(), responses={503: not_ready}),
        DescribedRoute("POST", "/v2/repository/index", repository_index, responses={200: models}),
        *protocol.routes(path),
        *protocol.routes(f"{path}/versions/{settings.version}"),
        *([] if path == statistics else [_statistics_route(statistics)]),
    ]


class OpenInference:
    """The endpoints of the model. Their names and docstrings are part of the OpenAPI page."""

    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self._settings = settings = served.settings
        self.open_streams = 0
        self.names = {"model_name": settings.name, "model_version": settings.version}
        self._platform = f"tfk-transformer_{type(served.model).__name__}"
        self._inputs = [_tensor("text", "BYTES")]
        if served.classifies:
            labels = len(getattr(served.model, "labels", ()))
            self._outputs = [_tensor("label", "BYTES"), _tensor("probability", "FP32")]
            self._outputs.append(_tensor("probabilities", "FP32", labels))
        else:
            self._inputs.append(_tensor("prefix", "BYTES") | {"parameters": {"optional": True}})
            self._outputs = [_tensor("translation", "BYTES"), _tensor("score", "FP32")]
            if served.calibration is not None:
                self._outputs.append(_tensor("confidence", "FP32"))

    def routes(self, path: str) -> list[DescribedRoute]:
        """Return the routes of the model, whose paths begin with `path`."""
        contents = {**JSON_OBJECT, OCTET_STREAM: {}}
        tensors = {200: {"description": "The answer.", "content": contents}}
        events = {200: {"description": "Events with the parts.", "content": {EVENT_STREAM: {}}}}
        routes = [
            DescribedRoute("GET", path, self.metadata),
            DescribedRoute("GET", f"{path}/config", self.configuration),
            DescribedRoute("GET", f"{path}/ready", self.ready),
            _statistics_route(f"{path}/stats"),
            DescribedRoute("POST", f"{path}/infer", self.infer, InferRequest, responses=tensors),
        ]
        if not self._served.classifies:
            stream, stream_path = self.generate_stream, f"{path}/generate_stream"
            routes += [
                DescribedRoute("POST", f"{path}/generate", self.generate, GenerateRequest),
                DescribedRoute("POST", stream_path, stream, GenerateRequest, responses=events),
            ]
        return routes

    async def metadata(self, request: Request) -> Response:
        """Describe inputs and outputs."""
        versions = [self._settings.version]
        model = {"name": self._settings.name, "versions": versions, "platform": self._platform}
        return answer({**model, "inputs": self._inputs, "outputs": self._outputs})

    async def configuration(self, request: Request) -> Response:
        """Describe inputs and outputs, in the form of Triton's model configuration."""
        inputs = [_configured_tensor(tensor) for tensor in self._inputs]
        outputs = [_configured_tensor(tensor) for tensor in self._outputs]
        # 0, because the shapes include the number of texts.
        model = {"name": self._settings.name, "platform": self._platform, "max_batch_size": 0}
        return answer({**model, "input": inputs, "output": outputs})

    async def ready(self, request: Request) -> Response:
        """Confirm that the model accepts requests; a draining server refuses this request."""
        return answer({"name": self._settings.name, "ready": True})

    async def infer(self, request: Request) -> Response:
        """Translate or classify texts.

        Tensors may be binary: `binary_data_size` of an input is the number of its bytes after the
        JSON, and the header Inference-Header-Content-Length has the number of bytes of the JSON.
        The parameters `binary_data_output` and `binary_data` request binary outputs.
        """
        body = await read_body(request, self._settings, COMPRESSIONS)
        length = request.headers.get(JSON_LENGTH)
        parse = functools.partial(parse_infer_request, json_length=length)
        payload = await self._served.parse(request, body, parse)
        tensors = input_texts(payload.inputs)
        work = self._served.work(_search_settings(payload.parameters))
        texts, prefixes = tensors["text"], tensors.get("prefix", ())
        results = await self._served.results(request, work, texts, prefixes)
        datatypes = {tensor["name"]: tensor["datatype"] for tensor in self._outputs}
        requested = [*datatypes]
        if payload.outputs is not None:
            requested = [tensor.name for tensor in payload.outputs]
        if not set(requested) <= set(datatypes):
            raise InvalidValue(
                f"outputs: expected some of {', '.join(datatypes)}, got "
                f"{shorten(', '.join(requested))}; correct the names."
            )
        n_best = dict(work.settings).get("n_best", 1)
        outputs = [
            {"name": name, "datatype": datatype} | _column(name, results, n_best)
            for name, datatype in datatypes.items()
            if name in requested
        ]
        return answer_tensors(payload, self.names, outputs)

    async def _generation(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Read the text and the search settings of a request."""
        body = await read_body(request, self._settings, COMPRESSIONS)
        parse = functools.partial(parse_body, GenerateRequest)
        payload = await self._served.parse(request, body, parse)
        return payload.text_input, _search_settings(payload.parameters)

    async def generate(self, request: Request) -> Response:
        """Translate one text."""
        text, requested = await self._generation(request)
        (translation,) = await self._served.results(request, self._served.work(requested), [text])
        content = {**self.names, "text_output": translation.text}
        if self._served.calibration is not None:
            content["confidence"] = translation.confidence
        return answer(content)

    async def generate_stream(self, request: Request) -> Response:
        """Translate one text, and send its parts as they are decoded, as server-sent events."""
        text, requested = await self._generation(request)
        # Streams use greedy search: the defaults for beam search do not apply.
        search = self._served.search.items()
        defaults = {name: value for name, value in search if name not in ("beam_size", "n_best")}
        settings = self._served.search_settings(defaults, requested)
        request.scope["texts"] = 1
        self._served.check([text])
        limit = self._settings.max_streams
        if self.open_streams >= limit:
            raise HTTPException(
                429,
                f"streams: expected at most {limit} at the same time, got one stream more; try "
                "again later.",
                {"Retry-After": "1"},
            )
        self.open_streams += 1
        try:
            parts = self._served.stream(request, text, settings)
            first = await while_connected(request, anext(parts, ""))
        except BaseException:
            self.open_streams -= 1
            raise
        return _Events(self, first, parts)


class _Events(StreamingResponse):
    """The parts of a stream. It ends even if the client leaves before the first event."""

    media_type = EVENT_STREAM

    def __init__(self, protocol: OpenInference, first: str, parts: AsyncIterator[str]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._events(first, parts), headers=headers)
        self._protocol = protocol
        self._status = CLIENT_LEFT  # until the stream ends

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._protocol.open_streams -= 1
        scope["stream_status"] = self._status

    async def _events(self, first: str, parts: AsyncIterator[str]) -> AsyncIterator[str]:
        names = self._protocol.names
        try:
            if first:
                yield f"data: {to_json({**names, 'text_output': first})}\n\n"
            async for part in parts:
                yield f"data: {to_json({**names, 'text_output': part})}\n\n"
            self._status = self.status_code
        except HTTPException as refusal:
            self._status = refusal.status_code
            yield f"event: error\ndata: {to_json({'error': refusal.detail})}\n\n"


def _statistics_route(path: str) -> DescribedRoute:
    """Return a route that refuses to report Triton's statistics."""

    async def statistics(request: Request) -> Response:
        """Refuse: the counts and times of this server are at /metrics."""
        raise HTTPException(
            404,
            "statistics: expected GET /metrics, which has the counts and times of this server, got "
            f"{request.scope['path']}; read /metrics.",
        )

    refusal = {"description": "The server has no statistics in this form."} | ERROR_RESPONSE
    route = DescribedRoute("GET", path, statistics, responses={404: refusal})
    del route.operation["responses"][200]
    return route


def _search_settings(parameters: dict[str, bool | int | float | str]) -> dict[str, Any]:
    """Return the search settings among the parameters of a request."""
    return {name: value for name, value in parameters.items() if name not in IGNORED_PARAMETERS}


def _tensor(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [-1, *shape]}


def _configured_tensor(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tensor of the metadata in the form of Triton's model configuration."""
    optional = {"optional": True} if "parameters" in tensor else {}
    data_type = TRITON_TYPES[tensor["datatype"]]
    return {"name": tensor["name"], "data_type": data_type, "dims": tensor["shape"], **optional}


def _column(name: str, results: list[Any], n_best: int) -> dict[str, Any]:
    """Return the shape of an output, and its values as a flat list.

    With `n_best` > 1, translations and scores have the shape (N, n_best).
    """
    shape = [len(results)]
    if name in ("translation", "score"):
        field, missing = ("text", "") if name == "translation" else ("score", NO_SCORE)
        data = []
        for result in results:
            values = [getattr(hypothesis, field) for hypothesis in result.hypotheses]
            data += values + [missing] * (n_best - len(values))
        shape += [n_best] if n_best > 1 else []
    elif name == "probabilities":
        rows = [list(result.probabilities.values()) for result in results]
        data = list(itertools.chain.from_iterable(rows))
        shape.append(len(rows[0]) if rows else 0)
    else:
        values = [getattr(result, name) for result in results]
        data = [math.nan if value is None else value for value in values]
    return {"shape": shape, "data": data}
