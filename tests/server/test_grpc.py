"""TensorFlow Serving's own gRPC client, with the message classes of `tensorflow-serving-api`."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    model_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tfk_transformer.apps.server.protocols.grpc_server import start_grpc_server
from tfk_transformer.apps.server.protocols.prediction_messages import MESSAGES, PACKAGE
from tfk_transformer.apps.server.served_model import ServedModel
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.runtime_environment import install_line
from tfk_transformer.text.results import Classification

GUIDE = Path(__file__).parents[2] / "docs" / "serving.md"
PREDICT = f"/{PACKAGE}.PredictionService/Predict"
TEXTS = ["forty-two", "seven"]
INVALID, UNAVAILABLE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE
KEY = "geheim"


def service(server):
    return prediction_service_pb2_grpc.PredictionServiceStub(
        grpc.insecure_channel(server.lines()[0]["grpc"])
    )


def message(signature="", model="numbers", **inputs):
    """A request; arrays have TensorFlow's dtypes, and other values NumPy's."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        tensor = value if isinstance(value, tensor_pb2.TensorProto) else tf.make_tensor_proto(value)
        request.inputs[name].CopyFrom(tensor)
    return request


def arrays(response):
    """The outputs as JSON has them."""

    def decoded(value):
        if isinstance(value, list):
            return [decoded(item) for item in value]
        return value.decode() if isinstance(value, bytes) else value

    return {
        name: decoded(tf.make_ndarray(tensor).tolist()) for name, tensor in response.outputs.items()
    }


def error_of(call, *arguments, **options):
    """The status and the details of a call that fails."""
    with pytest.raises(grpc.RpcError) as raised:
        call(*arguments, timeout=60, **options)
    return raised.value.code(), raised.value.details()


@pytest.fixture(
    scope="module",
    # The other server starts TensorFlow, as one of test_protocols.py does.
    params=["translate.onnx", pytest.param("saved_model", marks=pytest.mark.long)],
)
def server(request, serve):
    return serve("--grpc-port", 0, "--drain-delay", 0, file=request.param)


@pytest.fixture(scope="module")
def predict(server):
    return service(server).Predict


def test_documented_grpc_client_works(server, local_model):
    (code,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        if "PredictionServiceStub" in block
    ]
    values = {}
    exec(code.replace("localhost:8500", server.lines()[0]["grpc"]), values)
    expected = local_model.translate(TEXTS, n_best=2)
    assert values["translations"] == [[h.text for h in t.hypotheses] for t in expected]
    np.testing.assert_allclose(
        values["scores"], [[h.score for h in t.hypotheses] for t in expected], atol=1e-4
    )


@pytest.mark.parametrize(
    "signature,inputs",
    [
        ("serving_default", {"text": TEXTS}),
        ("translate", {"text": TEXTS, "prefix": ["neun"], "n_best": 2, "length_penalty": 0.6}),
        ("translate", {"text": TEXTS, "prefix": ["", "neun"], "n_best": 6, "beam_size": 6}),
        ("translate", {"text": ["one " * 500, ""]}),
        ("score", {"source": TEXTS, "target": ["zweiundvierzig", "neun"]}),
    ],
)
def test_outputs_equal_rest(server, predict, signature, inputs):
    rest = server.send(
        "/v1/models/numbers:predict", {"signature_name": signature, "inputs": inputs}
    )
    response = predict(message(signature, **inputs), timeout=60)
    outputs = arrays(response)
    assert outputs.keys() == rest.content["outputs"].keys()
    for name, values in rest.content["outputs"].items():
        if isinstance(np.ravel(values)[0], str) and "NaN" not in np.ravel(values):
            assert outputs[name] == values
        else:
            np.testing.assert_allclose(outputs[name], np.array(values, float), atol=1e-5)
    assert (response.model_spec.name, response.model_spec.version.value) == ("numbers", 1)
    assert response.model_spec.signature_name == signature


def test_unnamed_signature_is_default(predict):
    assert arrays(predict(message(text=TEXTS)))["translation"] == ["zweiundvierzig", "sieben"]


def test_no_texts_have_no_outputs(predict):
    outputs = predict(message(text=tf.make_tensor_proto([], tf.string))).outputs
    assert [tf.make_ndarray(outputs[name]).shape for name in ("translation", "score")] == [(0,)] * 2


def test_output_filter_selects_outputs(predict):
    request = message(text=TEXTS)
    request.output_filter.append("score")
    assert list(predict(request).outputs) == ["score"]
    request.output_filter.append("scores")
    code, details = error_of(predict, request)
    assert code == INVALID
    assert "output_filter: expected names among translation, score" in details


def test_metadata_equals_saved_model(server, exported):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "numbers"
    response = service(server).GetModelMetadata(request, timeout=60)
    assert (response.model_spec.name, response.model_spec.version.value) == ("numbers", 1)
    received = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(received)
    file = saved_model_pb2.SavedModel.FromString(
        (exported / "saved_model" / "saved_model.pb").read_bytes()
    )
    expected = file.meta_graphs[0].signature_def
    assert set(received.signature_def) == {"serving_default", "translate", "score"}
    for name, signature in received.signature_def.items():
        for tensor in [*signature.outputs.values(), *expected[name].outputs.values()]:
            tensor.name = ""  # names of the graph's operations
        assert signature == expected[name], name
    request.metadata_field[:] = ["weights"]
    code, details = error_of(service(server).GetModelMetadata, request)
    assert code == INVALID
    assert "metadata_field: expected signature_def, got weights" in details


@pytest.mark.parametrize(
    "values",
    [
        {"int_val": [2]},
        {"tensor_content": b"\x02\0\0\0"},
    ],
)
def test_other_encodings_of_numbers(predict, values):
    tensor = tensor_pb2.TensorProto(dtype=tf.int32.as_datatype_enum, **values)
    outputs = arrays(predict(message("translate", text=TEXTS, n_best=tensor)))
    assert [len(row) for row in outputs["translations"]] == [2, 2]


def test_omitted_repetitions_are_filled(predict):
    tensor = tf.make_tensor_proto("seven", shape=[3])
    assert len(tensor.string_val) == 1
    assert arrays(predict(message(text=tensor)))["translation"] == ["sieben"] * 3


def text_tensor(shape, **values):
    """A tensor whose fields need not fit together."""
    tensor = tensor_pb2.TensorProto(dtype=tf.string.as_datatype_enum, **values)
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    return tensor


@pytest.mark.parametrize(
    "inputs,details",
    [
        ({"texts": TEXTS}, "inputs: expected text by name, and no names except text, got texts"),
        ({}, "inputs: expected text by name, and no names except text, got none;"),
        ({"text": [1]}, "text: expected DT_STRING of rank 1, got DT_INT32 of shape [1];"),
        ({"text": "seven"}, "text: expected DT_STRING of rank 1, got DT_STRING of shape [];"),
        ({"text": [["a"]]}, "text: expected DT_STRING of rank 1, got DT_STRING of shape [1, 1];"),
        ({"text": text_tensor([-1])}, "got DT_STRING of shape [-1];"),
        ({"text": text_tensor([2**40], string_val=[b"a"])}, "at most 256 values, got 109951162777"),
        ({"text": text_tensor([1], string_val=[b"a", b"b"])}, "text: expected 1 values, as the"),
        ({"text": text_tensor([1], tensor_content=b"\1a")}, "in string_val, got 2 bytes in tensor"),
        ({"text": text_tensor([1], string_val=[b"\xff"])}, r"text: expected UTF-8, got b'\xff';"),
        ({"text": ["a"] * 257}, "text: expected at most 256 values, got 257;"),
        ({"text": ["a" * 5001]}, "texts: expected at most 5000 characters each, got 5001;"),
    ],
)
def test_wrong_texts_are_invalid(predict, inputs, details):
    code, received = error_of(predict, message(**inputs))
    assert code == INVALID
    assert details in received


@pytest.mark.parametrize(
    "inputs,details",
    [
        ({"beam_size": np.int64(2)}, "beam_size: expected DT_INT32 of rank 0, got DT_INT64 of"),
        ({"beam_size": np.int32([2])}, "beam_size: expected DT_INT32 of rank 0, got DT_INT32 of"),
        ({"beam_size": 17}, "beam_size: expected at most 16, got 17;"),
        ({"beam_size": 0}, "beam_size: expected an integer"),
        ({"length_penalty": 1}, "length_penalty: expected DT_FLOAT of rank 0, got DT_INT32"),
        ({"prefix": ["a"] * 3}, "prefix: expected a list of 2 texts"),
    ],
)
def test_wrong_settings_are_invalid(predict, inputs, details):
    code, received = error_of(predict, message("translate", text=TEXTS, **inputs))
    assert code == INVALID
    assert details in received


def test_other_models_are_not_found(predict):
    other = message(model="foo", text=TEXTS)
    assert error_of(predict, other) == (
        grpc.StatusCode.NOT_FOUND,
        "model_spec.name: expected numbers, the model of this server, got foo; correct the name.",
    )
    unnamed = message(model="", text=TEXTS)
    code, details = error_of(predict, unnamed)
    assert code == INVALID
    assert "expected numbers, got no name" in details


def test_versions_as_in_tensorflow_serving(predict):
    request = message(text=TEXTS)
    request.model_spec.version.value = 1
    assert predict(request).outputs
    request.model_spec.version.value = 2
    code, details = error_of(predict, request)
    assert code == grpc.StatusCode.NOT_FOUND
    assert "expected 1, the version of this" in details
    request.model_spec.version_label = "stable"  # instead of the number
    code, details = error_of(predict, request)
    assert code == INVALID
    assert "expected no label, because" in details
    assert "stable" in details


def test_unknown_signature_is_refused(predict):
    code, details = error_of(predict, message("translat", text=TEXTS))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "got 'translat'; correct the name. Did you mean 'translate'?" in details


def test_other_methods_are_unimplemented(server):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    call = grpc.insecure_channel(server.lines()[0]["grpc"]).unary_unary(
        f"/{PACKAGE}.PredictionService/Classify", type(request).SerializeToString
    )
    assert error_of(call, request)[0] == grpc.StatusCode.UNIMPLEMENTED


def test_malformed_messages_are_invalid(server):
    call = grpc.insecure_channel(server.lines()[0]["grpc"]).unary_unary(PREDICT)
    code, details = error_of(call, b"\xff\xff")
    assert code == INVALID
    assert "message: expected a PredictRequest, got 2 other bytes" in details


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_large_messages_are_refused(predict, compression):
    request = message(text=["a" * 2**20])
    code, _ = error_of(predict, request, compression=compression)
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_calls_are_logged_and_counted(server, predict):
    """The lines of calls before may come later, since gRPC has a connection of its own."""

    def logged(status, texts):
        values = {"method": "POST", "path": PREDICT, "status": status, "texts": texts}
        return [line for line in server.requests() if line.items() >= values.items()]

    refused = len(logged(412, 0))
    predict(message(text=TEXTS * 4))
    error_of(predict, message("translat", text=TEXTS))
    server.wait_until(lambda: logged(200, 4 * len(TEXTS)) and len(logged(412, 0)) > refused)
    counter = f'tfk_requests_total{{method="POST",path="{PREDICT}",status="412"}}'
    assert counter in server.send("/metrics").content.decode()


def test_calls_need_the_key(serve):
    server = serve(
        "--grpc-port", 0, "--drain-delay", 0, environment={"TFK_TRANSFORMER_API_KEY": KEY}
    )
    predict = service(server).Predict
    for metadata in ([], [("x-api-key", "other")], [("authorization", f"Basic {KEY}")]):
        code, details = error_of(predict, message(text=TEXTS), metadata=metadata)
        assert code == grpc.StatusCode.UNAUTHENTICATED
        assert "API key: expected" in details
    for metadata in ([("x-api-key", KEY)], [("authorization", f"Bearer {KEY}")]):
        assert predict(message(text=TEXTS), timeout=60, metadata=metadata).outputs


def test_calls_drain_and_texts_leave_queue(serve):
    """The texts wait until the server ends: a deadline passes, and the queue becomes full."""
    server = serve(
        *("--grpc-port", 0, "--max-delay", 10_000, "--drain-delay", 0),
        *("--max-queue", 2, "--max-texts", 2, "--max-batch", 3, "--timeout", 60),
    )
    predict = service(server).Predict
    with pytest.raises(grpc.RpcError) as raised:
        predict(message(text=TEXTS), timeout=1)
    assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    server.wait_until(lambda: server.metric("tfk_requests_in_flight") == 0)
    assert [line["status"] for line in server.requests() if line["path"] == PREDICT] == [499]
    accepted = predict.future(message(text=TEXTS), timeout=60)
    server.wait_until(lambda: server.metric("tfk_queue_texts") == 2)
    code, details = error_of(predict, message(text=["nine"]))
    assert code == UNAVAILABLE
    assert details.startswith("queue: expected at most 2")
    server.begin_to_end(signal.SIGTERM)
    code, details = error_of(predict, message(text=["nine"]))
    assert code == UNAVAILABLE
    assert "got a server that is shutting down" in details
    assert arrays(accepted.result())["translation"] == ["zweiundvierzig", "sieben"]
    assert server.process.wait(60) == 0


def test_late_answers_exceed_the_deadline(serve):
    server = serve("--grpc-port", 0, "--max-delay", 10_000, "--timeout", 0.1, "--drain-delay", 0)
    code, details = error_of(service(server).Predict, message(text=TEXTS))
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert "answer within 0.1 s" in details


def test_stalled_calls_are_limited(serve):
    """Calls whose messages do not arrive hold up other calls until their time is up."""
    server = serve(
        *("--grpc-port", 0, "--max-queue", 2, "--max-texts", 2),
        *("--body-timeout", 3, "--drain-delay", 0),
    )
    client = service(server)
    channel = grpc.insecure_channel(server.lines()[0]["grpc"])
    sending = threading.Event()
    request = message(text=TEXTS)

    def messages():
        sending.wait()
        yield request.SerializeToString()

    stalled = [channel.stream_unary(PREDICT).future(messages()) for _ in range(2)]
    server.wait_until(lambda: server.metric("tfk_requests_in_flight") == 2)
    assert error_of(client.Predict, request)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    codes = [call.code() for call in stalled]  # each waits for the end of its call
    sending.set()
    assert codes == [grpc.StatusCode.DEADLINE_EXCEEDED] * 2
    assert arrays(client.Predict(request, timeout=60))["translation"][1] == "sieben"
    statuses = [line["status"] for line in server.requests() if line["path"] == PREDICT]
    assert statuses == [408, 408, 200]
    channel.close()
    port = int(server.lines()[0]["grpc"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as silent:
        while silent.recv(1000):
            pass


def test_canceled_calls_are_logged(server):
    channel = grpc.insecure_channel(server.lines()[0]["grpc"])
    sending = threading.Event()

    def messages():
        sending.wait()
        yield b""

    def canceled():
        return [line for line in server.requests() if line["status"] == 499]

    before = len(canceled())
    calls = [channel.stream_unary(PREDICT).future(messages()) for _ in range(5)]
    server.wait_until(lambda: server.metric("tfk_requests_in_flight") == 5)
    for call in calls:
        call.cancel()
    server.wait_until(lambda: len(canceled()) == before + 5)
    counter = f'tfk_requests_total{{method="POST",path="{PREDICT}",status="499"}}'
    assert server.metric(counter) == before + 5
    sending.set()
    channel.close()


class LengthClassifier(BaseClassifier):
    """Classifies texts as short or long, without a model."""

    def __init__(self):
        runtime = SimpleNamespace(labels=["short", "long"], preload=lambda: None)
        super().__init__(runtime)

    def try_classify(self, texts, *, batch_size=64):
        assert "secret" not in texts, "the text secret"
        short = {"short": 0.75, "long": 0.25}
        return [Classification(text, "short", 0.75, short) for text in texts]


async def with_classifier(send):
    """Return the result of `send`, which gets a client of a server in this process."""
    # The root path is for HTTP: the paths of calls stay as they are.
    settings = ServerSettings(name="numbers", root_path=f"/{PREDICT.split('/')[1]}")
    served = ServedModel(LengthClassifier(), settings)
    server, address = await start_grpc_server(served, "127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            return await send(prediction_service_pb2_grpc.PredictionServiceStub(channel))
    finally:
        await server.stop(0)
        served.stop()


def test_classifiers_answer_grpc():
    async def send(client):
        requests = [message(text=["a", "b"]), message("classify", text=["a", "b"])]
        responses = [await client.Predict(request, timeout=60) for request in requests]
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = "numbers"
        return responses, await client.GetModelMetadata(request, timeout=60)

    (default, classified), metadata = asyncio.run(with_classifier(send))
    expected = {"label": ["short", "short"], "probability": [0.75, 0.75]}
    assert arrays(default) == expected
    assert arrays(classified) == {**expected, "probabilities": [[0.75, 0.25]] * 2}
    signatures = get_model_metadata_pb2.SignatureDefMap.FromString(
        metadata.metadata["signature_def"].value
    )
    assert set(signatures.signature_def) == {"serving_default", "classify"}


def test_model_errors_are_internal():
    async def send(client):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.Predict(message(text=["secret"]), timeout=60)
        return raised.value

    error = asyncio.run(with_classifier(send))
    assert error.code() == grpc.StatusCode.INTERNAL
    assert "secret" not in error.details()
    assert error.details().startswith("server: expected a result of the model, got an error;")


def refusal(model, *options, blocked=()):
    """The last line of a server that does not start."""
    code = f"import sys; sys.modules.update(dict.fromkeys({list(blocked)}))\n"
    code += "from tfk_transformer.apps.cli.main import main; main()"
    command = [sys.executable, "-c", code, "serve", model, *options]
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env={**os.environ, "COLUMNS": "400"}
    )
    assert done.returncode, done.stdout
    return done.stderr.splitlines()[-1]


def test_missing_grpcio_is_refused(exported):
    line = refusal(exported / "translate.onnx", "--grpc-port", 0, blocked=["grpc"])
    assert line.endswith(f"grpc is not installed. Install it with: {install_line('grpc')}")


def test_used_grpc_port_is_refused(serve, exported):
    port = serve("--grpc-port", 0).lines()[0]["grpc"].rpartition(":")[2]
    line = refusal(exported / "translate.onnx", "--port", 0, "--grpc-port", port)
    assert f"--grpc-port {port}: cannot listen there: " in line
    assert "choose another port" in line


def test_messages_equal_tensorflows():
    """Every declared field has the number, the type and the label of TensorFlow's field."""
    modules = (tensor_pb2, tensor_shape_pb2, meta_graph_pb2, model_pb2, predict_pb2)
    modules += (get_model_metadata_pb2,)
    originals = {name: vars(module)[name] for module in modules for name in vars(module)}

    def numbers(descriptor):
        declared = descriptor_pb2.DescriptorProto()
        descriptor.CopyToProto(declared)
        return {(field.name, field.number, field.type, field.label) for field in declared.field}

    for name, message_class in MESSAGES.items():
        if name in originals:
            assert numbers(message_class.DESCRIPTOR) <= numbers(originals[name].DESCRIPTOR), name
    assert {"Any", "Int64Value", "Dim"} == set(MESSAGES) - set(originals)
