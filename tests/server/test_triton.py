"""The server as Triton's clients use it: binary tensors, compressed bodies, model descriptions."""

import asyncio
import gzip
import json
import re
import struct
import zlib

import pytest

MODEL = "/v2/models/numbers"
INFER = f"{MODEL}/infer"
JSON_LENGTH = "Inference-Header-Content-Length"
TEXTS = ["forty-two", "seven"]


@pytest.fixture(scope="module")
def small(serve):
    """A server with small limits."""
    return serve("--max-body", 2000, "--max-texts", 3, "--max-characters", 50)


def packed(*texts):
    """The bytes of a BYTES tensor."""
    encoded = [text.encode() for text in texts]
    return b"".join(struct.pack("<I", len(text)) + text for text in encoded)


def unpacked(content):
    """The texts of a BYTES tensor."""
    texts = []
    while content:
        end = 4 + int.from_bytes(content[:4], "little")
        texts.append(content[4:end].decode())
        content = content[end:]
    return texts


def request_of(*texts, size=None, **fields):
    """The JSON part of a request whose texts are binary."""
    parameters = {"binary_data_size": len(packed(*texts)) if size is None else size}
    tensor = {
        "name": "text",
        "shape": [len(texts)],
        "datatype": "BYTES",
        "parameters": parameters,
    }
    return {"inputs": [tensor], **fields}


def infer(server, request, binary, encoding=None):
    """Send a request as Triton's client does."""
    json_part = json.dumps(request, separators=(",", ":")).encode()
    headers = {JSON_LENGTH: str(len(json_part))}
    body = json_part + binary
    if encoding is not None:
        headers["Content-Encoding"] = encoding
        body = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding](body)
    return server.send(INFER, body, headers=headers)


def outputs_of(answer):
    """The outputs of an answer, with the data of the binary ones in `data`."""
    assert answer.status == 200, answer.content
    if JSON_LENGTH.lower() not in answer.headers:
        return answer.content["outputs"]
    length = int(answer.headers[JSON_LENGTH.lower()])
    outputs = json.loads(answer.content[:length])["outputs"]
    position = length
    for output in outputs:
        if "data" not in output:
            end = position + output["parameters"]["binary_data_size"]
            part = answer.content[position:end]
            position = end
            floats = output["datatype"] == "FP32"
            values = struct.unpack(f"<{len(part) // 4}f", part) if floats else unpacked(part)
            output["data"] = list(values)
    assert position == len(answer.content)
    return outputs


def test_default_call_of_tritonclient(server, local_model):
    # The bytes of tritonclient 2.73 for `infer("numbers", [text])`.
    body = (
        b'{"inputs":[{"name":"text","shape":[2],"datatype":"BYTES","parameters":'
        b'{"binary_data_size":22}}],"parameters":{"binary_data_output":true}}'
        b"\x09\0\0\0forty-two\x05\0\0\0seven"
    )
    answer = server.send(INFER, body, headers={JSON_LENGTH: "137"})
    assert answer.headers["content-type"] == "application/octet-stream"
    text, score = outputs_of(answer)
    assert text == {
        "name": "translation",
        "datatype": "BYTES",
        "shape": [2],
        "parameters": {"binary_data_size": 28},
        "data": ["zweiundvierzig", "sieben"],
    }
    expected = [translation.score for translation in local_model.translate(TEXTS)]
    assert score["data"] == pytest.approx(expected, abs=1e-4)
    assert (score["datatype"], score["parameters"]) == ("FP32", {"binary_data_size": 8})


@pytest.mark.parametrize(
    ("fields", "binary"),
    [
        ({}, [False, False]),
        ({"parameters": {"binary_data_output": True}}, [True, True]),
        (
            {
                "outputs": [
                    {"name": "translation", "parameters": {"binary_data": True}},
                    {"name": "score"},
                ]
            },
            [True, False],
        ),
        (
            {
                "parameters": {"binary_data_output": True},
                "outputs": [{"name": "score", "parameters": {"binary_data": False}}],
            },
            [False],
        ),
    ],
)
def test_outputs_are_binary_on_request(server, fields, binary):
    answer = infer(server, request_of("seven", **fields), packed("seven"))
    assert ["parameters" in output for output in outputs_of(answer)] == binary
    json_only = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["seven"]}
    outputs = outputs_of(server.send(INFER, {"inputs": [json_only], **fields}))
    assert ["parameters" in output for output in outputs] == binary


def test_binary_prefix_after_json_text(server):
    text = {"name": "text", "shape": [2], "datatype": "BYTES", "data": TEXTS}
    (prefix,) = request_of("", "neun")["inputs"]
    prefix |= {"name": "prefix", "shape": [2, 1]}
    answer = infer(server, {"inputs": [text, prefix]}, packed("", "neun"))
    first, second = outputs_of(answer)[0]["data"]
    assert first == "zweiundvierzig"
    assert second.startswith("neun")
    swapped = infer(server, {"inputs": [prefix, text]}, packed("", "neun"))
    assert outputs_of(swapped)[0]["data"] == [first, second]


def test_binary_hypotheses_have_a_shape(server, local_model):
    settings = {"n_best": 2, "beam_size": 3, "binary_data_output": True}
    request = request_of(*TEXTS, parameters=settings)
    text, score = outputs_of(infer(server, request, packed(*TEXTS)))
    expected = local_model.translate(TEXTS, n_best=2, beam_size=3)
    assert text["data"] == [h.text for t in expected for h in t.hypotheses]
    assert text["shape"] == score["shape"] == [2, 2]
    assert infer(server, request_of(), b"").content["outputs"][0]["data"] == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_requests(server, encoding):
    answer = infer(server, request_of(*TEXTS), packed(*TEXTS), encoding)
    assert outputs_of(answer)[0]["data"] == ["zweiundvierzig", "sieben"]
    body = gzip.compress(b'{"text_input": "seven"}')
    headers = {"Content-Encoding": "gzip"}
    answer = server.send(f"{MODEL}/generate", body, headers=headers)
    assert answer.content["text_output"] == "sieben"


@pytest.mark.parametrize(
    ("body", "encoding", "status", "message"),
    [
        (b"{}", "br", 415, "Content-Encoding: expected gzip or deflate, got br; .*"),
        (b"{}", "gzip, gzip", 415, "Content-Encoding: expected .*, got gzip, gzip; .*"),
        (b"{}", "gzip", 400, "body: expected gzip data, as Content-Encoding says, got .*"),
        (gzip.compress(b"{}")[:-1], "gzip", 400, "body: expected gzip data, .*"),
        (gzip.compress(b"{}") + b"x", "gzip", 400, "body: expected gzip data, .*"),
        (zlib.compress(b"{}"), "gzip", 400, "body: expected gzip data, .*"),
        (b"", "deflate", 400, "body: expected deflate data, .*"),
        (
            gzip.compress(b" " * 2001),
            "gzip",
            413,
            "body: expected at most 2000 bytes after decompression, got more; .*",
        ),
        (gzip.compress(b"{" + b" " * 1999), "gzip", 400, "body: expected JSON, got .*EOF.*"),
    ],
    # A gzip header holds the time, and every test process must give a test the same name.
    ids=[
        "brotli",
        "twice",
        "not_compressed",
        "cut",
        "longer",
        "deflate_as_gzip",
        "empty",
        "too_large",
        "not_json",
    ],
)
def test_bad_compression_is_refused(small, body, encoding, status, message):
    answer = small.send(INFER, body, headers={"Content-Encoding": encoding})
    assert answer.status == status
    assert re.fullmatch(message, answer.content["error"]), answer.content


@pytest.mark.parametrize(
    ("size", "binary", "message"),
    [
        (10, packed("seven"), r"text: expected no data, and a binary_data_size from 0 to 9, .*"),
        (-1, packed("seven"), r"text: .* got 0 items of data and -1; correct them, .*"),
        (
            8,
            packed("seven"),
            r"text: expected 5 bytes of text 1, got 4; correct the binary tensor.",
        ),
        (9, packed("seven") + b"x", r"body: expected 9 bytes after the JSON part, .*, got 10; .*"),
        (3, b"\x05\0\0", r"text: expected 4 bytes with the length of text 1, got 3; .*"),
        (4, b"\xff\xff\xff\xff", r"text: expected 4294967295 bytes of text 1, got 0; .*"),
        (5, b"\x01\0\0\0\xe4", r"text: expected UTF-8, got the byte 0xe4 in text 1; .*"),
    ],
)
def test_malformed_binary_is_refused(server, size, binary, message):
    answer = infer(server, request_of("seven", size=size), binary)
    assert answer.status == 400
    assert re.fullmatch(message, answer.content["error"]), answer.content


@pytest.mark.parametrize("length", ["", "x", "-1", "1.5", "1e2", "500", "9" * 5000])
def test_bad_json_length_is_refused(server, length):
    answer = server.send(INFER, b"{}" + packed("seven"), headers={JSON_LENGTH: length})
    assert answer.status == 400
    message = f"{JSON_LENGTH}: expected the number of bytes of the JSON part, at most 11, got '"
    assert answer.content["error"].startswith(message)
    assert len(answer.content["error"]) < 250


def test_data_and_binary_data_are_refused(server):
    request = request_of("seven")
    request["inputs"][0]["data"] = ["seven"]
    answer = infer(server, request, packed("seven"))
    assert answer.status == 400
    assert "got 1 items of data and 9;" in answer.content["error"]


@pytest.mark.parametrize(
    ("texts", "shape", "message"),
    [
        (["a"] * 4, [4], "texts: expected at most 3, got 4; .*"),
        (["a" * 51], [1], "texts: expected at most 50 characters each, got 51; .*"),
        (["a\0b"], [1], "texts: expected text, got the character U.0000 .*"),
        (["a", "b"], [1], r"text: expected the shape .*, got \[1\] and 2 texts; .*"),
    ],
)
def test_limits_hold_for_binary_texts(small, texts, shape, message):
    request = request_of(*texts)
    request["inputs"][0]["shape"] = shape
    answer = infer(small, request, packed(*texts))
    assert answer.status == 422
    assert re.fullmatch(message, answer.content["error"]), answer.content
    assert infer(small, request_of("a" * 2000), packed("a" * 2000)).status == 413


@pytest.mark.parametrize("parameter", ["shared_memory_region", "classification"])
def test_other_tensors_are_refused(server, parameter):
    value = 2 if parameter == "classification" else "region"
    outputs = [{"name": "score", "parameters": {parameter: value}}]
    answer = infer(server, request_of("seven", outputs=outputs), packed("seven"))
    assert (answer.status, answer.content["error"]) == (
        422,
        f"score: expected a tensor in JSON or after it, got the parameter {parameter}; leave it "
        "out.",
    )


def test_model_configuration_and_index(server):
    for path in (MODEL, f"{MODEL}/versions/1"):
        configuration = server.send(f"{path}/config").content
        metadata = server.send(path).content
        assert configuration["name"] == "numbers"
        assert configuration["max_batch_size"] == 0
        text, prefix = configuration["input"]
        assert text == {"name": "text", "data_type": "TYPE_STRING", "dims": [-1]}
        assert prefix["optional"] is True
        assert [(tensor["name"], tensor["dims"]) for tensor in configuration["output"]] == [
            (tensor["name"], tensor["shape"]) for tensor in metadata["outputs"]
        ]
    assert {
        f"{MODEL}/config",
        f"{MODEL}/stats",
        "/v2/models/stats",
        "/v2/repository/index",
    } <= set(server.send("/openapi.json").content["paths"])
    index = server.send("/v2/repository/index", "").content
    assert index == [{"name": "numbers", "version": "1", "state": "READY", "reason": ""}]


@pytest.mark.parametrize("path", ["/v2/models/stats", f"{MODEL}/stats"])
def test_statistics_are_at_metrics(server, path):
    answer = server.send(path)
    assert (answer.status, answer.content["error"]) == (
        404,
        "statistics: expected GET /metrics, which has the counts and times of this server, got "
        f"{path}; read /metrics.",
    )


def test_tritonclient_translates(server):
    client_module = pytest.importorskip("tritonclient.http")
    numpy = pytest.importorskip("numpy")
    client = client_module.InferenceServerClient(f"127.0.0.1:{server.port}")
    text = client_module.InferInput("text", [2], "BYTES")
    text.set_data_from_numpy(numpy.array(TEXTS, dtype=object))
    compressed = {"request_compression_algorithm": "gzip", "response_compression_algorithm": "gzip"}
    for answer in (
        client.infer("numbers", [text]),
        client.infer("numbers", [text], **compressed),
        client.async_infer("numbers", [text]).get_result(),
    ):
        assert answer.as_numpy("translation").tolist() == [b"zweiundvierzig", b"sieben"]
        assert answer.as_numpy("score").dtype == numpy.float32
    assert client.is_server_ready()
    assert client.is_model_ready("numbers")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_config("numbers")["name"] == "numbers"
    assert client.get_model_repository_index()[0]["state"] == "READY"
    with pytest.raises(client_module.InferenceServerException, match="read /metrics"):
        client.get_inference_statistics()
    with pytest.raises(client_module.InferenceServerException, match="model: .* got foo;"):
        client.infer("foo", [text])


def test_asynchronous_tritonclient_translates(server):
    client_module = pytest.importorskip("tritonclient.http.aio")
    numpy = pytest.importorskip("numpy")

    async def translate():
        async with client_module.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            text = client_module.InferInput("text", [1], "BYTES")
            text.set_data_from_numpy(numpy.array(["seven"], dtype=object))
            answer = await client.infer("numbers", [text])
            return answer.as_numpy("translation").tolist()

    assert asyncio.run(translate()) == [b"sieben"]
