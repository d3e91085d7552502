"""TensorFlow Serving's signatures of one model, and its REST API: predict, status and metadata."""

import base64
import contextlib
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tfk_transformer.apps.server.bodies import Body, answer, parse_body, read_body, to_json
from tfk_transformer.apps.server.request_queue import Work
from tfk_transformer.apps.server.routes import REASONS, DescribedRoute
from tfk_transformer.apps.server.served_model import NO_SCORE, ServedModel
from tfk_transformer.config.search_settings import setting_rules, settings_of_numbers
from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.inference import signatures
from tfk_transformer.inference.signatures import Signature, TensorSignature
from tfk_transformer.text.outcome import Outcome, Refused

DTYPES = {"string": "DT_STRING", "int32": "DT_INT32", "float32": "DT_FLOAT"}


class PredictRequest(Body):
    """A request in column format, with `inputs`, or in row format, with `instances`."""

    signature_name: str = "serving_default"
    inputs: dict[str, Any] | list[Any] | None = None
    instances: list[Any] | None = None


def tf_serving_routes(served: ServedModel) -> list[DescribedRoute]:
    """Return the routes of the protocol."""
    settings = served.settings
    model = f"/v1/models/{settings.name}"
    version = f"{model}/versions/{settings.version}"

    async def predict(request: Request) -> Response:
        """Run a signature on texts."""
        try:
            body = await read_body(request, settings)
            parse = functools.partial(parse_body, PredictRequest)
            payload = await served.parse(request, body, parse)
            outputs = await run_signature(served, request, payload)
        except HTTPException as refusal:
            if refusal.status_code in (412, 422):
                refusal.status_code = 400  # as TensorFlow Serving answers invalid requests
            raise
        if payload.instances is None:
            return answer({"outputs": outputs})
        rows = zip(*outputs.values(), strict=True)
        return answer({"predictions": [dict(zip(outputs, row, strict=True)) for row in rows]})

    async def status(request: Request) -> Response:
        """Report that the model is available."""
        no_error = {"error_code": "OK", "error_message": ""}
        state = {"version": settings.version, "state": "AVAILABLE", "status": no_error}
        return answer({"model_version_status": [state]})

    async def metadata(request: Request) -> Response:
        """Describe the signatures."""
        spec = {"name": settings.name, "signature_name": "", "version": settings.version}
        named = served_signatures(served).items()
        definitions = {name: signature_definition(name, signature) for name, signature in named}
        return answer(
            {"model_spec": spec, "metadata": {"signature_def": {"signature_def": definitions}}}
        )

    errors = [status for status in REASONS if status != 422]  # predict answers 400 instead
    routes = []
    for path in (model, version):
        routes += [
            DescribedRoute("POST", f"{path}:predict", predict, PredictRequest, errors=errors),
            DescribedRoute("GET", path, status),
            DescribedRoute("GET", f"{path}/metadata", metadata),
        ]
    return routes


def served_signatures(served: ServedModel) -> dict[str, Signature]:
    """Return the signatures of a server by name."""
    if served.classifies:
        names, known = ["serving_default", "classify"], signatures.CLASSIFIER_SAVED_MODEL
    else:
        names, known = ["serving_default", "translate", "score"], signatures.SAVED_MODEL
    return {name: known[name] for name in names}


def served_signature(served: ServedModel, name: str) -> Signature:
    """Return a signature, or refuse its name with status 412."""
    signatures_by_name = served_signatures(served)
    if name not in signatures_by_name:
        raise HTTPException(
            412,
            f"signature_name: expected one of {', '.join(signatures_by_name)}, got "
            f"'{shorten(name)}'; correct the name.{nearest(name, signatures_by_name)}",
        )
    return signatures_by_name[name]


async def run_signature(
    served: ServedModel, request: Request, payload: PredictRequest
) -> dict[str, list[Any]]:
    """Run the signature that a request names, and return its outputs by name."""
    name = payload.signature_name
    columns = _columns(payload, served_signature(served, name))
    if name == "score":
        sources = _texts(columns, "source")
        targets = _texts(columns, "target", len(sources))
        outcomes = await served.outcomes(request, Work("score"), sources, targets)
        outputs = _columns_of(outcomes, log_probability=math.nan, tokens=[], token_log_probs=[])
        longest = max(map(len, outputs["tokens"]), default=0)
        for column, padding in (("tokens", ""), ("token_log_probs", 0.0)):
            outputs[column] = [[*row, *[padding] * (longest - len(row))] for row in outputs[column]]
        return outputs
    texts = _texts(columns, "text")
    if served.classifies:
        outcomes = await served.outcomes(request, served.work({}), texts)
        outputs = _columns_of(outcomes, label="", probability=math.nan)
        if name == "classify":
            unknown = dict.fromkeys(getattr(served.model, "labels", ()), math.nan)
            rows = _columns_of(outcomes, probabilities=unknown)["probabilities"]
            outputs["probabilities"] = [list(row.values()) for row in rows]
        return outputs
    search = {key: value for key, value in columns.items() if key not in ("text", "prefix")}
    # Requests are made for a SavedModel, whose inputs are numbers.
    work = served.work(settings_of_numbers(search, setting_rules()))
    prefixes = _texts(columns, "prefix") if "prefix" in columns else [""]
    if len(prefixes) == 1:
        prefixes = prefixes * len(texts)
    else:
        prefixes = _texts(columns, "prefix", len(texts))
    n_best = dict(work.settings).get("n_best", 1)
    outcomes = await served.outcomes(request, work, texts, prefixes)
    rows = [_hypotheses(outcome, n_best) for outcome in outcomes]
    translations = [[text for text, _ in row] for row in rows]
    scores = [[score for _, score in row] for row in rows]
    if name == "translate":
        return {"translations": translations, "scores": scores}
    return {"translation": [row[0] for row in translations], "score": [row[0] for row in scores]}


def _columns(payload: PredictRequest, signature: Signature) -> dict[str, Any]:
    """Return the inputs by name, or refuse those that do not match the signature."""
    if (payload.inputs is None) == (payload.instances is None):
        raise HTTPException(
            400,
            'body: expected either "inputs" or "instances", got neither or both; send one of them.',
        )
    rows = payload.instances
    texts = [spec for spec in signature.inputs if spec.dtype == "string"]
    required = [spec.name for spec in texts if spec is not signatures.PREFIX]
    columns = payload.inputs if rows is None else rows
    if rows and all(isinstance(row, dict) and row.keys() == set(required) for row in rows):
        columns = {name: [row[name] for row in rows] for name in required}
    if isinstance(columns, list) and len(required) == 1:
        columns = {required[0]: columns}  # a single input needs no name
    names = [spec.name for spec in signature.inputs]
    if not isinstance(columns, dict) or not set(required) <= columns.keys() <= set(names):
        received = shorten(", ".join(columns) or "none") if isinstance(columns, dict) else "a list"
        raise HTTPException(
            400,
            f"inputs: expected {', '.join(required)} by name, and no names except "
            f"{', '.join(names)}, got {received}; correct the inputs.",
        )
    return columns


def _texts(columns: Mapping[str, Any], name: str, count: int | None = None) -> list[str]:
    """Return an input that consists of texts: strings or {"b64": …}."""
    values = columns[name]
    texts = [_decode_text(value) for value in values] if isinstance(values, list) else [None]
    if None in texts or count not in (None, len(texts)):
        number = "texts" if count is None else f"{count} texts"
        raise HTTPException(
            400,
            f"{name}: expected a list of {number}, got {shorten(to_json(values))}; correct this "
            "input.",
        )
    return [text for text in texts if text is not None]


def _decode_text(value: Any) -> str | None:
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        with contextlib.suppress(ValueError):
            return base64.b64decode(value["b64"], validate=True).decode("utf-8")
    return value if isinstance(value, str) else None


def _hypotheses(outcome: Outcome[Any], n_best: int) -> list[tuple[str, float]]:
    if isinstance(outcome, Refused):
        return [("", math.nan)] * n_best  # as in a SavedModel
    hypotheses = [(hypothesis.text, hypothesis.score) for hypothesis in outcome.hypotheses]
    return hypotheses + [("", NO_SCORE)] * (n_best - len(hypotheses))


def _columns_of(outcomes: Sequence[Outcome[Any]], **missing: Any) -> dict[str, list[Any]]:
    """Return fields of outcomes by name; `missing` are the values of a text that was refused."""
    return {
        name: [
            value if isinstance(outcome, Refused) else getattr(outcome, name)
            for outcome in outcomes
        ]
        for name, value in missing.items()
    }


def signature_definition(name: str, signature: Signature) -> dict[str, Any]:
    """Return a signature as a SignatureDef in JSON."""

    def tensors(specs: Sequence[TensorSignature], prefix: str) -> dict[str, Any]:
        definitions = {}
        for spec in specs:
            sizes = [str(size) if isinstance(size, int) else "-1" for size in spec.shape]
            shape = {"dim": [{"size": size, "name": ""} for size in sizes], "unknown_rank": False}
            definitions[spec.name] = {
                "dtype": DTYPES[spec.dtype],
                "tensor_shape": shape,
                "name": f"{prefix}_{spec.name}:0",
            }
        return definitions

    return {
        "inputs": tensors(signature.inputs, name),
        "outputs": tensors(signature.outputs, "StatefulPartitionedCall"),
        "method_name": "tensorflow/serving/predict",
    }
