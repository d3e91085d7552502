"""What the server refuses: limits, malformed requests, and requests without the API key."""

import json
import random
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

PREDICT, INFER, STREAM = (
    "/v1/models/numbers:predict",
    "/v2/models/numbers/infer",
    "/v2/models/numbers/generate_stream",
)
SETTINGS = {"text": ["forty-two"], "n_best": 1}


@pytest.fixture(scope="module")
def small(serve):
    """A server with small limits."""
    limits = (
        "--max-body",
        2000,
        "--max-texts",
        3,
        "--max-characters",
        50,
        "--max-beam-size",
        4,
        "--max-cost",
        110,
        "--body-timeout",
        3,
    )
    return serve(*limits, "--setting", "n_best=2", "--beam-size", 3)


def error_of(answer):
    assert set(answer.content) == {"error"}
    return answer.content["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "body: expected JSON, got invalid JSON .EOF while parsing"),
        ('{"inputs": ', "body: expected JSON"),
        (b'{"inputs": "\xff"}', "body: expected JSON"),
        ("[" * 100_000, "body: expected JSON, got invalid JSON .recursion limit"),
        ([], "body: expected the fields that /docs shows, got errors"),
        (
            {},
            'body: expected either "inputs" or "instances", got neither or both; send one of them.',
        ),
        ({"inputs": ["a"], "instances": ["a"]}, "got neither or both"),
        (
            {"signature_name": "translat", "inputs": ["a"]},
            "signature_name: expected one of .*score.*, got 'translat'; correct the name.",
        ),
        (
            {"signature_name": ["score"], "inputs": ["a"]},
            "signature_name: Input should be a valid string",
        ),
        ({"inputs": {}}, "inputs: expected text by name"),
        ({"inputs": {"text": ["a"], "texts": ["b"]}}, "inputs: expected text by name"),
        ({"inputs": "seven"}, "body: expected the fields"),
        ({"instances": 3}, "instances: Input should be a valid array"),
        (
            {"signature_name": "score", "instances": ["a"]},
            "inputs: expected source, target by name",
        ),
        (
            {"signature_name": "score", "inputs": {"source": ["a"], "target": []}},
            "target: expected a list of 1 texts, got .]; correct",
        ),
        (
            {"inputs": {"text": "seven"}},
            'text: expected a list of texts, got "seven"; correct this input.',
        ),
        ({"inputs": {"text": [["seven"]]}}, "text: expected a list of texts"),
        ({"inputs": {"text": [1]}}, "text: expected a list of texts"),
        ({"inputs": {"text": [None]}}, "text: expected a list of texts"),
        ({"inputs": {"text": [{"b64": "!"}]}}, "text: expected a list of texts"),
        ('{"inputs": {"text": ["\\ud800"]}}', "body: expected JSON|texts: expected text"),
        ({"inputs": {"text": ["a\0"]}}, r"texts: expected text, got the character U\+0000"),
        ({"signature_name": "translate", "inputs": {**SETTINGS, "n_best": 10**30}}, "n_best"),
        (
            {"signature_name": "translate", "inputs": {**SETTINGS, "n_best": 1.5}},
            "n_best: expected an integer of at least 1",
        ),
        (
            {"signature_name": "translate", "inputs": {**SETTINGS, "n_best": True}},
            "n_best: expected an integer of at least 1",
        ),
        (
            {"signature_name": "translate", "inputs": {**SETTINGS, "n_best": 5}},
            "n_best: expected at most beam_size",
        ),
        (
            {"signature_name": "translate", "inputs": {**SETTINGS, "beam_size": 17}},
            "beam_size: expected at most 16, got 17; choose",
        ),
        (
            {"signature_name": "translate", "inputs": {**SETTINGS, "max_length": 256}},
            "max_length: .* at most 32, got 256",
        ),
        (
            {"signature_name": "translate", "inputs": {**SETTINGS, "prefix": ["a", "b", "c"]}},
            "prefix: expected a list of 1 texts",
        ),
    ],
)
def test_invalid_predict_gives_400(server, body, message):
    answer = server.send(PREDICT, body)
    assert answer.status == 400
    assert re.search(message, error_of(answer)), answer.content


def test_too_large_body_is_refused(small):
    body = json.dumps({"instances": ["one " * 500]})
    answer = small.send(PREDICT, body)
    assert (answer.status, error_of(answer)) == (
        413,
        "body: expected at most 2000 bytes, got more; send fewer texts at a time.",
    )
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\n".encode()
    assert small.send_raw(head + b"Content-Length: 99999999999\r\n\r\n") == 413
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:1000].encode(), body[1000:].encode())
    )
    assert (
        small.send_raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n") == 413
    )
    assert small.send_raw(head + b"Content-Length: -1\r\n\r\n") == 400
    assert small.send_raw(b"POST\r\n\r\n") == 400
    assert small.send_raw(f"BREW {PREDICT} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()) == 400


def test_oversized_body_gets_answer(server):
    answer = server.send(PREDICT, {"instances": ["one " * 500_000]})
    assert (answer.status, error_of(answer)) == (
        413,
        "body: expected at most 1048576 bytes, got more; send fewer texts at a time.",
    )


def test_stalled_body_is_refused(small):
    with socket.create_connection(("127.0.0.1", small.port)) as half:
        half.sendall(
            (
                f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                f'30\r\n\r\n{{"instances"'
            ).encode()
        )
        assert small.predict("nine").content["outputs"]["translation"] == ["neun"]
        half.settimeout(60)
        assert half.recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/translate",
            {"q": ["one"] * 4},
            "texts: expected at most 3, got 4; send several requests.",
        ),
        (
            "/translate",
            {"q": "o" * 51},
            "texts: expected at most 50 characters each, got 51; send them in parts.",
        ),
        (
            "/translate",
            {"q": "seven", "alternatives": 9},
            "alternatives: expected a number from 0 to 3, got 9; correct it.",
        ),
        (
            "/translate",
            {"q": ["o" * 50] * 3, "alternatives": 3},
            "texts: expected a cost of at most 110, got 156, the beam size times the number of "
            "tokens; .*",
        ),
        (
            "/translate",
            {"q": ["o" * 50] * 3, "format": "html"},
            "texts: expected a cost of at most 110, got 117, .*",
        ),
        (STREAM, {"text_input": "o" * 51}, "texts: expected at most 50 characters each, .*"),
        (
            STREAM,
            {"text_input": "one", "parameters": {"beam_size": 5}},
            "beam_size: expected at most 4, got 5; choose a smaller one.",
        ),
    ],
)
def test_text_limits_give_422(small, path, body, message):
    answer = small.send(path, {"source": "en", "target": "de", **body})
    assert answer.status == 422
    assert re.fullmatch(message, error_of(answer)), answer.content


def test_first_wrong_item_is_reported(server):
    languages = {"source": "en", "target": "de"}
    text = error_of(server.send("/translate", {"q": [1] * 100_000, **languages}))
    assert "q.list[str].0: " in text
    assert "q.list[str].1: " not in text
    parameters = dict.fromkeys(map(str, range(101)), 1)
    text = error_of(server.send(STREAM, {"text_input": "seven", "parameters": parameters}))
    assert "expected at most 100 parameters, got 101" in text


def test_long_request_equals_model(server, local_model):
    """It is split by another process."""
    texts = [f"{'seven. nine. ' * 8}forty-two" for _ in range(60)]
    expected = [translation.text for translation in local_model.translate(texts)]
    outputs = server.predict(*texts).content["outputs"]
    assert outputs["translation"] == expected


def test_server_settings_are_defaults(small, local_model):
    (expected,) = local_model.translate(["seven"], n_best=2, beam_size=3)
    outputs = small.send(
        PREDICT, {"signature_name": "translate", "inputs": {"text": ["seven"]}}
    ).content["outputs"]
    assert outputs["translations"] == [[h.text for h in expected.hypotheses]]
    # Greedy all the same.
    assert b"text_output" in small.send(STREAM, {"text_input": "seven"}).content


PATHS = "path: expected a path that /openapi.json lists, got {path};"
MODELS = "model: expected numbers, the model of this server, got {name};"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/v3", PATHS),
        ("/v1/models/others", MODELS),
        ("/v1/models/a/b:predict", MODELS),
        (f"{PREDICT}/", PATHS),
        ("/v2/models/others/infer", MODELS),
        ("/docs/x", PATHS),
    ],
)
def test_unknown_path_is_not_logged(server, path, reason):
    answer = server.send(f"{path}?q=secret", {"instances": ["seven"]})
    expected = reason.format(path=path, name="".join(path.split("/")[3:4]))
    assert answer.status == 404
    assert error_of(answer).startswith(expected)
    assert server.requests()[-1]["path"] == "(unknown)"
    assert "secret" not in server.log.read_text()


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_wrong_method_is_refused(server, method):
    answer = server.send(PREDICT, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert (
        method == "HEAD"
        or error_of(answer)
        == f"method: expected a method that the header Allow names, got {method}; correct it."
    )


def malformed(random, valid):
    """A body with one change that is likely to make it invalid."""
    text = bytearray(json.dumps(valid).encode())
    kind = random.randrange(4)
    if kind == 0:  # a byte changed
        text[random.randrange(len(text))] = random.randrange(256)
    elif kind == 1:  # cut off
        del text[random.randrange(len(text)) :]
    elif kind == 2:  # a part twice
        start = random.randrange(len(text))
        text[start:start] = text[start : start + random.randrange(1, 20)]
    else:  # another value
        key = random.choice(list(valid))
        values = [
            None,
            -1,
            1e300,
            True,
            "",
            [],
            {},
            [[]],
            [None],
            {"a": 1},
            "\0",
            "x" * 3000,
            [{}] * 5,
            [1, "a"],
        ]
        text = json.dumps({**valid, key: random.choice(values)}).encode()
    return bytes(text)


def test_malformed_requests_are_answered(small):
    choose = random.Random(7)
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["seven"]}
    valid = {
        PREDICT: {
            "signature_name": "translate",
            "inputs": {"text": ["seven"], "beam_size": 2, "n_best": 1},
        },
        f"{PREDICT}?": {"instances": [{"text": "seven"}]},
        "/translate": {
            "q": ["seven"],
            "source": "en",
            "target": "de",
            "format": "text",
            "alternatives": 1,
        },
        INFER: {
            "id": "1",
            "inputs": [tensor],
            "outputs": [{"name": "score"}],
            "parameters": {"beam_size": 2, "n_best": 1},
        },
        STREAM: {"text_input": "seven", "parameters": {"max_length": 5}},
    }
    requests = [(path, malformed(choose, valid[path])) for path in valid for _ in range(200)]
    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(lambda request: small.send(*request).status, requests))
    assert set(statuses) <= {200, 400, 413, 422}
    assert sum(status != 200 for status in statuses) > 500
    assert small.predict("seven").status == 200


def test_full_queue_and_timeout_errors(serve):
    """Two requests of sixteen slow searches: the second waits, a third finds the queue full, and
    both wait too long.
    """
    server = serve(
        "--max-queue",
        16,
        "--max-texts",
        16,
        "--max-batch",
        16,
        "--timeout",
        0.3,
        "--max-delay",
        10_000,
        "--max-streams",
        1,
    )
    with ThreadPoolExecutor(2) as threads:
        waits = threads.submit(server.predict, *["one"] * 10)
        # The texts stay in the queue after their request has timed out.
        server.wait_until(lambda: server.metric("tfk_queue_texts") > 0)
        full = server.predict(*["one"] * 10)
        assert (full.status, full.headers["retry-after"]) == (429, "1")
        assert (
            error_of(full)
            == "queue: expected at most 16 texts (a client's own count twice), got 20 that wait "
            "and 10 more; try again later."
        )
        late = waits.result()
        assert late.status == 504
        assert late.headers["retry-after"] == "5"
        assert error_of(late) == (
            "time: expected an answer within 0.3 s, got none; send fewer or shorter texts, or "
            "try again later."
        )


def test_streams_are_limited(serve):
    server = serve("--max-streams", 1)
    statuses, start = [], threading.Barrier(6)

    def stream():
        start.wait()
        statuses.append(
            server.send(
                STREAM, {"text_input": "one hundred ninety-nine", "parameters": {"min_length": 30}}
            ).status
        )

    threads = [threading.Thread(target=stream) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 200 in statuses
    assert set(statuses) <= {200, 429}
    for _ in range(5):  # clients that leave
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            body = b'{"text_input": "one hundred ninety-nine", "parameters": {"min_length": 30}}'
            head = (
                f"POST {STREAM} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            connection.sendall(head.encode() + body)
    server.wait_until(lambda: server.send(STREAM, {"text_input": "seven"}).status == 200)


@pytest.mark.parametrize("source", ["file", "environment"])
def test_requests_need_the_api_key(serve, tmp_path, source):
    (tmp_path / "key").write_text("s3cret-key\n")
    if source == "file":
        server = serve("--api-key-file", tmp_path / "key")
    else:
        server = serve(environment={"TFK_TRANSFORMER_API_KEY": "s3cret-key"})
    refused = server.predict("seven")
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert error_of(refused) == (
        "API key: expected the server's key, got no key or a wrong key; send the header "
        "Authorization: Bearer KEY."
    )
    for wrong in (
        {"Authorization": "Bearer s3cret-kez"},
        {"Authorization": "Basic s3cret-key"},
        {"X-API-Key": "s3cret"},
        {"X-API-Key": "\xe9"},
    ):
        assert server.predict("seven", headers=wrong).status == 401
    for right in (
        {"Authorization": "Bearer s3cret-key"},
        {"authorization": "bearer s3cret-key"},
        {"X-API-Key": "s3cret-key"},
    ):
        assert server.predict("seven", headers=right).status == 200
    languages = {"q": "seven", "source": "en", "target": "de"}
    assert server.send("/translate", languages).status == 401
    assert server.send("/translate", {**languages, "api_key": "s3cret-key"}).content == {
        "translatedText": "sieben"
    }
    assert {
        path: server.send(path).status
        for path in ("/v2/health/live", "/v2/health/ready", "/docs", "/metrics", "/languages")
    } == {
        "/v2/health/live": 200,
        "/v2/health/ready": 200,
        "/docs": 200,
        "/metrics": 401,
        "/languages": 200,
    }
    assert "s3cret" not in server.log.read_text()


def test_log_has_requests_but_no_texts(server):
    server.predict("forty-two", "seven", "one " * 500)
    server.send("/translate", {"q": "seven\0", "source": "en", "target": "de"})
    good, bad = server.requests()[-2:]
    assert {name: good[name] for name in ("level", "method", "path", "status", "texts")} == {
        "level": "info",
        "method": "POST",
        "path": PREDICT,
        "status": 200,
        "texts": 3,
    }
    assert good["milliseconds"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", good["time"])
    assert (bad["path"], bad["status"]) == ("/translate", 422)
    for text in ("forty", "seven", "one one", "sieben"):
        assert text not in server.log.read_text()


def test_metrics_count_requests(server):
    before = {name: server.metric(name) for name in ("tfk_texts_total", "tfk_batch_texts_sum")}
    server.predict("seven", "nine")
    assert server.metric("tfk_texts_total") == before["tfk_texts_total"] + 2
    assert server.metric("tfk_batch_texts_sum") == before["tfk_batch_texts_sum"] + 2
    assert (
        f'tfk_requests_total{{method="POST",path="{PREDICT}",status="200"}}'.encode()
        in server.send("/metrics").content
    )
