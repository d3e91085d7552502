"""The example server: a real process with an exported model, and clients that send requests, some of them wrong or slow."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "scripts"
PATH = "/v1/models/numbers:predict"
GUIDE = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")
TEXTS = {"forty-two": "zweiundvierzig", "seven": "sieben", "nine": "neun", "": ""}


class Answer(NamedTuple):
    status: int
    content: dict | None  # strict JSON; None for an answer without a body
    headers: dict


@pytest.fixture(scope="module")
def port(exported, tmp_path_factory):
    """The port of a server of the exported model."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, SCRIPTS / "saved_model_server.py", exported / "saved_model", "0"]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as server:
        try:
            yield int(re.search(r":(\d+)/", server.stdout.readline())[1])
        finally:
            server.terminate()
    assert "Traceback" not in log.read_text()


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def answer_of(connection):
    response = connection.getresponse()
    body = response.read()
    return Answer(response.status, json.loads(body, parse_constant=refuse) if body else None, dict(response.getheaders()))


@pytest.fixture
def send(port):
    """Send a request and return its answer."""

    def call(body, path=PATH, method="POST", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        with_body = {} if headers is None else {"headers": headers}
        connection.request(method, path, body if isinstance(body, bytes | str | None) else json.dumps(body), **with_body)
        found = answer_of(connection)
        connection.close()
        return found

    return call


@pytest.fixture
def send_raw(port):
    """Send bytes, and return the status line and the JSON of the answer."""

    def call(data):
        with socket.create_connection(("127.0.0.1", port), timeout=300) as connection:
            connection.sendall(data)
            response = http.client.HTTPResponse(connection)
            response.begin()
            return Answer(response.status, json.loads(response.read(), parse_constant=refuse), dict(response.getheaders()))

    return call


def head(*headers):
    return "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def test_the_requests_of_the_page_are_answered_as_they_stand_there(send, translator):
    columns, rows, settings, score = [send(block) for block in re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)]
    assert {answer.status for answer in (columns, rows, settings, score)} == {200}
    expected = translator.translate(["forty-two", "seven"], n_best=2)
    outputs = columns.content["outputs"]
    assert outputs["translation"] == [t.text for t in expected] == ["zweiundvierzig", "sieben"]
    assert outputs["score"] == pytest.approx([t.score for t in expected], abs=1e-4)
    assert [row["translation"] for row in rows.content["predictions"]] == outputs["translation"]
    assert [row["score"] for row in rows.content["predictions"]] == pytest.approx(outputs["score"])
    hypotheses = settings.content["outputs"]
    assert hypotheses["translations"] == [[h.text for h in t.hypotheses] for t in expected]
    assert hypotheses["scores"] == [pytest.approx([h.score for h in t.hypotheses], abs=1e-4) for t in expected]
    (pair,) = translator.score_tokens(["forty-two"], ["zweiundvierzig"])
    scored = score.content["outputs"]
    assert scored["log_probability"] == [pytest.approx(pair.log_probability, abs=1e-4)]
    assert scored["tokens"] == [pair.tokens]
    assert scored["token_log_probs"] == [pytest.approx(pair.token_log_probs, abs=1e-4)]


def test_rows_may_name_their_inputs(send):
    answer = send({"signature_name": "score", "instances": [{"source": "seven", "target": t} for t in ("sieben", "neun")]})
    good, bad = answer.content["predictions"]
    assert set(good) == {"log_probability", "tokens", "token_log_probs"} and good["log_probability"] > bad["log_probability"]
    assert send({"instances": [{"text": "seven"}]}).content["predictions"][0]["translation"] == "sieben"


def test_a_single_output_has_no_name(send):
    answer = send({"signature_name": "tokenize", "inputs": ["", "seven"]})
    assert answer.status == 200 and [row[0] for row in answer.content["outputs"]][0] != 0
    assert len(answer.content["outputs"]) == 2


def test_a_text_that_is_too_long_has_the_score_nan_as_a_string(send):
    answer = send({"inputs": {"text": ["seven", "one " * 500]}})
    assert answer.content["outputs"]["translation"] == ["sieben", ""]
    assert answer.content["outputs"]["score"][1] == "NaN" and answer.content["outputs"]["score"][0] < 0


def test_the_client_translates(port):
    command = [sys.executable, SCRIPTS / "saved_model_client.py", f"http://127.0.0.1:{port}{PATH}", "seven", "one " * 500]
    done = subprocess.run(command, capture_output=True, text=True)
    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == ["sieben", ""], done.stderr
    assert done.stdout.splitlines()[1] == "nan\t"


def test_one_client_that_stops_half_way_keeps_nobody_waiting(port, send):
    """The half requests stay open while the others are answered."""
    body = json.dumps({"inputs": {"text": ["seven"]}}).encode()
    whole = head(f"Content-Length: {len(body)}") + body
    with socket.create_connection(("127.0.0.1", port)) as nothing, socket.create_connection(("127.0.0.1", port)) as half:
        half.sendall(whole[:-5])
        for _ in range(3):
            assert send({"inputs": {"text": ["nine"]}}).content["outputs"]["translation"] == ["neun"]
        late = [http.client.HTTPResponse(half)]
        late[0].begin()  # after the server's patience
        assert late[0].status == 408
        assert "body: expected Content-Length bytes, got fewer" in json.loads(late[0].read())["error"]
        assert nothing.recv(1) == b""  # closed without an answer


def test_sixteen_clients_lose_no_request(send):
    texts = list(TEXTS)

    def twenty(client):
        return [send({"inputs": {"text": [texts[(client + number) % 4]]}}) for number in range(20)]

    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(twenty, range(16)))
    for client, answers in enumerate(found):
        for number, answer in enumerate(answers):
            assert (answer.status, answer.content["outputs"]["translation"]) == (200, [TEXTS[texts[(client + number) % 4]]])


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ([], 411, "Content-Length: expected the size of the body in bytes, got none; send this header."),
        (["Transfer-Encoding: chunked"], 411, "Content-Length: expected the size of the body in bytes, got none; send this header."),
        (["Content-Length: -1"], 400, "Content-Length: expected the size of the body in bytes, got -1; correct this header."),
        (["Content-Length: many"], 400, "Content-Length: expected the size of the body in bytes, got many; correct this header."),
        (["Content-Length: 1_0"], 400, "Content-Length: expected the size of the body in bytes, got 1_0; correct this header."),
        (["Content-Length: 1048577"], 413, "body: expected at most 1048576 bytes, got 1048577; send fewer texts at a time."),
        (["Content-Length: " + "9" * 5000], 413, f"body: expected at most 1048576 bytes, got {'9' * 50}; send fewer texts at a time."),
    ],
)
def test_a_wrong_length_is_refused(send_raw, headers, status, message):
    answer = send_raw(head(*headers))
    assert (answer.status, answer.content) == (status, {"error": message})


def test_a_body_that_is_too_large_is_refused_after_it_was_sent(send):
    answer = send({"inputs": {"text": ["one " * 500_000]}})
    assert answer.status == 413 and answer.content["error"].startswith("body: expected at most 1048576 bytes, got 2000")


def test_a_body_that_ends_early_is_refused(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head("Content-Length: 20") + b"{}")
        connection.shutdown(socket.SHUT_WR)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 400
        assert json.loads(response.read())["error"] == "body: expected 20 bytes, got 2; send as many bytes as Content-Length names."


@pytest.mark.parametrize(
    "path", ["/", "/v1/models/numbers", "/v1/models/a/b:predict", "/v2/models/numbers:predict", f"{PATH}?x=1", f"{PATH}/"]
)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_an_unknown_path_is_refused(send, path, method):
    answer = send({"instances": ["seven"]}, path=path, method=method)
    assert answer.status == 404
    assert answer.content == {"error": f"path: expected /v1/models/NAME:predict, got {path}; correct the URL."}


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_another_method_is_refused(send, method):
    answer = send(None, method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert answer.content == {"error": f"method: expected POST, got {method}; send a POST."}


def test_methods_without_a_body_or_a_name_are_refused_too(send):
    assert send(None, method="HEAD")[:2] == (405, None)
    answer = send(None, method="BREW")
    assert answer.status == 405 and "Unsupported method ('BREW')" in answer.content["error"]


def test_what_is_no_http_is_refused_as_json(send_raw):
    answer = send_raw(b"POST\r\n\r\n")
    assert answer.status == 400 and answer.content["error"].startswith("request: expected a POST of HTTP, got an error: Bad request")


SETTINGS = json.loads(re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)[2])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "Expecting value: line 1 column 1"),
        ('{"inputs": ', "Expecting value: line 1 column 12"),
        (b'{"inputs": "\xff"}', "'utf-8' codec can't decode byte 0xff"),
        ("[" * 100_000, "body: expected JSON that the model accepts, got an error: maximum recursion depth exceeded"),
        ([], 'body: expected an object with either "inputs" or "instances", got neither or both; send one of them.'),
        ({}, "got neither or both"),
        ({"inputs": ["a"], "instances": ["a"]}, "got neither or both"),
        ({"signature_name": "translat", "inputs": ["a"]}, 'signature_name: expected one of .*score.*, got "translat"; correct the name.'),
        ({"signature_name": ["score"], "inputs": ["a"]}, r"signature_name: .*, got \[\"score\"\]; correct the name."),
        ({"inputs": {}}, r"inputs: expected text by name, got \{\}; send all of them."),
        ({"inputs": {"text": ["a"], "texts": ["b"]}}, "inputs: expected text by name, got .*; send all of them."),
        ({"inputs": "seven"}, 'inputs: expected text by name, got "seven"; send all of them.'),
        ({"instances": 3}, "inputs: expected text by name, got 3; send all of them."),
        ({"signature_name": "score", "instances": ["a"]}, r"inputs: expected source, target by name, got \[\"a\"\]; send all of them."),
        ({"inputs": {"text": "seven"}}, r'text: expected string of shape \(None,\), got "seven"; correct this input.'),
        ({"inputs": {"text": [["seven"]]}}, r"text: expected string of shape \(None,\), got \[\[\"seven\"\]\]; correct this input."),
        ({"inputs": {"text": [1]}}, r"text: expected string of shape \(None,\), got \[1\]; correct this input."),
        ({"inputs": {"text": [None]}}, r"text: expected string of shape \(None,\), got \[null\]; correct this input."),
        ({"inputs": {"text": ["a", ["b"]]}}, r"text: expected string of shape \(None,\), got .*; correct this input."),
        ({"inputs": {"text": ["\ud800"]}}, r"text: expected string of shape \(None,\), got .*; correct this input."),
        ({**SETTINGS, "inputs": {**SETTINGS["inputs"], "n_best": 10**30}}, r"n_best: expected int32 of shape \(\), got 10{30}; correct"),
        ({**SETTINGS, "inputs": {**SETTINGS["inputs"], "n_best": 1.5}}, r"n_best: expected int32 of shape \(\), got 1.5; correct"),
        ({**SETTINGS, "inputs": {**SETTINGS["inputs"], "n_best": [1]}}, r"n_best: expected int32 of shape \(\), got \[1\]; correct"),
        ({**SETTINGS, "inputs": {**SETTINGS["inputs"], "prefix": ["a", "b", "c"]}}, "body: expected JSON that the model accepts, got an"),
    ],
)
def test_invalid_requests_are_refused_with_the_remedy(send, body, message):
    answer = send(body)
    assert answer.status == 400 and set(answer.content) == {"error"}
    assert re.search(message, answer.content["error"]), answer.content
