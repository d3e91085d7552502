"""A gRPC server of TensorFlow Serving's PredictionService: Predict and GetModelMetadata.

A call is a POST request of an application with the middleware of the HTTP server.
"""

import asyncio
import functools
import json
from collections.abc import AsyncIterator
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

from tfk_transformer.apps.server.bodies import InvalidValue, read_body
from tfk_transformer.apps.server.middleware import with_middleware
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
from tfk_transformer.config.search_settings import resolve_settings, setting_numbers
from tfk_transformer.config.words import shorten
from tfk_transformer.inference.signatures import PREFIX

SERVICE = f"{PACKAGE}.PredictionService"
# TensorFlow Serving has no status for a wrong key. It refuses a full queue with UNAVAILABLE.
STATUS_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    412: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# Calls that have arrived and not begun. gRPC cancels further ones without a message and a log line.
PENDING_CALLS = 2**14


async def start_grpc_server(
    served: ServedModel, host: str, port: int
) -> tuple[grpc.aio.Server, str]:
    """Start a server of the service, and return it and its address, with the number of the port.

    Port 0 is any free port. OSError: the address, an IPv6 address in brackets, cannot be used.
    """
    # The bodies of requests and answers are serialized messages.
    methods = {"Predict": _predict, "GetModelMetadata": _metadata}
    paths = {name: f"/{SERVICE}/{name}" for name in methods}
    routes = [
        Route(paths[name], functools.partial(method, served), methods=["POST"])
        for name, method in methods.items()
    ]
    app = with_middleware(routes, served.settings, served.state)
    handlers = {
        # A handler of a unary call would begin when the whole message has arrived, however late.
        name: grpc.stream_unary_rpc_method_handler(functools.partial(_call, app, path))
        for name, path in paths.items()
    }
    options = (
        ("grpc.max_receive_message_length", served.settings.max_body),
        ("grpc.server.max_pending_requests", PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", PENDING_CALLS),
        ("grpc.server_handshake_timeout_ms", int(1000 * served.settings.body_timeout)),
        ("grpc.so_reuseport", 0),  # otherwise two servers could share the port
    )
    max_calls = served.settings.max_queue
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=max_calls)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    try:
        bound_port = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise OSError(
            f"--grpc-port {port}: cannot listen there: {error}; choose another port"
        ) from None
    await server.start()
    return server, f"{host}:{bound_port}"


async def _call(
    app: ASGIApp, path: str, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext
) -> bytes:
    """Answer a call with the application: a serialized message, or the status of an error."""
    departure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    status = 500
    content = b""

    async def receive() -> Message:
        async for message in messages:
            return {"type": "http.request", "body": message}
        await departure
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, content
        status = message.get("status", status)
        content += message.get("body", b"")

    # The address of a client is such as ipv4:127.0.0.1:40000 or ipv6:%5B::1%5D:40000.
    host, _, port = unquote(context.peer()).partition(":")[2].rpartition(":")
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [
            (name.encode(), value.encode() if isinstance(value, str) else value)
            for name, value in context.invocation_metadata()
        ],
        "client": (host.strip("[]"), int(port)) if port.isdecimal() else None,
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


async def _predict(served: ServedModel, request: Request) -> Response:
    """Run a signature on texts."""
    message = await _parse("PredictRequest", request, served)
    name = message.model_spec.signature_name or "serving_default"
    signature = served_signature(served, name)
    names = [spec.name for spec in signature.outputs]
    requested = set(message.output_filter)
    if len(requested) < len(message.output_filter) or not requested <= set(names):
        raise InvalidValue(
            f"output_filter: expected names among {', '.join(names)}, each once, got "
            f"{shorten(', '.join(message.output_filter))}; correct the names."
        )
    # Unknown names have no value. They are refused when the signature is run.
    columns: dict[str, Any] = dict.fromkeys(message.inputs)
    for spec in signature.inputs:
        if spec.name in message.inputs:
            tensor = message.inputs[spec.name]
            columns[spec.name] = read_tensor(tensor, spec, served.settings.max_texts)
    payload = PredictRequest(signature_name=name, inputs=columns)
    outputs = await run_signature(served, request, payload)
    response = MESSAGES["PredictResponse"](model_spec=_model_spec(served, name))
    for spec in signature.outputs:
        if not requested or spec.name in requested:
            write_tensor(response.outputs[spec.name], outputs[spec.name], spec)
    return Response(response.SerializeToString())


async def _metadata(served: ServedModel, request: Request) -> Response:
    """Describe the signatures, with the values that a request may omit, as in a SavedModel."""
    message = await _parse("GetModelMetadataRequest", request, served)
    fields = set(message.metadata_field)
    if fields != {"signature_def"}:
        received = shorten(", ".join(sorted(fields))) or "none"
        raise InvalidValue(
            f"metadata_field: expected signature_def, got {received}; request signature_def."
        )
    defaults: dict[str, Any] = {}
    if not served.classifies:
        rules = served.model.runtime.rules
        defaults = dict(setting_numbers(resolve_settings(served.search, rules), rules))
        defaults[PREFIX.name] = [""]
    definitions = MESSAGES["SignatureDefMap"]()
    for name, signature in served_signatures(served).items():
        definition = definitions.signature_def[name]
        ParseDict(signature_definition(name, signature), definition)
        for spec in signature.inputs:
            if spec.name in defaults:
                write_tensor(definition.defaults[spec.name], defaults[spec.name], spec)
    response = MESSAGES["GetModelMetadataResponse"](model_spec=_model_spec(served, ""))
    packed = response.metadata["signature_def"]
    packed.type_url = f"type.googleapis.com/{PACKAGE}.SignatureDefMap"
    packed.value = definitions.SerializeToString()
    return Response(response.SerializeToString())


async def _parse(name: str, request: Request, served: ServedModel) -> Any:
    """Return the message of a request, or refuse another model or version."""
    settings = served.settings
    body = await read_body(request, settings)
    try:
        message = MESSAGES[name].FromString(body)
    except DecodeError:
        raise HTTPException(
            400, f"message: expected a {name}, got {len(body)} other bytes; correct the client."
        ) from None
    spec = message.model_spec
    if not spec.name:  # 422, as in TensorFlow Serving
        raise InvalidValue(f"model_spec.name: expected {settings.name}, got no name; set the name.")
    if spec.name != settings.name:
        raise HTTPException(
            404,
            f"model_spec.name: expected {settings.name}, the model of this server, got "
            f"{shorten(spec.name)}; correct the name.",
        )
    if spec.version_label:
        raise InvalidValue(
            "model_spec.version_label: expected no label, because this server has none, got "
            f"{shorten(spec.version_label)}; leave it out."
        )
    if spec.HasField("version") and spec.version.value != int(settings.version):
        raise HTTPException(
            404,
            f"model_spec.version: expected {settings.version}, the version of this server, got "
            f"{spec.version.value}; correct it or leave it out.",
        )
    return message


def _model_spec(served: ServedModel, signature_name: str) -> Any:
    spec = MESSAGES["ModelSpec"](name=served.settings.name, signature_name=signature_name)
    spec.version.value = int(served.settings.version)
    return spec
