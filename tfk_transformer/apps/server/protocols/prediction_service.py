"""TensorFlow Serving's PredictionService: Predict and GetModelMetadata of one model."""

import functools
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tfk_transformer.apps.server.bodies import read_body
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


def prediction_routes(served: ServedModel) -> list[Route]:
    """Return the methods of the service as routes whose bodies are serialized messages."""
    methods = {"Predict": _predict, "GetModelMetadata": _metadata}
    return [
        Route(f"/{SERVICE}/{name}", functools.partial(method, served), methods=["POST"])
        for name, method in methods.items()
    ]


async def _predict(served: ServedModel, request: Request) -> Response:
    """Run a signature on texts."""
    settings = served.settings
    message = await _parse("PredictRequest", request, settings)
    _check_model(message.model_spec, settings)
    name = message.model_spec.signature_name or "serving_default"
    signature = served_signature(served, name)
    names = _output_names(message.output_filter, signature)
    columns = _read_inputs(message.inputs, signature, settings.max_texts)
    payload = PredictRequest(signature_name=name, inputs=columns)
    outputs = await run_signature(served, request, payload)
    response = MESSAGES["PredictResponse"](model_spec=_model_spec(settings, name))
    for spec in signature.outputs:
        if spec.name in names:
            tensor = write_tensor(outputs[spec.name], spec.dtype, len(spec.shape))
            response.outputs[spec.name].CopyFrom(tensor)
    return Response(response.SerializeToString())


async def _metadata(served: ServedModel, request: Request) -> Response:
    """Describe the signatures."""
    settings = served.settings
    message = await _parse("GetModelMetadataRequest", request, settings)
    _check_model(message.model_spec, settings)
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
    """Return the message of a request.

    Raises:
        HTTPException: 400 if it is not a message. See also `read_body`.
    """
    body = await read_body(request, settings)
    try:
        return MESSAGES[name].FromString(body)
    except DecodeError:
        raise HTTPException(
            400, f"message: expected a {name}, got {len(body)} other bytes; correct the client."
        ) from None


def _check_model(spec: Any, settings: ServerSettings) -> None:
    """Refuse another model or version.

    Raises:
        HTTPException: 422 without a name or with a label, as in TensorFlow Serving; otherwise 404.
    """
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
    """Return the names of the requested outputs: all by default.

    Raises:
        HTTPException: 422 for an unknown or repeated name.
    """
    names = [spec.name for spec in signature.outputs]
    if len(set(output_filter)) < len(output_filter) or not set(output_filter) <= set(names):
        raise HTTPException(
            422,
            f"output_filter: expected names among {', '.join(names)}, each once, got "
            f"{shorten(', '.join(output_filter))}; correct the names.",
        )
    return set(output_filter or names)


def _read_inputs(inputs: Any, signature: Signature, max_values: int) -> dict[str, Any]:
    """Return the values of the inputs by name; None for unknown names, which are refused later.

    Raises:
        HTTPException: 422, see `read_tensor`.
    """
    columns: dict[str, Any] = dict.fromkeys(inputs)
    for spec in signature.inputs:
        if spec.name in inputs:
            columns[spec.name] = read_tensor(inputs[spec.name], spec, max_values)
    return columns


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
                tensor = write_tensor(defaults[spec.name], spec.dtype, len(spec.shape))
                definition.defaults[spec.name].CopyFrom(tensor)
    return message
