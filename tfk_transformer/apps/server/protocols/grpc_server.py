"""A gRPC server of TensorFlow Serving's PredictionService: Predict and GetModelMetadata.

A call is a POST request of an application with the middleware of the HTTP server, so that the log,
the metrics, the API key and the end of the server are the same.
"""

import asyncio
import functools
import json
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message

from tfk_transformer.apps.server.bodies import read_body
from tfk_transformer.apps.server.middleware import Lifecycle, with_middleware
from tfk_transformer.apps.server.monitoring import Metrics
from tfk_transformer.apps.server.protocols.prediction_messages import (
    MESSAGES,
    PACKAGE,
    read_tensor,
    write_tensor,
)
from tfk_transformer.apps.server.protocols.tf_serving import (
    PredictRequest,
    run_signature,
    served_signature,
    served_signatures,
    signature_definition,
)
from tfk_transformer.apps.server.served_model import ServedModel
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.config.search_settings import resolve_settings, setting_numbers
from tfk_transformer.config.words import shorten
from tfk_transformer.inference.signatures import PREFIX, Signature

SERVICE = f"{PACKAGE}.PredictionService"
# TensorFlow Serving has no status for a wrong key. It refuses a full queue with UNAVAILABLE.
STATUS_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    412: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


class GrpcServer:
    """A server of the service, in the event loop that starts it.

    It listens on `host`, an IPv6 address in brackets, and `port`, or 0 for any free port. After
    `start`, the attribute `port` has its number.
    """

    def __init__(
        self, served: ServedModel, metrics: Metrics, lifecycle: Lifecycle, host: str, port: int
    ) -> None:
        self.port = port
        self._host = host
        self._max_body = served.settings.max_body
        methods = {"Predict": _predict, "GetModelMetadata": _metadata}
        self._paths = {name: f"/{SERVICE}/{name}" for name in methods}
        # The bodies of requests and answers are serialized messages.
        routes = [
            Route(self._paths[name], functools.partial(method, served), methods=["POST"])
            for name, method in methods.items()
        ]
        self._app = with_middleware(routes, served.settings, metrics, lifecycle)

    async def start(self) -> None:
        """Begin to answer calls, or raise OSError if the address cannot be used."""
        options = {
            "grpc.max_receive_message_length": self._max_body,
            "grpc.so_reuseport": 0,  # otherwise two servers could share the port
        }
        self._server = grpc.aio.server(options=tuple(options.items()))
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(functools.partial(_call, self._app, path))
            for name, path in self._paths.items()
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        try:
            self.port = self._server.add_insecure_port(f"{self._host}:{self.port}")
        except RuntimeError as error:
            raise OSError(
                f"--grpc-port {self.port}: cannot listen there: {error}; choose another port"
            ) from None
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Finish the calls within `grace` seconds, and end."""
        await self._server.stop(grace)


async def _call(app: ASGIApp, path: str, body: bytes, context: grpc.aio.ServicerContext) -> bytes:
    """Answer a call with the application: a serialized message, or the status of an error."""
    departure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    incoming: list[Message] = [{"type": "http.request", "body": body}]
    status = 500
    content = b""

    async def receive() -> Message:
        if incoming:
            return incoming.pop()
        await departure
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, content
        status = message.get("status", status)
        content += message.get("body", b"")

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [
            (name.encode(), value.encode() if isinstance(value, str) else value)
            for name, value in context.invocation_metadata()
        ],
        "client": _client(context.peer()),
        "departure": departure,
    }
    task = asyncio.ensure_future(app(scope, receive, send))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:  # the client left, or its deadline passed
        departure.set_result(None)
        await task
        raise
    if status == 200:
        return content
    code = STATUS_CODES.get(status, grpc.StatusCode.INTERNAL)
    return await context.abort(code, json.loads(content)["error"])


def _client(peer: str) -> tuple[str, int] | None:
    """Return host and port of a client, such as ipv4:127.0.0.1:40000 or ipv6:%5B::1%5D:40000."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdecimal() else None


async def _predict(served: ServedModel, request: Request) -> Response:
    """Run a signature on texts."""
    settings = served.settings
    message = await _parse("PredictRequest", request, settings)
    name = message.model_spec.signature_name or "serving_default"
    signature = served_signature(served, name)
    names = _output_names(message.output_filter, signature)
    # Unknown names have no value. They are refused when the signature is run.
    columns: dict[str, Any] = dict.fromkeys(message.inputs)
    for spec in signature.inputs:
        if spec.name in message.inputs:
            tensor = message.inputs[spec.name]
            columns[spec.name] = read_tensor(tensor, spec, settings.max_texts)
    payload = PredictRequest(signature_name=name, inputs=columns)
    outputs = await run_signature(served, request, payload)
    response = MESSAGES["PredictResponse"](model_spec=_model_spec(settings, name))
    for spec in signature.outputs:
        if spec.name in names:
            write_tensor(response.outputs[spec.name], outputs[spec.name], spec)
    return Response(response.SerializeToString())


async def _metadata(served: ServedModel, request: Request) -> Response:
    """Describe the signatures."""
    settings = served.settings
    message = await _parse("GetModelMetadataRequest", request, settings)
    fields = set(message.metadata_field)
    if fields != {"signature_def"}:
        received = shorten(", ".join(sorted(fields))) or "none"
        raise HTTPException(
            422,
            f"metadata_field: expected signature_def, got {received}; request signature_def.",
        )
    response = MESSAGES["GetModelMetadataResponse"](model_spec=_model_spec(settings, ""))
    packed = response.metadata["signature_def"]
    packed.type_url = f"type.googleapis.com/{PACKAGE}.SignatureDefMap"
    packed.value = _signature_definitions(served).SerializeToString()
    return Response(response.SerializeToString())


async def _parse(name: str, request: Request, settings: ServerSettings) -> Any:
    """Return the message of a request for the model of this server."""
    body = await read_body(request, settings)
    try:
        message = MESSAGES[name].FromString(body)
    except DecodeError:
        raise HTTPException(
            400, f"message: expected a {name}, got {len(body)} other bytes; correct the client."
        ) from None
    _check_model(message.model_spec, settings)
    return message


def _check_model(spec: Any, settings: ServerSettings) -> None:
    """Refuse another model or version. Without a name, the status is that of TensorFlow Serving."""
    if not spec.name:
        raise HTTPException(
            422, f"model_spec.name: expected {settings.name}, got no name; set the name."
        )
    if spec.name != settings.name:
        raise HTTPException(
            404,
            f"model_spec.name: expected {settings.name}, the model of this server, got "
            f"{shorten(spec.name)}; correct the name.",
        )
    if spec.version_label:
        raise HTTPException(
            422,
            "model_spec.version_label: expected no label, because this server has none, got "
            f"{shorten(spec.version_label)}; leave it out.",
        )
    if spec.HasField("version") and spec.version.value != int(settings.version):
        raise HTTPException(
            404,
            f"model_spec.version: expected {settings.version}, the version of this server, got "
            f"{spec.version.value}; correct it or leave it out.",
        )


def _model_spec(settings: ServerSettings, signature_name: str) -> Any:
    spec = MESSAGES["ModelSpec"](name=settings.name, signature_name=signature_name)
    spec.version.value = int(settings.version)
    return spec


def _output_names(output_filter: Any, signature: Signature) -> set[str]:
    """Return the names of the requested outputs: all by default."""
    names = [spec.name for spec in signature.outputs]
    if len(set(output_filter)) < len(output_filter) or not set(output_filter) <= set(names):
        raise HTTPException(
            422,
            f"output_filter: expected names among {', '.join(names)}, each once, got "
            f"{shorten(', '.join(output_filter))}; correct the names.",
        )
    return set(output_filter or names)


def _signature_definitions(served: ServedModel) -> Any:
    """Return the SignatureDefMap, with the values that a request may omit, as in a SavedModel."""
    message = MESSAGES["SignatureDefMap"]()
    defaults: dict[str, Any] = {}
    if not served.classifies:
        rules = served.model.runtime.rules
        defaults = dict(setting_numbers(resolve_settings(served.search, rules), rules))
        defaults[PREFIX.name] = [""]
    for name, signature in served_signatures(served).items():
        definition = message.signature_def[name]
        ParseDict(signature_definition(name, signature), definition)
        for spec in signature.inputs:
            if spec.name in defaults:
                write_tensor(definition.defaults[spec.name], defaults[spec.name], spec)
    return message
